"""Single releases: one module a family. Each states its relation, its sensitivity and its price.

- `discrete`: whole-number noise for counts; the joint sensitivity of confusion matrices.
- `selection`: one of a declared list by its score: exponential mechanism, permute-and-flip.
- `exact`: the coins below them, drawn from uniform whole numbers alone.

Relation: add/remove of one privacy unit, everywhere.
"""

from privacy.mechanisms.discrete import (
    confusion_sensitivity,
    discrete_gaussian,
    discrete_laplace,
    noised_counts,
)
from privacy.mechanisms.exact import RandBelow
from privacy.mechanisms.selection import ExponentialMechanism, PermuteAndFlip

__all__ = [
    "ExponentialMechanism",
    "PermuteAndFlip",
    "RandBelow",
    "confusion_sensitivity",
    "discrete_gaussian",
    "discrete_laplace",
    "noised_counts",
]
