"""Reads of the ledger: states follow from transitions, balances from the newest running totals.

Every function takes the connection of the transaction it is part of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from storage.ledger import policies as decisions
from storage.ledger import schema, totals
from storage.ledger.records import RAISE_CAP, RESERVED, STARTED, Balance, Block, Entry
from storage.ledger.standing import utc

_TERMS = tuple(f.name for f in fields(Block))
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)

# Built once: building a query takes longer than running it.
_LATER = schema.transitions.alias()
_SWEPT = sa.select(
    sa.func.coalesce(
        sa.func.max(schema.sweeps.c.until), sa.literal(_FIRST, schema.sweeps.c.until.type)
    ).label("until")
).subquery()
_OVERDUE = (
    sa.select(_SWEPT.c.until, schema.transitions.c.row)
    .select_from(
        _SWEPT.outerjoin(
            schema.transitions,
            (schema.transitions.c.deadline <= sa.bindparam("now"))
            & (schema.transitions.c.deadline > _SWEPT.c.until)
            & schema.transitions.c.state.in_((RESERVED, STARTED))
            & ~sa.exists().where(
                (_LATER.c.row == schema.transitions.c.row)
                & (_LATER.c.sequence > schema.transitions.c.sequence)
            ),
        )
    )
    .order_by(schema.transitions.c.row)
)
_NAMED = sa.select(schema.blocks).where(
    schema.blocks.c.name.in_(sa.bindparam("names", expanding=True))
)
_SPENT, _RESERVED = totals.newest_of(schema.blocks.c.name)
_DECISIONS = (
    sa.select(sa.func.count())
    .where(schema.policies.c.block == schema.blocks.c.name)
    .scalar_subquery()
)
_STANDING = sa.select(
    schema.blocks,
    _SPENT.label("spent"),
    _RESERVED.label("reserved"),
    _DECISIONS.label("decisions"),
)
_STANDING_NAMED = _STANDING.where(
    schema.blocks.c.name.in_(sa.bindparam("names", expanding=True))
).order_by(schema.blocks.c.name)
_ATTEMPT = (
    sa.select(schema.reservations.c.row, schema.reservations.c.purpose)
    .where(schema.reservations.c.flow_run_id == sa.bindparam("flow_run_id"))
    .where(schema.reservations.c.run_count == sa.bindparam("run_count"))
    .order_by(schema.reservations.c.row)
)


def overdue(connection: sa.Connection, now: datetime) -> tuple[datetime, list[int]]:
    """Until when deadlines have been decided for good, and the rows whose deadline passed since then.

    Only deadlines since then are looked at, so that the search does not grow with history. Whoever uses
    a row looks at its own deadline.
    """
    found = connection.execute(_OVERDUE, {"now": now}).all()
    return utc(found[0].until), [each.row for each in found if each.row is not None]


def blocks_by_name(connection: sa.Connection, names: Sequence[str]) -> dict[str, Block]:
    """The open blocks among `names`."""
    return {r.name: to_block(r) for r in connection.execute(_NAMED, {"names": list(names)})}


def blocks_of(connection: sa.Connection, dataset: str | None) -> list[Block]:
    """The blocks of a dataset, or all, in the order in which they were opened."""
    return [to_block(r) for r in connection.execute(_of(sa.select(schema.blocks), dataset))]


def _of(query: sa.Select[Any], dataset: str | None) -> sa.Select[Any]:
    query = query.order_by(schema.blocks.c.opened_at, schema.blocks.c.name)
    return query if dataset is None else query.where(schema.blocks.c.dataset == dataset)


def balances_by_name(connection: sa.Connection, names: Sequence[str]) -> dict[str, Balance]:
    """Where the open blocks among `names` stand, with their caps as they are now."""
    rows = connection.execute(_STANDING_NAMED, {"names": list(names)}).all()
    return _balances(connection, rows)


def balances_of(connection: sa.Connection, dataset: str | None) -> list[Balance]:
    """Where the blocks of a dataset, or all, stand, in the order in which they were opened."""
    return list(_balances(connection, connection.execute(_of(_STANDING, dataset)).all()).values())


def _balances(connection: sa.Connection, rows: Sequence[Any]) -> dict[str, Balance]:
    decided_on = [r.name for r in rows if r.decisions]
    policies = decisions.of_blocks(connection, decided_on) if decided_on else {}
    found = {}
    for row in rows:
        block, decided = to_block(row), policies.get(row.name, [])
        zero = (0,) * len(block.caps)
        found[block.name] = Balance(
            block=decisions.applied(block, decided),
            spent=tuple(row.spent or zero),
            reserved=tuple(row.reserved or zero),
            opened_cap=block.epsilon_cap,
            retired=decisions.is_retired(decided),
            raised=tuple(p for p in decided if p.action == RAISE_CAP),
        )
    return found


def positions(balances: Mapping[str, Balance]) -> dict[str, totals.Position]:
    """The running totals behind these balances."""
    return {name: totals.Position(b.spent, b.reserved) for name, b in balances.items()}


def attempt(connection: sa.Connection, flow_run_id: str, run_count: int) -> list[Any]:
    """(row, purpose) of an attempt's reservations, oldest first."""
    key = {"flow_run_id": flow_run_id, "run_count": run_count}
    return list(connection.execute(_ATTEMPT, key))


def entries(connection: sa.Connection, dataset: str | None) -> list[Entry]:
    """Every reservation that debits a block of `dataset` (or any), oldest first."""
    wanted = {b.name for b in blocks_of(connection, dataset)}
    names: dict[int, list[str]] = {}
    for row, block in connection.execute(
        sa.select(schema.debits.c.row, schema.debits.c.block).order_by(schema.debits.c.block)
    ):
        names.setdefault(row, []).append(block)
    last = {
        t.row: t for t in connection.execute(
            sa.select(schema.transitions).order_by(schema.transitions.c.sequence)
        )
    }  # fmt: skip
    highest = sa.select(schema.counters.c.row, sa.func.max(schema.counters.c.steps))
    counted = dict(connection.execute(highest.group_by(schema.counters.c.row)).tuples().all())
    return [
        Entry(
            row=r.row,
            purpose=r.purpose,
            kind=r.kind,
            state=last[r.row].state,
            epoch=last[r.row].epoch,
            blocks=tuple(names[r.row]),
            epsilon=r.epsilon,
            delta=r.delta,
            steps=r.steps,
            steps_counted=counted.get(r.row, 0),
            mechanism=r.mechanism,
            created_at=utc(r.created_at),
            changed_at=utc(last[r.row].at),
            flow_run_id=r.flow_run_id,
            run_count=r.run_count,
        )
        for r in connection.execute(
            sa.select(schema.reservations).order_by(schema.reservations.c.row)
        )
        if wanted.intersection(names[r.row])
    ]


def to_block(row: Any) -> Block:
    """A table row as a value."""
    values = {name: getattr(row, name) for name in _TERMS}
    return Block(**{**values, "orders": tuple(row.orders), "caps": tuple(row.caps)})
