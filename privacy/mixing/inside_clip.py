"""The mixing kernel, inside the clip: a record's second view leans on its public neighbours.

For a record x with public neighbours u_1…u_k (FAISS), similarities s_j and temperature τ:

    w = softmax(s/τ),   z = (1−λ)·x + λ·Σ_j w_j·u_j,   views {x, z},

and the record's loss is the mean over its views. Both views are functions of *that record* and of
public data, and they are averaged before the one clip, so removing a unit still removes one vector of
norm at most C from the sum: DP-SGD's price, nothing more, for any k, τ and λ chosen without private
data. No noise is put on the similarities, and none would help: nothing about z is published by
itself. The argument fails the moment neighbours are private, or z is released.
"""

from __future__ import annotations

import torch
from dp_accounting import DpEvent

from privacy.errors import PlanError
from privacy.mixing.base import MixingStrategy, Neighbours, register


@register
class InsideClip(MixingStrategy):
    """Per-record kernel over public neighbours, averaged before the clip."""

    name = "inside_clip"
    needs_neighbours = True

    def event(self) -> DpEvent | None:
        """Nothing beyond DP-SGD: the views lie inside the per-unit clip."""
        return None

    def views(self, records: torch.Tensor, neighbours: Neighbours | None) -> torch.Tensor:
        """The record and its mixture: (n, d) → (n, 2, d), rows of norm at most 1."""
        if neighbours is None:
            raise PlanError("inside_clip needs public neighbours; build the public index first.")
        mixture = kernel(neighbours, temperature=self.plan.temperature)
        mixed = (1 - self.plan.weight) * records + self.plan.weight * mixture
        return torch.stack([records, mixed], dim=1)


def kernel(neighbours: Neighbours, *, temperature: float) -> torch.Tensor:
    """Softmax-weighted mean of public neighbours: (n, k, d), (n, k) → (n, d)."""
    weights = torch.softmax(neighbours.similarities / temperature, dim=1)
    return torch.einsum("nk,nkd->nd", weights, neighbours.features)
