"""The filters by name: what a block freezes when it is opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dp_accounting import DpEvent

from privacy.accounting.gaussian import GaussianFilter
from privacy.accounting.renyi import ORDERS, RenyiFilter
from privacy.errors import PlanError

FILTERS = ("agdp", "renyi")


class Filter(Protocol):
    """The arithmetic of a gate at one (ε, δ), in whole units by component."""

    @property
    def name(self) -> str:
        """``agdp`` or ``renyi``."""

    @property
    def epsilon(self) -> float:
        """ε cap."""

    @property
    def delta(self) -> float:
        """δ of the claim."""

    @property
    def orders(self) -> tuple[int, ...]:
        """Rényi orders; none for ``agdp``."""

    def caps(self) -> tuple[int, ...]:
        """Caps, rounded down."""

    def costs(self, event: DpEvent) -> tuple[int, ...]:
        """Costs of an event, rounded up."""

    def epsilon_of(self, used: Sequence[int]) -> float:
        """The ε that the used part would claim."""

    def share(self, used: Sequence[int]) -> float:
        """Share of the cap that is used up: at 1 nothing more fits, above it is overdrawn."""

    def admits(self, used: Sequence[int], cost: Sequence[int]) -> bool:
        """Whether the cost still fits."""


def make_filter(
    name: str, *, epsilon: float, delta: float, orders: Sequence[int] | None = None
) -> Filter:
    """The filter of that name at (ε, δ).

    Args:
        name: ``agdp`` or ``renyi``.
        epsilon: ε cap, finite and > 0.
        delta: δ, in (0, 1).
        orders: For ``renyi``, at most 12 whole orders ≥ 2; the default grid if None.

    Raises:
        PlanError: Another name, or a value out of range.
    """
    if name == "agdp":
        if orders:
            raise PlanError(f"filter agdp takes no orders; got {list(orders)}. Leave them out.")
        return GaussianFilter(epsilon, delta)
    if name == "renyi":
        return RenyiFilter(epsilon, delta, tuple(orders) if orders else ORDERS)
    raise PlanError(f"filter must be one of {', '.join(FILTERS)}; got {name!r}.")
