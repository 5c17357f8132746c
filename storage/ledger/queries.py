"""Reads of the ledger: states and balances are derived from history, never stored.

Every function takes the connection of the transaction it is part of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from storage.errors import LedgerError
from storage.ledger import schema
from storage.ledger.records import CHARGED, RESERVED, Balance, Block, Entry


def utc(value: datetime) -> datetime:
    """`value` with its time zone: SQLite forgets it, and what is stored is always UTC."""
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def last_transition(connection: sa.Connection, row: int) -> Any:
    """The newest transition of a reservation.

    Raises:
        LedgerError: There is no such reservation.
    """
    found = connection.execute(
        sa.select(schema.transitions)
        .where(schema.transitions.c.row == row)
        .order_by(schema.transitions.c.sequence.desc())
        .limit(1)
    ).first()
    if found is None:
        raise LedgerError(f"there is no reservation {row} in this ledger.")
    return found


def open_rows(connection: sa.Connection) -> list[Any]:
    """The newest transition of every row that a deadline can still end."""
    newest = (
        sa.select(
            schema.transitions.c.row, sa.func.max(schema.transitions.c.sequence).label("sequence")
        )
        .group_by(schema.transitions.c.row)
        .subquery()
    )
    query = sa.select(schema.transitions).join(
        newest,
        (schema.transitions.c.row == newest.c.row)
        & (schema.transitions.c.sequence == newest.c.sequence),
    )
    return list(
        connection.execute(query.where(schema.transitions.c.state.in_(("RESERVED", "STARTED"))))
    )


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
    wanted = sa.select(schema.reservations.c.kind).where(schema.reservations.c.row == row)
    return str(connection.execute(wanted).scalar_one())


def debited_blocks(connection: sa.Connection, row: int) -> tuple[str, ...]:
    """Names of the blocks that a reservation debits."""
    return tuple(
        connection.execute(
            sa.select(schema.debits.c.block)
            .where(schema.debits.c.row == row)
            .order_by(schema.debits.c.block)
        ).scalars()
    )


def steps_of(connection: sa.Connection, row: int) -> tuple[int, int]:
    """(steps counted in any epoch, steps paid for) of a reservation."""
    counted = connection.execute(
        sa.select(sa.func.max(schema.counters.c.steps)).where(schema.counters.c.row == row)
    ).scalar()
    paid = connection.execute(
        sa.select(schema.reservations.c.steps).where(schema.reservations.c.row == row)
    ).scalar_one()
    return counted or 0, paid


def has_reserved(connection: sa.Connection, flow_run_id: str, run_count: int) -> bool:
    """Whether an attempt has reserved anything before."""
    found = connection.execute(
        sa.select(schema.reservations.c.row)
        .where(schema.reservations.c.flow_run_id == flow_run_id)
        .where(schema.reservations.c.run_count == run_count)
        .limit(1)
    ).first()
    return found is not None


def balance(connection: sa.Connection, block: Block) -> Balance:
    """Units spent and reserved on a block."""
    spent: list[tuple[int, ...]] = []
    reserved: list[tuple[int, ...]] = []
    for debit in connection.execute(
        sa.select(schema.debits).where(schema.debits.c.block == block.name)
    ).all():
        state = last_transition(connection, debit.row).state
        if state in CHARGED:
            spent.append(tuple(debit.costs))
        elif state == RESERVED:
            reserved.append(tuple(debit.costs))
    size = len(block.orders)
    return Balance(block=block, spent=add(spent, size), reserved=add(reserved, size))


def entries(connection: sa.Connection, dataset: str | None) -> list[Entry]:
    """Every reservation that debits a block of `dataset` (or any), oldest first."""
    wanted = {b.name for b in blocks_of(connection, dataset)}
    found = []
    for r in connection.execute(
        sa.select(schema.reservations).order_by(schema.reservations.c.row)
    ).all():
        names = debited_blocks(connection, r.row)
        if not wanted.intersection(names):
            continue
        last = last_transition(connection, r.row)
        counted, _paid = steps_of(connection, r.row)
        found.append(
            Entry(
                row=r.row,
                purpose=r.purpose,
                kind=r.kind,
                state=last.state,
                epoch=last.epoch,
                blocks=names,
                epsilon=r.epsilon,
                delta=r.delta,
                steps=r.steps,
                steps_counted=counted,
                mechanism=r.mechanism,
                created_at=utc(r.created_at),
                changed_at=utc(last.at),
                flow_run_id=r.flow_run_id,
            )
        )
    return found


def add(vectors: Sequence[tuple[int, ...]], size: int) -> tuple[int, ...]:
    """Component-wise sum of whole units."""
    return tuple(sum(v[i] for v in vectors) for i in range(size))


def to_block(row: Any) -> Block:
    """A table row as a value."""
    values = {k: v for k, v in row._mapping.items() if k != "opened_at"}  # noqa: SLF001 - SQLAlchemy's
    return replace(Block(**values), orders=tuple(row.orders), caps=tuple(row.caps))
