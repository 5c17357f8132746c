"""The median, with noise scaled to its smooth sensitivity (Nissim, Raskhodnikova and Smith 2007).

Relation: add/remove of one unit, one value a unit, n not known. Values lie in declared [low, high]
(others are moved there; what is not finite counts as no unit). Sorted, x_1 ≤ … ≤ x_n, with x_j = low for
j < 1 and x_j = high for j > n. The median is f(x) = x_⌈n/2⌉; of nobody, low.

Local sensitivity. With p = ⌊n/2⌋, a unit more or less gives f between x_p and x_{p+1}, of which f(x) is
one; both are attained. So LS(x) = x_{p+1} − x_p. At distance k: let y come from x by a removals and b
additions, a + b ≤ k, and let its middle gap hold c ≤ a removed values of x, the largest of x below it
being x_i. Below and above the gap y has p and p or p+1 units; removals and additions outside the gap, at
most k − c of them, must make up for the imbalance n − c − 2i. Hence ⌊(n−k)/2⌋ ≤ i and
i + c + 1 ≤ ⌊(n+k)/2⌋ + 1, and the gap is at most

    A_k(x) = x_{⌊(n+k)/2⌋+1} − x_{⌊(n−k)/2⌋}.

Smoothness. A unit more or less changes k by one, A_k(x) ≤ A_{k+1}(x'), so that
S(x) = max_k exp(−β·k)·A_k(x) obeys S(x) ≤ e^β·S(x'), and S ≥ LS. From k = n on A_k is high − low.

Noise. Released is f(x) + S(x)/α·Z with Z standard Cauchy, h(z) = 1/(π·(1 + z²)) (γ = 2). Write s =
S(x)/α. Going to a neighbour x' moves the density's logarithm in two steps:
- slide by |f(x) − f(x')|/s ≤ α: |d/dz ln h(z)| = |2z|/(1 + z²) ≤ 1, so by at most α;
- scale by |ln s − ln s'| ≤ β: with w = z·e^t, |d/dt ln(e^t·h(w))| = |1 − 2w²/(1 + w²)| ≤ 1, so by at
  most β.
Together α + β: ε-DP for α = β = ε/2. (Bounds that hold for every γ give smaller constants; these two
are what γ = 2 allows.) The result moved back into [low, high] is post-processing.

When it stops holding: the noise is floating point, from a 63-bit uniform, and the low-order bits of
the sum are not those of a real Cauchy variable (Mironov 2012). A bound that was taken from the data
voids it altogether.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass

import numpy as np
from dp_accounting import DpEvent
from numpy.typing import NDArray

from privacy.accounting import pure_event
from privacy.errors import PlanError, check_positive
from privacy.mechanisms.exact import RandBelow

_BITS = 63


@dataclass(frozen=True, kw_only=True)
class SmoothMedian:
    """ε-DP median of one value a unit, under add/remove of one unit; its sensitivity is the data's own.

    Attributes:
        epsilon: ε of one release, finite and > 0.
        low: Least value, declared.
        high: Largest value, declared; > low.
    """

    epsilon: float
    low: float
    high: float

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon, remedy="State the ε of one release.")
        for name, value in (("low", self.low), ("high", self.high)):
            if not math.isfinite(value):
                raise PlanError(f"{name} must be finite; got {value}. Declare the values' range.")
        check_positive("high - low", self.high - self.low, remedy="Declare high above low.")

    @property
    def event(self) -> DpEvent:
        """What one release is charged as."""
        return pure_event(epsilon=self.epsilon)

    @property
    def beta(self) -> float:
        """β of the smooth sensitivity, which is α of the noise as well."""
        return self.epsilon / 2

    def median(self, values: NDArray[np.floating]) -> float:
        """f(x), not noised. Sensitive."""
        ordered = self._sorted(values)
        return self._rank(ordered, (len(ordered) + 1) // 2)

    def local_sensitivity(self, values: NDArray[np.floating], *, distance: int = 0) -> float:
        """A_k(x): the largest local sensitivity within `distance` units. Sensitive."""
        return self._gap(self._sorted(values), distance)

    def smooth_sensitivity(self, values: NDArray[np.floating]) -> float:
        """S(x), in the values' units, > 0. Sensitive."""
        ordered = self._sorted(values)
        return max(
            math.exp(-self.beta * k) * self._gap(ordered, k) for k in range(len(ordered) + 1)
        )

    def release(
        self, values: NDArray[np.floating], *, randbelow: RandBelow = secrets.randbelow
    ) -> float:
        """The noised median, within [low, high].

        Args:
            values: Shape (units,), one a unit; may be empty. Sensitive.
            randbelow: Source of uniform integers; the operating system's by default.
        """
        uniform = (randbelow(2**_BITS) + 0.5) * 2.0**-_BITS
        cauchy = math.tan(math.pi * (uniform - 0.5))
        noised = self.median(values) + self.smooth_sensitivity(values) / self.beta * cauchy
        return min(max(noised, self.low), self.high)

    def _sorted(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        finite = np.asarray(values, dtype=np.float64).ravel()
        return np.sort(np.clip(finite[np.isfinite(finite)], self.low, self.high))

    def _rank(self, ordered: NDArray[np.float64], j: int) -> float:
        """x_j, counted from 1, with the declared bounds on either side."""
        if j < 1:
            return self.low
        return float(ordered[j - 1]) if j <= len(ordered) else self.high

    def _gap(self, ordered: NDArray[np.float64], k: int) -> float:
        n = len(ordered)
        return self._rank(ordered, (n + k) // 2 + 1) - self._rank(ordered, (n - k) // 2)
