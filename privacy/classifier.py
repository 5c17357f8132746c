"""A classifier: the fixed feature map, then the trained head. What is trained, evaluated and released.

Only the head is trained; the map is fixed beforehand (see `privacy.features` for its sensitivity).
"""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from privacy.errors import PlanError
from privacy.features import FeatureMap
from privacy.heads import build_head
from privacy.mixing import PublicData, build
from privacy.plan import Plan


class Classifier(nn.Module):
    """(…, d) embeddings → (…, K) logits.

    Attributes:
        features: The fixed map.
        head: What is trained.
    """

    def __init__(self, features: FeatureMap, head: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.head = head

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Logits of embeddings."""
        return cast("torch.Tensor", self.head(self.features(vectors)))


def build_classifier(
    head: str, *, feature_dimension: int, classes: int, feature_scale: float, preconditioned: bool
) -> Classifier:
    """One of that shape, with nothing fitted yet: to start from, or to load a stored state into.

    Raises:
        PlanError: The head cannot be built.
    """
    return Classifier(
        FeatureMap(feature_dimension, scale=feature_scale, preconditioned=preconditioned),
        build_head(head, feature_dimension=feature_dimension, classes=classes),
    )


def of_plan(plan: Plan) -> Classifier:
    """One of the plan's shape, with nothing fitted yet."""
    return build_classifier(
        plan.head,
        feature_dimension=plan.feature_dimension,
        classes=len(plan.classes),
        feature_scale=plan.feature_scale,
        preconditioned=is_preconditioned(plan),
    )


def is_preconditioned(plan: Plan) -> bool:
    """Whether one of the plan's strategies fits the feature map on public data."""
    return any(s.preconditions for s in build(plan.mixing))


def fit_features(plan: Plan, public: PublicData) -> FeatureMap:
    """The plan's feature map, fitted on public data where a strategy asks for it.

    Raises:
        PlanError: Two strategies fit the map, or the public data do not serve one.
    """
    features = of_plan(plan).features
    fitting = [s for s in build(plan.mixing) if s.preconditions]
    if len(fitting) > 1:
        raise PlanError(
            f"mixing.strategies: {', '.join(s.name for s in fitting)} each fit the feature map. "
            "Keep one of them."
        )
    for strategy in fitting:
        found = strategy.precondition(public)
        assert found is not None
        features.set(found)
    return features


def starting_classifier(plan: Plan, public: PublicData) -> Classifier:
    """Where the plan's training starts: the map fitted first, then the head in its features.

    Raises:
        PlanError: The public data do not serve a strategy.
    """
    result = Classifier(fit_features(plan, public), of_plan(plan).head)
    seen = PublicData(result.features(public.features), public.labels)
    for strategy in build(plan.mixing):
        result.head = strategy.start(result.head, seen)
    return result
