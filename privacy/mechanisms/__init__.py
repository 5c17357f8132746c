"""Single releases: one module a family. Each states its relation, its sensitivity and its price.

- `contributions`: sums to which one person adds a bounded amount, whatever their records hold.
- `discrete`: whole-number noise for counts; the joint sensitivity of confusion matrices.
- `gaussian`: continuous Gaussian on a vector, with the analytic calibration.
- `histogram`: counts of declared bins, for units of up to k records.
- `laplace`: continuous Laplace on a vector.
- `median`: the median, with noise scaled to its smooth sensitivity.
- `selection`: one of a declared list by its score: exponential mechanism, permute-and-flip.
- `exact`: the coins below them, drawn from uniform whole numbers alone.

Relation: add/remove of one privacy unit, everywhere.
"""

from privacy.mechanisms.contributions import BoundedSum
from privacy.mechanisms.discrete import (
    confusion_sensitivity,
    discrete_gaussian,
    discrete_laplace,
    noised_counts,
)
from privacy.mechanisms.exact import RandBelow
from privacy.mechanisms.gaussian import GaussianMechanism, analytic_gaussian_sigma
from privacy.mechanisms.histogram import NoisyHistogram, histogram_sensitivity
from privacy.mechanisms.laplace import LaplaceMechanism
from privacy.mechanisms.median import SmoothMedian
from privacy.mechanisms.selection import ExponentialMechanism, PermuteAndFlip

__all__ = [
    "BoundedSum",
    "ExponentialMechanism",
    "GaussianMechanism",
    "LaplaceMechanism",
    "NoisyHistogram",
    "PermuteAndFlip",
    "RandBelow",
    "SmoothMedian",
    "analytic_gaussian_sigma",
    "confusion_sensitivity",
    "discrete_gaussian",
    "discrete_laplace",
    "histogram_sensitivity",
    "noised_counts",
]
