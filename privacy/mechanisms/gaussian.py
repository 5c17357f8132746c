"""The continuous Gaussian on a vector, calibrated analytically.

Relation: add/remove of one unit. Sensitivity Δ₂: the most by which one unit moves the vector in L2,
jointly over all coordinates and all vectors released together.

Calibration (Balle and Wang 2018, theorem 8). Noise N(0, σ²·I) is (ε, δ)-DP if and only if

    Φ(Δ/(2σ) − ε·σ/Δ) − e^ε·Φ(−Δ/(2σ) − ε·σ/Δ) ≤ δ,

whose left side falls in σ. `analytic_gaussian_sigma` halves an interval around the root and returns its
upper end, at which the inequality was verified: rounding makes σ larger, never smaller.

When it stops holding. This is floating-point noise: value and noise are both rounded to float32 before
they are added, so that no digit of the value lies below the noise's, but the low-order bits of the sum
are not those of a real Gaussian (Mironov 2012), and rounding moves the sensitivity by a relative 2⁻²³.
Counts and histograms use `privacy.mechanisms.discrete`, which has neither fault.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from dp_accounting import DpEvent
from numpy.typing import NDArray
from scipy.special import log_ndtr

from privacy.accounting import gaussian_event
from privacy.errors import check_positive
from privacy.noise import NoiseSource

_HALVINGS = 60


def analytic_gaussian_sigma(*, epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The least σ, rounded up, at which Gaussian noise is (ε, δ)-DP.

    Args:
        epsilon: Finite and > 0.
        delta: In (0, 1).
        sensitivity: Δ₂ of one unit under add/remove, finite and > 0.

    Raises:
        PlanError: A value is out of its range.
    """
    check_positive("epsilon", epsilon, remedy="State the ε of this release.")
    check_positive(
        "delta", delta, below=1.0, remedy="State a δ below one over the number of units."
    )
    check_positive("sensitivity", sensitivity, remedy="State the most that one unit moves in L2.")
    low = high = 1.0
    while _delta(high, epsilon) > delta:
        low, high = high, 2 * high
    while _delta(low, epsilon) <= delta:
        low, high = low / 2, low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _delta(middle, epsilon) <= delta:
            high = middle
        else:
            low = middle
    return check_positive(
        "sigma",
        math.nextafter(high * sensitivity, math.inf),
        remedy="Ask for an epsilon and a sensitivity of usual size.",
    )


def _delta(sigma: float, epsilon: float) -> float:
    """δ of unit sensitivity, with room for the cancellation between its two terms."""
    half, slope = 1 / (2 * sigma), epsilon * sigma
    first = math.exp(log_ndtr(half - slope))
    second = math.exp(epsilon + log_ndtr(-half - slope))
    return first - second + 2.0**-49 * first


@dataclass(frozen=True, kw_only=True)
class GaussianMechanism:
    """Adds N(0, σ²) to each coordinate of a vector. Add/remove of one unit.

    Attributes:
        sensitivity: Δ₂, finite and > 0.
        sigma: Standard deviation of the noise, in the vector's own units, finite and > 0.
    """

    sensitivity: float
    sigma: float

    def __post_init__(self) -> None:
        remedy = "State the most that one unit moves in L2."
        check_positive("sensitivity", self.sensitivity, remedy=remedy)
        check_positive("sigma", self.sigma, remedy="Calibrate it to an epsilon.")

    @classmethod
    def calibrated(cls, *, sensitivity: float, epsilon: float, delta: float) -> GaussianMechanism:
        """The one with the least σ for (ε, δ)."""
        sigma = analytic_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
        return cls(sensitivity=sensitivity, sigma=sigma)

    @property
    def event(self) -> DpEvent:
        """What one release is charged as."""
        return gaussian_event(noise_multiplier=self.sigma / self.sensitivity)

    def release(self, values: NDArray[np.floating], *, source: NoiseSource) -> NDArray[np.float32]:
        """`values` (any shape) plus noise, in float32.

        Args:
            values: Sensitive; bounded by a clip before, on which the sensitivity rests. What is not
                finite in float32 counts as 0: an error would tell of the data.
            source: This attempt's randomness; private iff `source.is_private`.
        """
        with np.errstate(over="ignore"):
            exact = values.astype(np.float32)
        exact = np.where(np.isfinite(exact), exact, np.float32(0))
        noise = source.normal(exact.size).numpy().reshape(exact.shape)
        return np.asarray(exact + np.float32(self.sigma) * noise, dtype=np.float32)
