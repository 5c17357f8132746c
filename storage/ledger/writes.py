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
from storage.ledger.standing import Standing
from storage.ledger.totals import Position

# Built once: building a statement takes longer than running it.
_RESERVE = schema.reservations.insert()


def ledger(connection: sa.Connection, identity: str, *, now: datetime) -> None:
    """Write the ledger's own identity: its first link."""
    schema.insert(connection, schema.ledger, [{"id": identity, "created_at": now}])
    journal.append(connection, [("ledger", {"id": identity})], day=now.date())


def block(connection: sa.Connection, opened: Block, *, now: datetime) -> None:
    """Write a block and its link."""
    values = block_body(opened)
    schema.insert(connection, schema.blocks, [{"opened_at": now, **values}])
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
    positions: Mapping[str, Position],
    now: datetime,
    ttl: timedelta,
    state: str = RESERVED,
    note: str = "",
) -> list[int]:
    """Write reservations with their debits and first transitions; returns their rows, in order.

    Args:
        connection: A transaction that holds the write lock.
        charges: What the run asks for.
        flow_run_id: With `run_count`, the attempt.
        run_count: See `flow_run_id`.
        positions: Newest running total of every block that is debited.
        now: When.
        ttl: How long the first state may last.
        state: The first state.
        note: Why.
    """
    rows: list[int] = []
    debits: list[dict[str, Any]] = []
    transitions: list[dict[str, Any]] = []
    links: list[tuple[str, Mapping[str, Any]]] = []
    for charge in charges:
        values = _reservation(charge, flow_run_id, run_count)
        times = {"created_at": now, "expires_at": now + ttl}
        result = connection.execute(_RESERVE, {**times, **values})
        row = int(result.inserted_primary_key[0])  # type: ignore[index]
        rows.append(row)
        costs = {name: list(units) for name, units in sorted(charge.costs.items())}
        debits += [{"row": row, "block": name, "costs": units} for name, units in costs.items()]
        transitions.append(
            _transition(row, 1, state, epoch=0, deadline=now + ttl, at=now, note=note)
        )
        links.append(("reservation", {"row": row, **values, "costs": costs}))
        links.append(("transition", transition_body(row, 1, state, epoch=0, note=note)))
    schema.insert(connection, schema.debits, debits)
    schema.insert(connection, schema.transitions, transitions)
    sequences = journal.append(connection, links, day=now.date())
    paying = [
        (c.costs, s) for c, s in zip(charges, sequences[1::2], strict=True) if c.kind == "charged"
    ]
    _move(connection, paying, positions, before=None, after=state)
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
    last: Standing,
    state: str,
    *,
    epoch: int,
    deadline: datetime,
    at: datetime,
    token: str = "",
    note: str = "",
    head: str = "",
) -> None:
    """Append a transition behind `last`; (row, sequence) is unique: of two racing ones, one fails.

    Args:
        connection: A transaction that holds the write lock.
        last: Where the row stands, read in this transaction and right before.
        state: The next state.
        epoch: Its epoch.
        deadline: When it ends by itself.
        at: Now.
        token: The grant's secret; only its hash is kept.
        note: Why.
        head: Hash of the evidence entry that settles the row.
    """
    sequence = last.sequence + 1
    values = _transition(
        last.row, sequence, state, epoch=epoch, deadline=deadline, at=at, note=note
    )
    values |= {"token_hash": hash_token(token), "head": head}
    schema.insert(connection, schema.transitions, [values])
    body = transition_body(last.row, sequence, state, epoch=epoch, note=note, head=head)
    (link,) = journal.append(connection, [("transition", body)], day=at.date(), after=last.newest)
    if last.kind == "charged":
        _move(connection, [(last.costs, link)], last.positions, before=last.state, after=state)


def _transition(
    row: int, sequence: int, state: str, *, epoch: int, deadline: datetime, at: datetime, note: str
) -> dict[str, Any]:
    return {
        "row": row, "sequence": sequence, "state": state, "epoch": epoch, "token_hash": "",
        "deadline": deadline, "note": note, "at": at, "head": "",
    }  # fmt: skip


def transition_body(
    row: int, sequence: int, state: str, *, epoch: int, note: str = "", head: str = ""
) -> dict[str, Any]:
    """A transition as the journal holds it: without times."""
    return {
        "row": row, "sequence": sequence, "state": state, "epoch": epoch, "note": note, "head": head,
    }  # fmt: skip


def count(connection: sa.Connection, last: Standing, steps: int, *, at: datetime) -> None:
    """Write that `steps` steps are about to have been taken by the holder of the row's epoch."""
    body = {"row": last.row, "epoch": last.epoch, "steps": steps}
    schema.insert(connection, schema.counters, [{**body, "at": at}])
    journal.append(connection, [("count", body)], day=at.date(), after=last.newest)


def _move(
    connection: sa.Connection,
    debits: Sequence[tuple[Mapping[str, Sequence[int]], int]],
    positions: Mapping[str, Position],
    *,
    before: str | None,
    after: str,
) -> None:
    """Write the totals of every block that (costs, journal sequence) move from `positions`."""
    newest = dict(positions)
    moved: list[tuple[int, Mapping[str, Position]]] = []
    for costs, sequence in debits:
        changed = {}
        for name, units in costs.items():
            old = newest.get(name, Position())
            zero = (0,) * len(units)
            whole = Position(old.spent or zero, old.reserved or zero)
            new = whole.moved(before, after, units)
            if new != whole:
                changed[name] = newest[name] = new
        moved.append((sequence, changed))
    totals.write(connection, moved)


def hash_token(token: str) -> str:
    """What the ledger keeps of a token; '' for none."""
    return hashlib.sha256(token.encode()).hexdigest() if token else ""
