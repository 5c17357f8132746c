"""How a block's filter decides: the only arithmetic the ledger does, on whole units.

What the components mean, and why the rule is a proof, stands in `privacy.accounting`: ``renyi`` admits
while *some* order stays within its cap, ``agdp`` while *every* component (μ², δ₀) does.
"""

from __future__ import annotations

from collections.abc import Sequence

FILTERS = ("agdp", "renyi")
AGDP_COMPONENTS = 2


def components(filter_name: str, orders: Sequence[int]) -> int:
    """How many units a cost or a cap of this filter has."""
    return AGDP_COMPONENTS if filter_name == "agdp" else len(orders)


def admits(filter_name: str, total: Sequence[int], caps: Sequence[int]) -> bool:
    """Whether a block with these caps may stand at `total`."""
    fits = [t <= cap for t, cap in zip(total, caps, strict=True)]
    return all(fits) if filter_name == "agdp" else any(fits)


def least_cost(filter_name: str, costs: Sequence[int]) -> bool:
    """Whether every component that a charge must have is at least one unit, and none is negative."""
    if filter_name == "agdp":
        return costs[0] >= 1 and costs[1] >= 0
    return min(costs) >= 1
