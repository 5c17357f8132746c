"""Alarms: a Prefect event when a reservation takes a block past 50, 80 or 95 % of its cap.

A block is as full as the scarcer of its filter's two budgets, ε and (for `agdp`) δ₀. Declared and ledger
figures only. No threshold is passed over in silence; two runs that reserve at the same moment may both
tell of it. An alarm that cannot be sent never fails the run: the ledger is what gates, and
`dpmix ledger status --check` says the same by its exit code.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from prefect.events import emit_event

from storage.ledger import Balance
from tasks.balances import THRESHOLDS, gate_of, passed, position, used_of


def crossed(before: Balance, after: Balance) -> list[int]:
    """The thresholds, in percent, that lie above `before` and not above `after`."""
    low, high = (passed(gate_of(b.block).share(used_of(b))) for b in (before, after))
    return [t for t in THRESHOLDS if low < t <= high]


def sound(before: Sequence[Balance], after: Sequence[Balance]) -> None:
    """Emit what was crossed between two positions of the same blocks."""
    was = {b.block.name: b for b in before}
    for balance in after:
        name = balance.block.name
        for threshold in crossed(was[name], balance) if name in was else ():
            _emit(threshold, name, position(balance))


def _emit(threshold: int, block: str, payload: Mapping[str, Any]) -> None:
    try:
        emit_event(
            f"dpmix.budget.{threshold}",
            resource={"prefect.resource.id": f"dpmix.block.{block}"},
            payload={k: payload[k] for k in ("cap", "spent", "reserved", "remaining", "shows")},
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, the run goes on
        logging.getLogger(__name__).warning(
            "block %s has passed %s %% of its cap; the event could not be sent: %s",
            block, threshold, type(error).__name__,
        )  # fmt: skip
