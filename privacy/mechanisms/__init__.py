"""Single releases: one module a family. Each states its relation, its sensitivity and its price.

- `discrete`: whole-number noise for counts; the joint sensitivity of confusion matrices.
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

__all__ = [
    "RandBelow",
    "confusion_sensitivity",
    "discrete_gaussian",
    "discrete_laplace",
    "noised_counts",
]
