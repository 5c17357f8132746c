"""The budget ledger: reserve before read, hard caps on blocks, single-use starts, fencing.

What is guaranteed. `reserve` locks, checks every block and writes all its rows in one transaction, or
raises `BudgetRefused` and writes nothing. `start` succeeds once per reservation, before the first
private read, and hands out the `ReadGrant` without which `storage.private` opens nothing. From then on
the full charge stays, whatever happens: a crash, a kill or a lost heartbeat only lets the row's
deadline pass, which turns STARTED into SPENT. Every counter write and the commit compare the epoch;
an older one is fenced out. Rows are inserted, never changed (triggers enforce it); balances and states
are read off them. Sums are integers; the arithmetic that turns ε into units lives in
`privacy.accounting`, and a block freezes its caps when it is opened.

    RESERVED → STARTED → COMMITTED        RESERVED → RELEASED        STARTED → SPENT

When it stops holding: whoever can write to the database file can write a history that never was; the
signed evidence (`storage.evidence`) is what shows it. On SQLite, transactions begin IMMEDIATE; on
PostgreSQL they take one advisory lock.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import sqlalchemy as sa

from storage.errors import (
    BudgetRefused,
    FencedOut,
    GrantRefused,
    LedgerError,
    ReservationExpired,
    describe,
)
from storage.ledger import checks, queries, schema, writes
from storage.ledger.database import Database
from storage.ledger.records import (
    COMMITTED,
    RELEASED,
    RESERVED,
    SPENT,
    STARTED,
    Balance,
    Block,
    Charge,
    Entry,
    ReadGrant,
)


class Ledger:
    """A ledger at a SQLAlchemy URL; made and migrated when it is first opened."""

    def __init__(
        self, url: str, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.url = url
        self._now = now
        self._database = Database(url)
        with self._transaction() as connection:
            found = connection.execute(sa.select(schema.ledger.c.id)).scalar()
            if found is None:
                found = secrets.token_hex(16)
                connection.execute(schema.ledger.insert().values(id=found, created_at=self._now()))
        self.id = str(found)

    def _transaction(self) -> contextlib.AbstractContextManager[sa.Connection]:
        return self._database.transaction()

    def open_block(self, block: Block) -> None:
        """Open a block for good; opening it again with the same terms does nothing.

        Raises:
            LedgerError: It is open with other terms, or a term is out of range.
        """
        checks.check_block(block)
        with self._transaction() as connection:
            known = queries.blocks_by_name(connection, [block.name])
            if known:
                if known[block.name] != block:
                    raise LedgerError(
                        f"block {block.name} is open with other terms, and terms are frozen: "
                        f"{describe(_terms(known[block.name]))}. Use those, or name a new block."
                    )
                return
            values = {**block.__dict__, "orders": list(block.orders), "caps": list(block.caps)}
            connection.execute(schema.blocks.insert().values(opened_at=self._now(), **values))

    def blocks(self, dataset: str) -> list[Block]:
        """The blocks of a dataset, in the order in which they were opened."""
        with self._transaction() as connection:
            return queries.blocks_of(connection, dataset)

    def reserve(
        self,
        charges: Sequence[Charge],
        *,
        flow_run_id: str,
        run_count: int,
        ttl: timedelta = timedelta(hours=24),
    ) -> list[int]:
        """Reserve every charge, or none.

        Args:
            charges: What the run asks for, together.
            flow_run_id: With `run_count`, the idempotence key: a retried attempt asks under a new one.
            run_count: The attempt.
            ttl: How long the reservation waits for its start.

        Returns:
            The ledger rows, in the order of `charges`.

        Raises:
            BudgetRefused: A block would exceed its cap.
            LedgerError: Unknown block, wrong costs, or a key used before.
        """
        checks.check_attempt(flow_run_id, run_count)
        if not charges:
            raise LedgerError(
                "charges must name at least one charge; got none. Plan the run again."
            )
        with self._transaction() as connection:
            self._expire(connection)
            if queries.has_reserved(connection, flow_run_id, run_count):
                raise LedgerError(
                    f"attempt ({flow_run_id}, {run_count}) has reserved already; a reservation is "
                    "used once. A retry reserves under a new run_count."
                )
            names = sorted({name for charge in charges for name in charge.costs})
            known = queries.blocks_by_name(connection, names)
            for charge in charges:
                checks.check_charge(charge, known)
            for name in names:
                balance = queries.balance(connection, known[name])
                asked = queries.add(
                    [c.costs[name] for c in charges if name in c.costs], len(known[name].orders)
                )
                used = zip(balance.spent, balance.reserved, asked, known[name].caps, strict=True)
                if any(asked) and not any(s + r + a <= cap for s, r, a, cap in used):
                    raise BudgetRefused(
                        block=name, spent=balance.spent, reserved=balance.reserved, asked=asked
                    )
            now = self._now()
            try:
                return [
                    writes.reservation(
                        connection,
                        charge,
                        flow_run_id=flow_run_id,
                        run_count=run_count,
                        now=now,
                        ttl=ttl,
                    )
                    for charge in charges
                ]
            except sa.exc.IntegrityError:
                raise LedgerError(
                    f"attempt ({flow_run_id}, {run_count}) has reserved already; a reservation is "
                    "used once. A retry reserves under a new run_count."
                ) from None

    def start(
        self,
        row: int,
        *,
        kind: Literal["charged", "restricted"] = "charged",
        ttl: timedelta = timedelta(hours=24),
    ) -> ReadGrant:
        """Start a reservation: charge it for good and hand out its read grant. Single use.

        Args:
            row: The reservation.
            kind: What the caller will do with the rows: release something (``charged``), or keep all
                of it in the trust zone (``restricted``).
            ttl: How long the started row may live.

        Raises:
            ReservationExpired: It waited too long.
            LedgerError: It was started, released or committed before, is unknown, or is of another
                kind: what pays nothing may publish nothing.
        """
        with self._transaction() as connection:
            last = self._after_deadlines(connection, row)
            if last.state == RESERVED:
                paid = queries.kind_of(connection, row)
                if paid != kind:
                    raise LedgerError(
                        f"reservation {row} is {paid}, and a {kind} read was asked for: what pays "
                        f"nothing may publish nothing. Reserve a {kind} row."
                    )
                return self._hand_out(connection, last, ttl)
        # Raised outside the transaction: what the deadlines decided has been committed.
        if last.state == RELEASED and last.note == "expired":
            raise ReservationExpired(
                f"reservation {row} expired at {queries.utc(last.at):%Y-%m-%d %H:%M:%S} UTC before its "
                "run started; nothing was read or charged. Start the run again."
            )
        raise LedgerError(
            f"reservation {row} is {last.state}: it can be started once, while RESERVED. "
            "Reserve again."
        )

    def resume(self, row: int, *, ttl: timedelta = timedelta(hours=24)) -> ReadGrant:
        """Take a STARTED row over under the next epoch; the former holder is fenced out."""
        with self._transaction() as connection:
            last = self._after_deadlines(connection, row)
            if last.state == STARTED:
                return self._hand_out(connection, last, ttl, note="resumed")
        raise LedgerError(
            f"reservation {row} is {last.state}; only STARTED can be resumed. Reserve again."
        )

    def check_grant(self, grant: ReadGrant, block: str) -> None:
        """Raise unless `grant` is the current holder of a started row that names `block`.

        Raises:
            GrantRefused: The block is not the row's, or the token is not the row's.
            FencedOut: A later epoch has taken over, or the row has ended.
        """
        with self._transaction() as connection:
            self._require_current(connection, grant)
            if block not in queries.debited_blocks(connection, grant.row):
                raise GrantRefused(
                    f"ledger row {grant.row} gives no access to block {block}. Reserve it first."
                )

    def count(self, grant: ReadGrant, steps: int) -> None:
        """Write that the first `steps` steps are about to have been taken. Call before taking them."""
        with self._transaction() as connection:
            self._require_current(connection, grant)
            counted, paid = queries.steps_of(connection, grant.row)
            if isinstance(steps, bool) or not isinstance(steps, int) or not counted < steps <= paid:
                raise LedgerError(
                    f"steps of ledger row {grant.row} must be a whole number above {counted}, which is "
                    f"counted, and at most {paid}, which is paid for; got {steps}. Steps that were "
                    "counted are never taken again."
                )
            connection.execute(
                schema.counters.insert().values(
                    row=grant.row, epoch=grant.epoch, steps=steps, at=self._now()
                )
            )

    def commit(self, grant: ReadGrant, *, note: str = "") -> None:
        """Settle a started row at its full charge."""
        with self._transaction() as connection:
            last = self._require_current(connection, grant)
            self._append(connection, last, COMMITTED, note=note)

    def release(self, row: int, *, note: str = "released") -> None:
        """Give back a reservation that was never started.

        Raises:
            LedgerError: It is not RESERVED: from STARTED on there is no refund.
        """
        with self._transaction() as connection:
            last = queries.last_transition(connection, row)
            if last.state != RESERVED:
                raise LedgerError(
                    f"reservation {row} is {last.state}: only RESERVED can be released. "
                    "From STARTED on there is no refund."
                )
            self._append(connection, last, RELEASED, note=note)

    def expire(self) -> None:
        """Append what deadlines decide: RESERVED → RELEASED, STARTED → SPENT."""
        with self._transaction() as connection:
            self._expire(connection)

    def balances(self, dataset: str | None = None) -> list[Balance]:
        """Every block's spent and reserved units, derived from history."""
        with self._transaction() as connection:
            self._expire(connection)
            return [queries.balance(connection, b) for b in queries.blocks_of(connection, dataset)]

    def history(self, dataset: str | None = None) -> list[Entry]:
        """Every reservation, oldest first, with its present state."""
        with self._transaction() as connection:
            self._expire(connection)
            return queries.entries(connection, dataset)

    def _expire(self, connection: sa.Connection) -> None:
        for last in queries.open_rows(connection):
            self._end_if_over(connection, last)

    def _end_if_over(self, connection: sa.Connection, last: Any) -> None:
        if last.state in (RESERVED, STARTED) and queries.utc(last.deadline) <= self._now():
            ended = RELEASED if last.state == RESERVED else SPENT
            self._append(connection, last, ended, note="expired")

    def _after_deadlines(self, connection: sa.Connection, row: int) -> Any:
        """The row's newest transition; its own deadline is compared last, right before it is used."""
        self._expire(connection)
        self._end_if_over(connection, queries.last_transition(connection, row))
        return queries.last_transition(connection, row)

    def _append(self, connection: sa.Connection, last: Any, state: str, *, note: str) -> None:
        """Append `state` to `last`, whose epoch and deadline stay."""
        writes.transition(
            connection,
            last.row,
            last.sequence + 1,
            state,
            epoch=last.epoch,
            deadline=queries.utc(last.deadline),
            at=self._now(),
            note=note,
        )

    def _require_current(self, connection: sa.Connection, grant: ReadGrant) -> Any:
        last = queries.last_transition(connection, grant.row)
        if last.state == STARTED and queries.utc(last.deadline) <= self._now():
            raise FencedOut(
                f"ledger row {grant.row} passed its deadline {last.deadline:%Y-%m-%d %H:%M:%S} UTC and "
                "counts as SPENT. Its results are not published; reserve again."
            )
        if last.state != STARTED or last.epoch != grant.epoch:
            raise FencedOut(
                f"ledger row {grant.row} is {last.state} in epoch {last.epoch}; this process holds "
                f"epoch {grant.epoch}. Its results are not published."
            )
        if not secrets.compare_digest(last.token_hash, writes.hash_token(grant.token)):
            raise GrantRefused(f"the grant for ledger row {grant.row} is not the one handed out.")
        return last

    def _hand_out(
        self, connection: sa.Connection, last: Any, ttl: timedelta, *, note: str = ""
    ) -> ReadGrant:
        """Append STARTED under the next epoch, with a token that only the returned grant holds."""
        now, epoch, token = self._now(), last.epoch + 1, secrets.token_hex(32)
        writes.transition(
            connection,
            last.row,
            last.sequence + 1,
            STARTED,
            epoch=epoch,
            deadline=now + ttl,
            at=now,
            token=token,
            note=note,
        )
        kind = queries.kind_of(connection, last.row)
        names = queries.debited_blocks(connection, last.row)
        return ReadGrant(row=last.row, epoch=epoch, kind=kind, blocks=names, token=token)


def _terms(block: Block) -> dict[str, object]:
    return {
        "unit": block.unit,
        "epsilon_cap": block.epsilon_cap,
        "delta": block.delta,
        "declared_units": block.declared_units,
        "filter": block.filter,
    }
