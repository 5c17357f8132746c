"""Inserts into the ledger; every function takes the connection of the transaction it is part of.

Each writes a table's row, its link in the journal and, where it moves one, the block's running total.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from storage.chain import canonical
from storage.ledger import journal, schema, totals
from storage.ledger.records import RESERVED, Block, Charge


def ledger(connection: sa.Connection, identity: str, *, now: datetime) -> None:
    """Write the ledger's own identity: its first link."""
    connection.execute(schema.ledger.insert().values(id=identity, created_at=now))
    journal.append(connection, [("ledger", {"id": identity})], day=now.date())


def block(connection: sa.Connection, opened: Block, *, now: datetime) -> None:
    """Write a block and its link."""
    values = block_body(opened)
    connection.execute(schema.blocks.insert().values(opened_at=now, **values))
    journal.append(connection, [("block", values)], day=now.date())


def block_body(opened: Block) -> dict[str, Any]:
    """A block as the journal and the table hold it."""
    return {**opened.__dict__, "orders": list(opened.orders), "caps": list(opened.caps)}


def reservations(
    connection: sa.Connection,
    charges: Sequence[Charge],
    *,
    flow_run_id: str,
    run_count: int,
    now: datetime,
    ttl: timedelta,
    state: str = RESERVED,
    note: str = "",
) -> list[int]:
    """Write reservations with their debits and first transitions; returns their rows, in order."""
    rows: list[int] = []
    for charge in charges:
        values = _reservation(charge, flow_run_id, run_count)
        times = {"created_at": now, "expires_at": now + ttl}
        result = connection.execute(schema.reservations.insert(), {**times, **values})
        rows.append(int(result.inserted_primary_key[0]))  # type: ignore[index]
    connection.execute(
        schema.debits.insert(),
        [
            {"row": row, "block": name, "costs": list(costs)}
            for row, charge in zip(rows, charges, strict=True)
            for name, costs in sorted(charge.costs.items())
        ],
    )
    connection.execute(
        schema.transitions.insert(),
        [
            {
                "row": row, "sequence": 1, "state": state, "epoch": 0, "token_hash": "",
                "deadline": now + ttl, "note": note, "at": now, "head": "",
            }
            for row in rows
        ],
    )  # fmt: skip
    links: list[tuple[str, Mapping[str, Any]]] = []
    for row, charge in zip(rows, charges, strict=True):
        body = _reservation(charge, flow_run_id, run_count)
        costs = {name: list(units) for name, units in charge.costs.items()}
        links.append(("reservation", {"row": row, **body, "costs": costs}))
        links.append(("transition", transition_body(row, 1, state, epoch=0, note=note)))
    sequences = journal.append(connection, links, day=now.date())
    paying = [
        (c.costs, s) for c, s in zip(charges, sequences[1::2], strict=True) if c.kind == "charged"
    ]
    _move(connection, paying, before=None, after=state)
    return rows


def _reservation(charge: Charge, flow_run_id: str, run_count: int) -> dict[str, Any]:
    return {
        "flow_run_id": flow_run_id,
        "run_count": run_count,
        "purpose": charge.purpose,
        "kind": charge.kind,
        # As JSON gives it back: what is hashed is what is stored.
        "mechanism": json.loads(canonical(charge.mechanism)),
        "epsilon": float(charge.epsilon),
        "delta": float(charge.delta),
        "steps": charge.steps,
    }


def transition(
    connection: sa.Connection,
    last: Any,
    state: str,
    *,
    epoch: int,
    deadline: datetime,
    at: datetime,
    costs: Mapping[str, Sequence[int]] | None = None,
    token: str = "",
    note: str = "",
    head: str = "",
) -> None:
    """Append a transition behind `last`; (row, sequence) is unique: of two racing ones, one fails.

    Args:
        connection: A transaction that holds the write lock.
        last: The row's newest transition.
        state: The next state.
        epoch: Its epoch.
        deadline: When it ends by itself.
        at: Now.
        costs: What the row debits, where the step may move a total.
        token: The grant's secret; only its hash is kept.
        note: Why.
        head: Hash of the evidence entry that settles the row.
    """
    sequence = last.sequence + 1
    connection.execute(
        schema.transitions.insert(),
        {
            "row": last.row, "sequence": sequence, "state": state, "epoch": epoch,
            "token_hash": hash_token(token), "deadline": deadline, "note": note, "at": at,
            "head": head,
        },
    )  # fmt: skip
    body = transition_body(last.row, sequence, state, epoch=epoch, note=note, head=head)
    (link,) = journal.append(connection, [("transition", body)], day=at.date())
    if costs:
        _move(connection, [(costs, link)], before=last.state, after=state)


def transition_body(
    row: int, sequence: int, state: str, *, epoch: int, note: str = "", head: str = ""
) -> dict[str, Any]:
    """A transition as the journal holds it: without times."""
    return {
        "row": row, "sequence": sequence, "state": state, "epoch": epoch, "note": note, "head": head,
    }  # fmt: skip


def count(connection: sa.Connection, row: int, epoch: int, steps: int, *, at: datetime) -> None:
    """Write that `steps` steps are about to have been taken."""
    connection.execute(schema.counters.insert().values(row=row, epoch=epoch, steps=steps, at=at))
    body = {"row": row, "epoch": epoch, "steps": steps}
    journal.append(connection, [("count", body)], day=at.date())


def _move(
    connection: sa.Connection,
    debits: Sequence[tuple[Mapping[str, Sequence[int]], int]],
    *,
    before: str | None,
    after: str,
) -> None:
    """Write the totals of every block that (costs, journal sequence) move."""
    names = sorted({name for costs, _ in debits for name in costs})
    if not names:
        return
    positions = totals.newest(connection, names)
    moved: list[tuple[int, Mapping[str, totals.Position]]] = []
    for costs, sequence in debits:
        changed = {}
        for name, units in costs.items():
            old = positions.get(name, totals.Position())
            zero = (0,) * len(units)
            whole = totals.Position(old.spent or zero, old.reserved or zero)
            new = whole.moved(before, after, units)
            if new != whole:
                changed[name] = positions[name] = new
        moved.append((sequence, changed))
    totals.write(connection, moved)


def hash_token(token: str) -> str:
    """What the ledger keeps of a token; '' for none."""
    return hashlib.sha256(token.encode()).hexdigest() if token else ""
