"""Reads of the ledger: states follow from transitions, balances from the newest running totals.

Every function takes the connection of the transaction it is part of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from storage.errors import LedgerError
from storage.ledger import policies as decisions
from storage.ledger import schema, totals
from storage.ledger.records import RAISE_CAP, RESERVED, STARTED, Balance, Block, Entry

SWEPT_AGAIN = timedelta(hours=1)
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)

# Built once: building a query takes longer than running it.
_LAST = (
    sa.select(schema.transitions)
    .where(schema.transitions.c.row == sa.bindparam("wanted"))
    .order_by(schema.transitions.c.sequence.desc())
    .limit(1)
)
_LATER = schema.transitions.alias()
_OVERDUE = (
    sa.select(schema.transitions)
    .where(schema.transitions.c.deadline <= sa.bindparam("now"))
    .where(schema.transitions.c.deadline > sa.bindparam("after"))
    .where(schema.transitions.c.state.in_((RESERVED, STARTED)))
    .where(
        ~sa.exists().where(
            (_LATER.c.row == schema.transitions.c.row)
            & (_LATER.c.sequence > schema.transitions.c.sequence)
        )
    )
    .order_by(schema.transitions.c.row)
)
_SWEPT = sa.select(sa.func.max(schema.sweeps.c.until))
_KIND = sa.select(schema.reservations.c.kind).where(
    schema.reservations.c.row == sa.bindparam("wanted")
)
_DEBITED = (
    sa.select(schema.debits.c.block)
    .where(schema.debits.c.row == sa.bindparam("wanted"))
    .order_by(schema.debits.c.block)
)


def utc(value: datetime) -> datetime:
    """`value` with its time zone: SQLite forgets it, and what is stored is always UTC."""
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def last_transition(connection: sa.Connection, row: int) -> Any:
    """The newest transition of a reservation.

    Raises:
        LedgerError: There is no such reservation.
    """
    found = connection.execute(_LAST, {"wanted": row}).first()
    if found is None:
        raise LedgerError(f"there is no reservation {row} in this ledger.")
    return found


def overdue(connection: sa.Connection, now: datetime) -> list[Any]:
    """The newest transitions, RESERVED or STARTED, whose deadline has passed.

    Only deadlines since the last sweep are looked at, so that the search does not grow with history;
    an hour before it is searched again, for clocks that differ. Whoever uses a row looks at its own
    deadline.
    """
    swept = last_sweep(connection)
    after = swept - SWEPT_AGAIN if swept is not None else _FIRST
    return list(connection.execute(_OVERDUE, {"now": now, "after": after}))


def last_sweep(connection: sa.Connection) -> datetime | None:
    """Until when deadlines have been decided."""
    swept = connection.execute(_SWEPT).scalar()
    return utc(swept) if swept is not None else None


def blocks_by_name(connection: sa.Connection, names: Sequence[str]) -> dict[str, Block]:
    """The open blocks among `names`."""
    rows = connection.execute(sa.select(schema.blocks).where(schema.blocks.c.name.in_(names)))
    return {r.name: to_block(r) for r in rows}


def blocks_of(connection: sa.Connection, dataset: str | None) -> list[Block]:
    """The blocks of a dataset, or all, in the order in which they were opened."""
    query = sa.select(schema.blocks).order_by(schema.blocks.c.opened_at, schema.blocks.c.name)
    if dataset is not None:
        query = query.where(schema.blocks.c.dataset == dataset)
    return [to_block(r) for r in connection.execute(query)]


def kind_of(connection: sa.Connection, row: int) -> str:
    """Whether a reservation is ``charged`` or ``restricted``."""
    return str(connection.execute(_KIND, {"wanted": row}).scalar_one())


def debited_blocks(connection: sa.Connection, row: int) -> tuple[str, ...]:
    """Names of the blocks that a reservation debits."""
    return tuple(connection.execute(_DEBITED, {"wanted": row}).scalars())


def steps_of(connection: sa.Connection, row: int) -> tuple[int, int]:
    """(steps counted in any epoch, steps paid for) of a reservation."""
    counted = connection.execute(
        sa.select(sa.func.max(schema.counters.c.steps)).where(schema.counters.c.row == row)
    ).scalar()
    paid = connection.execute(
        sa.select(schema.reservations.c.steps).where(schema.reservations.c.row == row)
    ).scalar_one()
    return counted or 0, paid


def balances(connection: sa.Connection, blocks: Sequence[Block]) -> list[Balance]:
    """Where each block stands, with its caps as they are now."""
    names = [b.name for b in blocks]
    positions, policies = totals.newest(connection, names), decisions.of_blocks(connection, names)
    found = []
    for block in blocks:
        zero = (0,) * len(block.caps)
        position = positions.get(block.name, totals.Position(zero, zero))
        decided = policies.get(block.name, [])
        found.append(
            Balance(
                block=decisions.applied(block, decided),
                spent=position.spent or zero,
                reserved=position.reserved or zero,
                opened_cap=block.epsilon_cap,
                retired=decisions.is_retired(decided),
                raised=tuple(p for p in decided if p.action == RAISE_CAP),
            )
        )
    return found


def costs_of(connection: sa.Connection, row: int) -> dict[str, tuple[int, ...]]:
    """Block → units that a reservation debits."""
    found = connection.execute(
        sa.select(schema.debits).where(schema.debits.c.row == row).order_by(schema.debits.c.block)
    )
    return {r.block: tuple(r.costs) for r in found}


def rows_of(connection: sa.Connection, flow_run_id: str, run_count: int) -> list[Any]:
    """An attempt's reservations, oldest first."""
    return list(
        connection.execute(
            sa.select(schema.reservations)
            .where(schema.reservations.c.flow_run_id == flow_run_id)
            .where(schema.reservations.c.run_count == run_count)
            .order_by(schema.reservations.c.row)
        )
    )


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
    values = {k: v for k, v in row._mapping.items() if k != "opened_at"}  # noqa: SLF001 - SQLAlchemy's
    return replace(Block(**values), orders=tuple(row.orders), caps=tuple(row.caps))
