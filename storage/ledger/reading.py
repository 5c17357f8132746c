"""What can be seen of a ledger, and what deadlines decide before it is shown.

The part of `storage.ledger.ledger.Ledger` that asks for no lock unless a deadline has passed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from storage.errors import LedgerError
from storage.ledger import journal, policies, queries, schema, standing, verification, writes
from storage.ledger.database import Database
from storage.ledger.records import (
    RELEASED,
    RESERVED,
    SPENT,
    STARTED,
    Balance,
    Block,
    Entry,
    Head,
    Policy,
)
from storage.ledger.standing import Standing

_CLOCKS_DIFFER = timedelta(hours=1)
_SWEEP_EVERY = _CLOCKS_DIFFER + timedelta(minutes=30)


class Reading:
    """The ledger's reads, and the transitions that deadlines append."""

    def __init__(
        self, url: str, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.url = url
        self._now = now
        self._database = Database(url)
        self.id = str(self._database.read(_identity) or self._database.write(self._found))

    def _found(self, connection: sa.Connection, _again: bool) -> str:  # noqa: FBT001 - see Database
        standing = _identity(connection)
        if standing is None:
            standing = secrets.token_hex(16)
            writes.ledger(connection, standing, now=self._now())
        return standing

    def blocks(self, dataset: str | None = None) -> list[Block]:
        """The blocks of a dataset, or all, as they were opened and in that order."""
        return self._database.read(lambda c: queries.blocks_of(c, dataset))

    def policies(self, dataset: str | None = None) -> list[Policy]:
        """Retirements and raised caps, by block and oldest first."""

        def work(connection: sa.Connection) -> list[Policy]:
            names = [b.name for b in queries.blocks_of(connection, dataset)]
            found = policies.of_blocks(connection, names)
            return [p for name in names for p in found.get(name, [])]

        return self._database.read(work)

    def expire(self) -> None:
        """Append what deadlines decide: RESERVED → RELEASED, STARTED → SPENT."""
        if self._database.read(lambda c: bool(queries.overdue(c, self._now())[1])):
            self._database.write(lambda c, _again: self._sweep(c))

    def balances(self, dataset: str | None = None) -> list[Balance]:
        """Every block's spent and reserved units, and its caps as they stand now."""
        self.expire()
        return self._database.read(lambda c: queries.balances_of(c, dataset))

    def history(self, dataset: str | None = None) -> list[Entry]:
        """Every reservation, oldest first, with its present state."""
        self.expire()
        return self._database.read(lambda c: queries.entries(c, dataset))

    def head(self) -> Head:
        """The journal's newest link; on the disk when this returns, so it may be kept elsewhere."""
        found = self._database.read(journal.head)
        self._database.flush()
        return found

    def contains(self, head: Head) -> bool:
        """Whether the journal holds that link: a ledger that lacks it is older, new or another one."""
        return self._database.read(lambda c: journal.contains(c, head))

    def journal(self) -> Iterator[dict[str, Any]]:
        """Every link in order, as of now."""
        yield from self._database.read(lambda c: list(journal.links(c)))

    def verify(self) -> Head:
        """Show that chain, tables and totals tell the same; returns the head that was reached.

        Raises:
            LedgerError: Naming the link, row or block that differs.
        """
        return self._database.read(verification.verify)

    def _balance(self, connection: sa.Connection, name: str) -> Balance:
        found = queries.balances_by_name(connection, [name])
        if name not in found:
            raise LedgerError(
                f"block {name} is not open in this ledger; see `dpmix ledger status`."
            )
        return found[name]

    def _sweep(self, connection: sa.Connection) -> None:
        now = self._now()
        until, rows = queries.overdue(connection, now)
        for row in rows:
            last = standing.of_row(connection, row)
            self._append(connection, last, _ended(last.state), note="expired")
        if now - until > _SWEEP_EVERY:
            # A clock that goes slower may still write deadlines before now.
            schema.insert(connection, schema.sweeps, [{"until": now - _CLOCKS_DIFFER}])

    def _after_its_deadline(self, connection: sa.Connection, row: int) -> Standing:
        """Where a row stands; its own deadline is compared right before it is used."""
        last = standing.of_row(connection, row)
        if last.state in (RESERVED, STARTED) and last.deadline <= self._now():
            self._append(connection, last, _ended(last.state), note="expired")
            return standing.of_row(connection, row)
        return last

    def _append(
        self, connection: sa.Connection, last: Standing, state: str, *, note: str, head: str = ""
    ) -> None:
        """Append `state` to `last`, whose epoch and deadline stay."""
        writes.transition(
            connection,
            last,
            state,
            epoch=last.epoch,
            deadline=last.deadline,
            at=self._now(),
            note=note,
            head=head,
        )


def _identity(connection: sa.Connection) -> str | None:
    return connection.execute(sa.select(schema.ledger.c.id)).scalar()


def _ended(state: str) -> str:
    return RELEASED if state == RESERVED else SPENT
