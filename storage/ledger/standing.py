"""Where one reservation stands, with all that its next step needs, as a single query reads it.

Valid while the write lock is held and until something is appended: whoever appends reads it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from storage.errors import LedgerError
from storage.ledger import schema, totals
from storage.ledger.records import Head
from storage.ledger.totals import Position, Units


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A reservation's newest transition, what it debits, and what is newest beside it.

    Attributes:
        row: The reservation.
        kind: ``charged`` or ``restricted``.
        sequence: Number of its newest transition, 1-based; the fields below are that transition's.
        state: One of the states of `storage.ledger.records`.
        epoch: Fencing epoch.
        token_hash: Hash of the newest grant's token; '' for none.
        deadline: When the state ends by itself, in UTC.
        note: Why.
        at: When, in UTC.
        head: Hash of the evidence entry that settled it; '' for none.
        counted: Steps counted in any epoch.
        paid: Steps paid for.
        costs: Block → units that it debits.
        positions: Block → its newest running total.
        newest: The journal's newest link.
    """

    row: int
    kind: str
    sequence: int
    state: str
    epoch: int
    token_hash: str
    deadline: datetime
    note: str
    at: datetime
    head: str
    counted: int
    paid: int
    costs: Mapping[str, Units]
    positions: Mapping[str, Position]
    newest: Head


def utc(value: datetime) -> datetime:
    """`value` with its time zone: SQLite forgets it, and what is stored is always UTC."""
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _query() -> sa.Select[Any]:
    last, reservation, debit = schema.transitions, schema.reservations, schema.debits
    earlier = schema.transitions.alias()
    newest = (
        sa.select(schema.journal.c.sequence, schema.journal.c.hash)
        .order_by(schema.journal.c.sequence.desc())
        .limit(1)
        .subquery()
    )
    counted = (
        sa.select(sa.func.max(schema.counters.c.steps))
        .where(schema.counters.c.row == last.c.row)
        .scalar_subquery()
    )
    spent, reserved = totals.newest_of(debit.c.block)
    return (
        sa.select(
            last,
            reservation.c.kind,
            reservation.c.steps.label("paid"),
            counted.label("counted"),
            debit.c.block,
            debit.c.costs,
            spent.label("spent"),
            reserved.label("reserved"),
            newest.c.sequence.label("link"),
            newest.c.hash,
        )
        .select_from(
            last.join(reservation, reservation.c.row == last.c.row)
            .join(debit, debit.c.row == last.c.row)
            .join(newest, sa.true())
        )
        .where(last.c.row == sa.bindparam("wanted"))
        .where(
            last.c.sequence
            == sa.select(sa.func.max(earlier.c.sequence))
            .where(earlier.c.row == sa.bindparam("wanted"))
            .scalar_subquery()
        )
        .order_by(debit.c.block)
    )


# Built once: building a query takes longer than running it.
_QUERY = _query()


def of_row(connection: sa.Connection, row: int) -> Standing:
    """Read where a reservation stands.

    Raises:
        LedgerError: There is no such reservation.
    """
    found = connection.execute(_QUERY, {"wanted": row}).all()
    if not found:
        raise LedgerError(f"there is no reservation {row} in this ledger.")
    first = found[0]
    return Standing(
        row=first.row,
        kind=first.kind,
        sequence=first.sequence,
        state=first.state,
        epoch=first.epoch,
        token_hash=first.token_hash,
        deadline=utc(first.deadline),
        note=first.note,
        at=utc(first.at),
        head=first.head,
        counted=first.counted or 0,
        paid=first.paid,
        costs={each.block: tuple(each.costs) for each in found},
        positions={
            each.block: Position(tuple(each.spent), tuple(each.reserved))
            for each in found
            if each.spent is not None
        },
        newest=Head(first.link, first.hash),
    )
