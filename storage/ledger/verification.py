"""Shows that the journal is one chain, and that every table says what the journal says.

The journal is replayed from its first link: blocks, reservations, debits, transitions, counters,
policies and totals are built anew and compared with the tables, row by row. What differs is named. A
history that was written anew from end to end, chain and all, passes; against that, heads are kept
elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from storage.chain import GENESIS, digest
from storage.errors import LedgerError
from storage.ledger import journal, schema, totals
from storage.ledger.records import Head

_NEXT = {
    None: ("RESERVED", "SPENT"),
    "RESERVED": ("STARTED", "RELEASED"),
    "STARTED": ("STARTED", "COMMITTED", "SPENT"),
}
"""Which state may follow which; SPENT comes first only where a lost history was booked again."""

Rows = dict[tuple[Any, ...], Any]


class _Replay:
    """The tables as the journal tells them: key → what else the row says."""

    def __init__(self) -> None:
        self.tables: dict[str, Rows] = {
            name: {}
            for name in (
                "ledger", "blocks", "reservations", "debits", "transitions", "counters", "policies",
                "positions",
            )
        }  # fmt: skip
        self._state: dict[int, tuple[str, int, int]] = {}
        self._positions: dict[str, totals.Position] = {}
        self._costs: dict[int, Mapping[str, list[int]]] = {}

    def add(self, link: Mapping[str, Any]) -> None:
        """Take one link over.

        Raises:
            KeyError, TypeError, ValueError: It is none that a ledger writes.
        """
        {
            "ledger": self._ledger,
            "block": self._block,
            "reservation": self._reservation,
            "transition": self._transition,
            "count": self._count,
            "policy": self._policy,
        }[link["kind"]](link["sequence"], link["body"])

    def _ledger(self, _sequence: int, body: Mapping[str, Any]) -> None:
        self.tables["ledger"][body["id"],] = {}

    def _block(self, _sequence: int, body: Mapping[str, Any]) -> None:
        self.tables["blocks"][body["name"],] = {k: v for k, v in body.items() if k != "name"}

    def _reservation(self, _sequence: int, body: Mapping[str, Any]) -> None:
        rest = dict(body)
        row, costs = rest.pop("row"), rest.pop("costs")
        self.tables["reservations"][row,] = rest
        self._costs[row] = costs
        for name, units in costs.items():
            self.tables["debits"][row, name] = {"costs": units}

    def _transition(self, sequence: int, body: Mapping[str, Any]) -> None:
        row, number, state, epoch = (body[k] for k in ("row", "sequence", "state", "epoch"))
        before, last, held = self._state.get(row, (None, 0, 0))
        started = state == "STARTED"
        if state not in _NEXT.get(before, ()) or number != last + 1 or epoch != held + started:
            raise ValueError(
                f"row {row} cannot go from {before} in epoch {held} to {state} in {epoch}"
            )
        self._state[row] = (state, number, epoch)
        self.tables["transitions"][row, number] = {
            k: body[k] for k in ("state", "epoch", "note", "head")
        }
        if self.tables["reservations"][row,]["kind"] != "charged":
            return
        for name, units in self._costs[row].items():
            zero = (0,) * len(units)
            old = self._positions.get(name, totals.Position(zero, zero))
            new = old.moved(before, state, units)
            if new != old:
                self._positions[name] = new
                self.tables["positions"][name, sequence] = {
                    "spent": list(new.spent), "reserved": list(new.reserved),
                }  # fmt: skip

    def _count(self, _sequence: int, body: Mapping[str, Any]) -> None:
        self.tables["counters"][body["row"], body["epoch"], body["steps"]] = {}

    def _policy(self, sequence: int, body: Mapping[str, Any]) -> None:
        self.tables["policies"][sequence,] = dict(body)


def verify(connection: sa.Connection) -> Head:
    """Replay the journal and compare; returns its head.

    Raises:
        LedgerError: Naming the first link that is wrong, or the first row that differs.
    """
    replay, head = _Replay(), Head(-1, GENESIS)
    for link in journal.links(connection):
        number = link["sequence"]
        if number != head.sequence + 1 or link["previous"] != head.hash:
            raise LedgerError(f"journal link {number} does not follow link {head.sequence}.")
        if digest(link) != link["hash"]:
            raise LedgerError(f"journal link {number} was changed: its hash differs.")
        try:
            replay.add(link)
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError(
                f"journal link {number} is none that a ledger writes: {error}."
            ) from None
        head = Head(number, link["hash"])
    for name, told in replay.tables.items():
        _compare(connection, schema.metadata.tables[name], told)
    return head


def _compare(connection: sa.Connection, table: sa.Table, told: Rows) -> None:
    keys = [column.name for column in table.primary_key]
    missing = dict(told)
    for row in connection.execute(sa.select(table)).mappings():
        key = tuple(row[k] for k in keys)
        shown = ", ".join(f"{k} {row[k]}" for k in keys)
        if key not in missing:
            raise LedgerError(
                f"table {table.name} holds {shown}, of which the journal knows nothing."
            )
        expected = missing.pop(key)
        for column, value in expected.items():
            if row[column] != value:
                raise LedgerError(
                    f"table {table.name}, {shown}: {column} is {row[column]!r}, the journal says "
                    f"{value!r}."
                )
    for key in missing:
        shown = ", ".join(f"{k} {v}" for k, v in zip(keys, key, strict=True))
        raise LedgerError(f"table {table.name} lacks {shown}, of which the journal tells.")
