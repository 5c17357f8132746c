"""How long a block lasts: runs left at a given cost, what binds, and the day a schedule runs dry.

Whole units, as the ledger compares them: a run that is counted here would be admitted, if nothing else
is booked in between. Declared and ledger figures only.
"""

from __future__ import annotations

import calendar
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from storage.ledger import Balance, Block
from tasks.balances import used_of


@dataclass(frozen=True)
class Outlook:
    """What is left of one block.

    Attributes:
        runs: Whole runs that still fit; None if the run costs the block nothing.
        binds: The component that ends it: ``μ²`` or ``δ₀``, or a Rényi order.
    """

    runs: int | None
    binds: str


def outlook(balance: Balance, cost: Sequence[int]) -> Outlook:
    """Runs left of a block at `cost` each.

    Args:
        balance: The block's position.
        cost: Units of one run, by component, at least 0.

    Returns:
        For ``agdp`` the component that is used up first; for ``renyi`` the order that lasts longest.
    """
    if balance.retired:
        return Outlook(0, "retired")
    block = balance.block
    left = [
        max(0, cap - used) // asked if asked else None
        for cap, used, asked in zip(block.caps, used_of(balance), cost, strict=True)
    ]
    if block.filter == "renyi":
        if None in left:
            return Outlook(None, "")
        runs = [n for n in left if n is not None]
        best = max(range(len(runs)), key=runs.__getitem__)
        return Outlook(runs[best], _component(block, best))
    bounded = [(n, k) for k, n in enumerate(left) if n is not None]
    if not bounded:
        return Outlook(None, "")
    fewest, component = min(bounded)
    return Outlook(fewest, _component(block, component))


def _component(block: Block, index: int) -> str:
    return f"order {block.orders[index]}" if block.filter == "renyi" else ("μ²", "δ₀")[index]


def runs_dry(start: date, every: str, runs: int) -> date:
    """The day of the first run that no longer fits, if the first of all is on `start`.

    Args:
        start: Day of the next run.
        every: ``month``, ``week``, or a number of days.
        runs: Runs that still fit.

    Raises:
        ValueError: `every` is none of these.
    """
    if every == "month":
        months = start.month - 1 + runs
        year, month = start.year + months // 12, months % 12 + 1
        # The 31st of a shorter month is its last day.
        if year > date.max.year:
            return date.max
        return date(year, month, min(start.day, calendar.monthrange(year, month)[1]))
    days = 7 if every == "week" else _days(every)
    try:
        return start + timedelta(days=days * runs)
    except OverflowError:
        return date.max


def _days(every: str) -> int:
    text = every.removeprefix("days").removesuffix("days").strip()
    if not text.isdecimal() or not 1 <= int(text) <= 3650:
        raise ValueError(
            f"--every must be month, week or a number of days up to 3650; got {every!r}."
        )
    return int(text)
