"""The interface of a mixing strategy, and its registry.

A strategy says how public data enters a run. It may fit the map from embeddings to features (see
`privacy.features`) and give starting weights, both on public data alone; and it may add views of a
record (functions of that one record and of public data, averaged inside the record's loss *before* the
one clip). Either way one unit still moves the clipped sum by at most C: the plan's price is unchanged.
A strategy that needs more declares an `event`, and the plan is priced with it. A view must never read a
second private record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import ClassVar

import torch
from dp_accounting import DpEvent
from torch import nn

from privacy.errors import PlanError
from privacy.features import Preconditioner
from privacy.plan import MixingPlan


@dataclass(frozen=True)
class PublicData:
    """Public vectors and, where they have one, their labels.

    Attributes:
        features: (m, d) float32, rows of norm at most 1.
        labels: (m,) int64, class index, or −1 for no label.
    """

    features: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True)
class Neighbours:
    """The public neighbours of some records.

    Attributes:
        features: (n, k, d) float32.
        similarities: (n, k) float32 inner products.
    """

    features: torch.Tensor
    similarities: torch.Tensor


class MixingStrategy(ABC):
    """One way to mix; subclasses set `name` and override what they give."""

    name: ClassVar[str]
    needs_neighbours: ClassVar[bool] = False
    needs_labels: ClassVar[bool] = False
    preconditions: ClassVar[bool] = False

    def __init__(self, plan: MixingPlan) -> None:
        self.plan = plan

    @abstractmethod
    def event(self) -> DpEvent | None:
        """What this strategy costs beyond DP-SGD; None means nothing."""

    def precondition(self, public: PublicData) -> Preconditioner | None:
        """How features are made from embeddings; called where `preconditions` is set."""
        del public
        return None

    def start(self, head: nn.Module, public: PublicData) -> nn.Module:
        """The head with its starting weights; `head` itself by default.

        `public` holds features, as the head will see them.
        """
        del public
        return head

    def views(self, records: torch.Tensor, neighbours: Neighbours | None) -> torch.Tensor:
        """Views of each record, (n, d) → (n, V, d); the record alone by default."""
        del neighbours
        return records.unsqueeze(1)


_REGISTRY: dict[str, type[MixingStrategy]] = {}


def register(strategy: type[MixingStrategy]) -> type[MixingStrategy]:
    """Class decorator: make a strategy known by its name."""
    _REGISTRY[strategy.name] = strategy
    return strategy


def registry() -> dict[str, type[MixingStrategy]]:
    """Every known strategy by name: built in, and by entry point ``dpmix.mixing``."""
    found = dict(_REGISTRY)
    for point in entry_points(group="dpmix.mixing"):
        found.setdefault(point.name, point.load())
    return found


def build(plan: MixingPlan) -> Sequence[MixingStrategy]:
    """The plan's strategies, in order.

    Raises:
        PlanError: A name is unknown, or one is given twice.
    """
    known = registry()
    for name in plan.strategies:
        if name not in known:
            raise PlanError(
                f"mixing.strategies: {name!r} is unknown. Known: {', '.join(sorted(known))}."
            )
    if len(set(plan.strategies)) != len(plan.strategies):
        raise PlanError(f"mixing.strategies names one twice: {list(plan.strategies)}.")
    strategies = [known[name](plan) for name in plan.strategies]
    for strategy in strategies:
        if strategy.event() is not None:
            raise PlanError(
                f"mixing.strategies: {strategy.name!r} costs more than DP-SGD, and no plan prices that "
                "yet: it would be free. Take it out."
            )
    return strategies
