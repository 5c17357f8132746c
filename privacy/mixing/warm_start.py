"""Warm start: begin DP-SGD at weights fitted on labelled public data.

Privacy. The starting point is a function of public data alone; every private update that follows is
charged as before. Adaptive composition allows any starting point chosen without private data, so the
price is DP-SGD's. The regularisation is chosen on a held-out part of the *public* set.
"""

from __future__ import annotations

import copy

import torch
from dp_accounting import DpEvent
from torch import nn

from privacy.errors import PlanError
from privacy.mixing.base import MixingStrategy, PublicData, register

LEAST_LABELLED = 20
"""Labelled public documents without which nothing is fitted."""

# In units of the features' mean squared norm, so that a feature scale changes nothing here.
_STRENGTHS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


@register
class WarmStart(MixingStrategy):
    """Weights fitted on public labels."""

    name = "warm_start"
    needs_labels = True

    def event(self) -> DpEvent | None:
        """Nothing beyond DP-SGD: the start does not depend on private data."""
        return None

    def start(self, head: nn.Module, public: PublicData) -> nn.Module:
        """`head` fitted on the labelled part of `public`."""
        return fit_public(head, public)


def fit_public(head: nn.Module, public: PublicData) -> nn.Module:
    """Fit a copy of `head` on labelled public data by L-BFGS with weight decay.

    Every fifth labelled row chooses the decay, by the one-standard-error rule (Breiman et al. 1984);
    the final fit uses all.

    Args:
        head: (…, d) → (…, K) module; left unchanged.
        public: Vectors with labels; rows with label −1 are not used.

    Raises:
        PlanError: Fewer than 20 labelled rows.
    """
    labelled = public.labels >= 0
    features, labels = public.features[labelled], public.labels[labelled]
    if len(labels) < LEAST_LABELLED:
        raise PlanError(
            f"a warm start needs at least {LEAST_LABELLED} labelled public documents; got "
            f"{len(labels)}. Take warm_start out of mixing.strategies, or give the public documents "
            "labels."
        )
    held_out = torch.arange(len(labels)) % 5 == 0
    size = float(features.square().sum(dim=1).mean())
    means, errors = [], []
    for strength in _STRENGTHS:
        candidate = _fit(head, features[~held_out], labels[~held_out], strength * size)
        with torch.inference_mode():
            losses = nn.functional.cross_entropy(
                candidate(features[held_out]), labels[held_out], reduction="none"
            )
        means.append(float(losses.mean()))
        errors.append(float(losses.std() / len(losses) ** 0.5))
    # One-standard-error rule: the strongest decay that is not clearly worse. Private text is never
    # quite like public text, and the simpler start travels better.
    best = means.index(min(means))
    limit = means[best] + errors[best]
    return _fit(
        head,
        features,
        labels,
        size * max(s for s, mean in zip(_STRENGTHS, means, strict=True) if mean <= limit),
    )


def _fit(
    head: nn.Module, features: torch.Tensor, labels: torch.Tensor, strength: float
) -> nn.Module:
    fitted = copy.deepcopy(head)
    optimizer = torch.optim.LBFGS(
        fitted.parameters(), max_iter=60, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = nn.functional.cross_entropy(fitted(features), labels)
        for parameter in fitted.parameters():
            if parameter.dim() > 1:
                loss = loss + strength / 2 * parameter.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return fitted
