"""What is decided about blocks outside of any run: opening, retiring, raising a cap, reconciliation.

Terms are frozen when a block is opened. Whatever changes them afterwards is a policy: appended, told by
the journal, and disclosed by every later balance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from storage.errors import LedgerError, describe
from storage.ledger import checks, policies, queries, writes
from storage.ledger.reading import Reading
from storage.ledger.records import RAISE_CAP, RETIRE, SPENT, Block, Charge, Policy


class Deciding(Reading):
    """The ledger's writes that belong to no run's own protocol."""

    def open_block(self, block: Block) -> None:
        """Open a block for good; opening it again with the same terms does nothing.

        Raises:
            LedgerError: It is open with other terms, or a term is out of range.
        """
        checks.check_block(block)

        def work(connection: sa.Connection, _again: bool) -> None:  # noqa: FBT001
            known = queries.blocks_by_name(connection, [block.name])
            if not known:
                writes.block(connection, block, now=self._now())
            elif known[block.name] != block:
                raise LedgerError(
                    f"block {block.name} is open with other terms, and terms are frozen: "
                    f"{describe(_terms(known[block.name]))}. Use those, or name a new block."
                )

        self._database.write(work)

    def retire(self, block: str, *, note: str = "retired") -> None:
        """Let a block admit nothing more, for good; retiring it again does nothing.

        Raises:
            LedgerError: It is not open.
        """

        def work(connection: sa.Connection, _again: bool) -> None:  # noqa: FBT001
            if not self._balance(connection, block).retired:
                policy = Policy(block=block, action=RETIRE, note=note)
                policies.append(connection, policy, day=self._now().date())

        self._database.write(work)

    def raise_cap(
        self,
        block: str,
        *,
        epsilon_cap: float,
        caps: Sequence[int],
        statement: Mapping[str, Any],
        public_key: str,
        signature: str,
    ) -> None:
        """Raise a block's cap by a signed statement, which every later report discloses.

        Args:
            block: Its name.
            epsilon_cap: The new ε_total, above the standing one.
            caps: The same in units, none below the standing one.
            statement: {"ledger", "block", "from", "to", "reason", "day"}.
            public_key: Hex Ed25519 key of whoever decided.
            signature: Base64, over the canonical form of `statement`.

        Raises:
            LedgerError: The block is not open or has retired, the cap is not higher, or the statement is
                not signed by that key or speaks of something else.
        """

        def work(connection: sa.Connection, again: bool) -> None:  # noqa: FBT001
            balance = self._balance(connection, block)
            if again and balance.raised and balance.raised[-1].signature == signature:
                return
            if balance.retired:
                raise LedgerError(f"block {block} has retired for good; its cap cannot be raised.")
            policy = Policy(
                block=block,
                action=RAISE_CAP,
                epsilon_cap=float(epsilon_cap),
                caps=tuple(caps),
                statement=dict(statement),
                public_key=public_key,
                signature=signature,
                note=str(statement.get("reason", "")),
            )
            if statement.get("ledger") != self.id:
                raise LedgerError(
                    f"the statement must name ledger {self.id}; got {statement.get('ledger')!r}. Sign "
                    "one for this ledger."
                )
            checks.check_raise(policy, balance.block)
            policies.append(connection, policy, day=self._now().date())

        self._database.write(work)

    def record_spent(
        self, charges: Sequence[Charge], *, flow_run_id: str, run_count: int, note: str
    ) -> list[int]:
        """Book as SPENT what happened under a ledger that was lost, over the cap if need be.

        For the reconciliation of a restored backup with the evidence: no grant comes of it. A key that
        is there already is left as it is, and its rows are returned.
        """
        checks.check_attempt(flow_run_id, run_count)

        def work(connection: sa.Connection, _again: bool) -> list[int]:  # noqa: FBT001
            if booked := queries.attempt(connection, flow_run_id, run_count):
                return [r.row for r in booked]
            names = sorted({name for charge in charges for name in charge.costs})
            balances = queries.balances_by_name(connection, names)
            known = {name: balance.block for name, balance in balances.items()}
            for charge in charges:
                checks.check_charge(charge, known)
            return writes.reservations(
                connection,
                charges,
                flow_run_id=flow_run_id,
                run_count=run_count,
                positions=queries.positions(balances),
                now=self._now(),
                ttl=timedelta(hours=1),
                state=SPENT,
                note=note,
            )

        return self._database.write(work)


def _terms(block: Block) -> dict[str, object]:
    return {
        "unit": block.unit,
        "epsilon_cap": block.epsilon_cap,
        "delta": block.delta,
        "declared_units": block.declared_units,
        "filter": block.filter,
    }
