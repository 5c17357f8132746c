"""Running totals of blocks: what is spent and reserved on each, after every link that moved it.

A total is a row of `positions`; the newest one of a block is its balance. It is written in the same
transaction as the transition that moves it, from the one before. `Ledger.verify` adds everything up
again from the journal and compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from storage.ledger import schema

Units = tuple[int, ...]


@dataclass(frozen=True)
class Position:
    """Units spent for good and units reserved, by component; () stands for all zero."""

    spent: Units = ()
    reserved: Units = ()

    def moved(self, before: str | None, after: str, costs: Sequence[int]) -> Position:
        """The position once a row with these costs goes from one state to another."""
        step = (before, after)
        if step == (None, "RESERVED"):
            return Position(self.spent, _plus(self.reserved, costs))
        if step == ("RESERVED", "STARTED"):
            return Position(_plus(self.spent, costs), _minus(self.reserved, costs))
        if step == ("RESERVED", "RELEASED"):
            return Position(self.spent, _minus(self.reserved, costs))
        if step == (None, "SPENT"):
            return Position(_plus(self.spent, costs), self.reserved)
        return self  # from STARTED on the full charge stays


def newest_of(block: sa.ColumnElement[str]) -> tuple[sa.ScalarSelect[Any], sa.ScalarSelect[Any]]:
    """Columns `spent` and `reserved` of the newest position of a query's block; NULL if it never moved.

    Each is one walk from the end of an index, so that it does not grow with history.
    """
    columns = (schema.positions.c.spent, schema.positions.c.reserved)
    spent, reserved = (
        sa.select(column)
        .where(schema.positions.c.block == block)
        .order_by(schema.positions.c.sequence.desc())
        .limit(1)
        .scalar_subquery()
        for column in columns
    )
    return spent, reserved


def write(connection: sa.Connection, moved: Sequence[tuple[int, Mapping[str, Position]]]) -> None:
    """Write positions: (journal sequence, block → position after it)."""
    rows: list[dict[str, Any]] = [
        {
            "block": name,
            "sequence": sequence,
            "spent": list(position.spent),
            "reserved": list(position.reserved),
        }
        for sequence, positions in moved
        for name, position in sorted(positions.items())
    ]
    if rows:
        schema.insert(connection, schema.positions, rows)


def _plus(total: Units, costs: Sequence[int]) -> Units:
    whole = total or (0,) * len(costs)
    return tuple(t + c for t, c in zip(whole, costs, strict=True))


def _minus(total: Units, costs: Sequence[int]) -> Units:
    return tuple(t - c for t, c in zip(total, costs, strict=True))
