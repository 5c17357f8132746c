"""What a head sees of a frozen embedding: a fixed map of one record, the same at training and at use.

    x  →  R · A(x − μ) / ‖A(x − μ)‖,    or  x → R · x  without a preconditioner.

Sensitivity. μ and A are functions of *public* vectors, R is a constant of the plan. A record's features
depend on that record alone, so adding or removing a unit still adds or removes one clipped vector: the
price is DP-SGD's. The argument fails the moment μ, A or R are fitted on private rows.

Why R. A linear head's bias sees the constant 1. Beside features of norm 1 it takes half of every
gradient's squared norm, hence half of what the clip lets through; beside features of norm R it takes
1/(1+R²) of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from privacy.errors import PlanError, check_positive

_RIDGE = 0.04
_MINIMUM_ROWS = 20


@dataclass(frozen=True)
class Preconditioner:
    """An affine map fitted on public vectors.

    Attributes:
        mean: (d,) float32 μ.
        matrix: (d, d) float32 A, symmetric.
    """

    mean: torch.Tensor
    matrix: torch.Tensor


def whiten(public: torch.Tensor, *, exponent: float) -> Preconditioner:
    """Public mean, and the public covariance to the power −exponent/2 (1 whitens fully).

    A ridge of 0.04 mean variances keeps directions that public text hardly uses from blowing up.

    Args:
        public: (m, d) float32, m ≥ 20.
        exponent: In (0, 1].

    Raises:
        PlanError: Fewer than 20 rows.
    """
    if len(public) < _MINIMUM_ROWS:
        raise PlanError(
            f"public_whitening needs at least {_MINIMUM_ROWS} public documents; got {len(public)}. "
            "Take it out of mixing.strategies, or add public text."
        )
    exact = public.double()
    mean = exact.mean(dim=0)
    centred = exact - mean
    variances, axes = torch.linalg.eigh(centred.T @ centred / len(centred))
    scales = (variances + _RIDGE * variances.mean()) ** (-exponent / 2)
    return Preconditioner(mean.float(), ((axes * scales) @ axes.T).float())


class FeatureMap(nn.Module):
    """The map of the module's docstring; holds nothing that is trained.

    Args:
        dimension: d ≥ 1.
        scale: R > 0.
        preconditioned: Whether μ and A are part of it; zero and the identity until `set` is called
            or a stored state is loaded.
    """

    mean: torch.Tensor
    matrix: torch.Tensor

    def __init__(self, dimension: int, *, scale: float, preconditioned: bool) -> None:
        super().__init__()
        check_positive("feature_scale", scale, remedy="Set training.feature_scale.")
        self.scale = scale
        self.preconditioned = preconditioned
        if preconditioned:
            self.register_buffer("mean", torch.zeros(dimension))
            self.register_buffer("matrix", torch.eye(dimension))

    def set(self, preconditioner: Preconditioner) -> None:
        """Take μ and A."""
        self.mean.copy_(preconditioner.mean)
        self.matrix.copy_(preconditioner.matrix)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """(…, d) → (…, d); a zero vector (nothing left of the text) stays zero, NaN stays NaN."""
        if not self.preconditioned:
            return self.scale * vectors
        moved = (vectors - self.mean) @ self.matrix
        unit = moved / moved.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(moved.dtype).tiny)
        empty = vectors.norm(dim=-1, keepdim=True) == 0
        return self.scale * torch.where(empty, torch.zeros_like(unit), unit)
