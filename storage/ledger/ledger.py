"""The budget ledger: reserve before read, hard caps on blocks, single-use starts, fencing.

What is guaranteed. `reserve` locks, checks every block and writes all its rows in one transaction, or
raises `BudgetRefused` and writes nothing. `start` succeeds once per reservation, before the first
private read, and hands out the `ReadGrant` without which `storage.private` opens nothing. From then on
the full charge stays, whatever happens: a crash, a kill or a lost heartbeat only lets the row's
deadline pass, which turns STARTED into SPENT. Every counter write and the commit compare the epoch;
an older one is fenced out. Rows are inserted, never changed (triggers enforce it), and each is told
again by the journal, one hash chain whose head can be kept elsewhere. Sums are integers; the arithmetic
that turns ε into units lives in `privacy.accounting`. A block's terms are frozen when it is opened: it
can retire, for good, and its cap can be raised by a signed statement that every later report discloses.

    RESERVED → STARTED → COMMITTED        RESERVED → RELEASED        STARTED → SPENT

Every call is durable when it returns. A connection that is lost in the middle is made again, and the
call finds out whether its first try had arrived: nothing is charged twice.

When it stops holding: whoever can write to the database file can write a history that never was; the
signed evidence (`storage.evidence`) and the heads kept elsewhere are what shows it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import sqlalchemy as sa

from storage.errors import (
    BlockRetired,
    BudgetRefused,
    FencedOut,
    GrantRefused,
    LedgerError,
    ReservationExpired,
)
from storage.ledger import checks, queries, rules, standing, writes
from storage.ledger.deciding import Deciding
from storage.ledger.records import (
    COMMITTED,
    RELEASED,
    RESERVED,
    SPENT,
    STARTED,
    Charge,
    ReadGrant,
)
from storage.ledger.standing import Standing
from storage.ledger.totals import Position


class Ledger(Deciding):
    """A ledger at a SQLAlchemy URL; made and migrated when it is first opened."""

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
            BlockRetired: A block admits nothing more.
            LedgerError: Unknown block, wrong costs, or a key used before.
        """
        checks.check_attempt(flow_run_id, run_count)
        checks.check_lifetime(ttl)
        if not charges:
            raise LedgerError(
                "charges must name at least one charge; got none. Plan the run again."
            )

        def work(connection: sa.Connection, again: bool) -> list[int]:  # noqa: FBT001
            booked = queries.attempt(connection, flow_run_id, run_count)
            if booked:
                # The answer to an earlier try was lost on its way: what it booked is the answer.
                if again and [r.purpose for r in booked] == [c.purpose for c in charges]:
                    return [r.row for r in booked]
                raise LedgerError(
                    f"attempt ({flow_run_id}, {run_count}) has reserved already; a reservation is "
                    "used once. A retry reserves under a new run_count."
                )
            self._sweep(connection)
            positions = self._admit(connection, charges)
            return writes.reservations(
                connection,
                charges,
                flow_run_id=flow_run_id,
                run_count=run_count,
                positions=positions,
                now=self._now(),
                ttl=ttl,
            )

        return self._database.write(work)

    def _admit(self, connection: sa.Connection, charges: Sequence[Charge]) -> dict[str, Position]:
        """Raise unless every block that is named can pay for all of it; returns their totals."""
        purposes = [c.purpose for c in charges]
        if len(set(purposes)) != len(purposes):
            raise LedgerError(f"purposes of one run must differ; got {purposes}. Plan it again.")
        names = sorted({name for charge in charges for name in charge.costs})
        balances = queries.balances_by_name(connection, names)
        known = {name: balance.block for name, balance in balances.items()}
        for charge in charges:
            checks.check_charge(charge, known)
        for block, balance in balances.items():
            if balance.retired:
                raise BlockRetired(block)
            caps, kind = balance.block.caps, balance.block.filter
            asked = [0] * len(caps)
            for charge in charges:
                for k, units in enumerate(charge.costs.get(block, ())):
                    asked[k] += units
            used = zip(balance.spent, balance.reserved, asked, strict=True)
            total = [s + r + a for s, r, a in used]
            if any(asked) and not rules.admits(kind, total, caps):
                raise BudgetRefused(
                    block=block, spent=balance.spent, reserved=balance.reserved, asked=asked
                )
        return queries.positions(balances)

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
        checks.check_lifetime(ttl)
        token = secrets.token_hex(32)

        def work(connection: sa.Connection, again: bool) -> ReadGrant | Standing:  # noqa: FBT001
            last = self._after_its_deadline(connection, row)
            if last.state == RESERVED:
                if last.kind != kind:
                    raise LedgerError(
                        f"reservation {row} is {last.kind}, and a {kind} read was asked for: what pays "
                        f"nothing may publish nothing. Reserve a {kind} row."
                    )
                return self._hand_out(connection, last, ttl, token)
            if again and last.token_hash == writes.hash_token(token):
                return _granted(last, token)
            return last

        found = self._database.write(work)
        if isinstance(found, ReadGrant):
            return found
        # Raised outside the transaction: what the deadline decided has been committed.
        if found.state == RELEASED and found.note == "expired":
            raise ReservationExpired(
                f"reservation {row} expired at {found.at:%Y-%m-%d %H:%M:%S} UTC before its "
                "run started; nothing was read or charged. Start the run again."
            )
        raise LedgerError(
            f"reservation {row} is {found.state}: it can be started once, while RESERVED. "
            "Reserve again."
        )

    def resume(self, row: int, *, ttl: timedelta = timedelta(hours=24)) -> ReadGrant:
        """Take a STARTED row over under the next epoch; the former holder is fenced out."""
        checks.check_lifetime(ttl)
        token = secrets.token_hex(32)

        def work(connection: sa.Connection, again: bool) -> ReadGrant | Standing:  # noqa: FBT001
            last = self._after_its_deadline(connection, row)
            if again and last.token_hash == writes.hash_token(token):
                return _granted(last, token)
            if last.state == STARTED:
                return self._hand_out(connection, last, ttl, token, note="resumed")
            return last

        found = self._database.write(work)
        if isinstance(found, ReadGrant):
            return found
        raise LedgerError(
            f"reservation {row} is {found.state}; only STARTED can be resumed. Reserve again."
        )

    def check_grant(self, grant: ReadGrant, block: str) -> None:
        """Raise unless `grant` is the current holder of a started row that names `block`.

        Raises:
            GrantRefused: The block is not the row's, or the token is not the row's.
            FencedOut: A later epoch has taken over, or the row has ended.
        """

        def work(connection: sa.Connection) -> None:
            if block not in self._require_current(connection, grant).costs:
                raise GrantRefused(
                    f"ledger row {grant.row} gives no access to block {block}. Reserve it first."
                )

        self._database.read(work)

    def count(self, grant: ReadGrant, steps: int) -> None:
        """Write that the first `steps` steps are about to have been taken. Call before taking them."""

        def work(connection: sa.Connection, again: bool) -> None:  # noqa: FBT001
            last = self._require_current(connection, grant)
            counted, paid = last.counted, last.paid
            if again and counted == steps:
                return
            if isinstance(steps, bool) or not isinstance(steps, int) or not counted < steps <= paid:
                raise LedgerError(
                    f"steps of ledger row {grant.row} must be a whole number above {counted}, which is "
                    f"counted, and at most {paid}, which is paid for; got {steps}. Steps that were "
                    "counted are never taken again."
                )
            writes.count(connection, last, steps, at=self._now())

        self._database.write(work)

    def commit(self, grant: ReadGrant, *, head: str = "", note: str = "") -> None:
        """Settle a started row at its full charge.

        Args:
            grant: Its current holder's.
            head: Hash of the evidence entry that settles it, anchored here.
            note: Anything else.
        """

        def work(connection: sa.Connection, again: bool) -> None:  # noqa: FBT001
            last = standing.of_row(connection, grant.row)
            if again and (last.state, last.epoch, last.head) == (COMMITTED, grant.epoch, head):
                return
            self._check_current(last, grant)
            self._append(connection, last, COMMITTED, note=note, head=head)

        self._database.write(work)

    def release(self, row: int, *, note: str = "released") -> None:
        """Give back a reservation that was never started.

        Raises:
            LedgerError: It is not RESERVED: from STARTED on there is no refund.
        """
        self._end(row, RESERVED, RELEASED, note, "From STARTED on there is no refund.")

    def spend(self, row: int, *, note: str) -> None:
        """End a started row whose run is gone; its full charge stays.

        Raises:
            LedgerError: It is not STARTED.
        """
        self._end(row, STARTED, SPENT, note, "A reservation that never started is released.")

    def _end(self, row: int, before: str, after: str, note: str, why: str) -> None:
        def work(connection: sa.Connection, again: bool) -> None:  # noqa: FBT001
            last = standing.of_row(connection, row)
            if again and (last.state, last.note) == (after, note):
                return
            if last.state != before:
                verb = "released" if after == RELEASED else "spent"
                raise LedgerError(
                    f"reservation {row} is {last.state}: only {before} can be {verb}. {why}"
                )
            self._append(connection, last, after, note=note)

        self._database.write(work)

    def _require_current(self, connection: sa.Connection, grant: ReadGrant) -> Standing:
        last = standing.of_row(connection, grant.row)
        self._check_current(last, grant)
        return last

    def _check_current(self, last: Standing, grant: ReadGrant) -> None:
        if last.state == STARTED and last.deadline <= self._now():
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

    def _hand_out(
        self,
        connection: sa.Connection,
        last: Standing,
        ttl: timedelta,
        token: str,
        *,
        note: str = "",
    ) -> ReadGrant | Standing:
        """Append STARTED under the next epoch, with a token that only the returned grant holds.

        A deadline that passed in this very moment ends the row instead; its transition is returned.
        """
        now = self._now()
        if last.deadline <= now:
            return self._after_its_deadline(connection, last.row)
        writes.transition(
            connection,
            last,
            STARTED,
            epoch=last.epoch + 1,
            deadline=now + ttl,
            at=now,
            token=token,
            note=note,
        )
        return ReadGrant(last.row, last.epoch + 1, last.kind, tuple(last.costs), token)


def _granted(last: Standing, token: str) -> ReadGrant:
    return ReadGrant(last.row, last.epoch, last.kind, tuple(last.costs), token)
