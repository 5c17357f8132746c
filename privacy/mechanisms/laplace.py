"""The continuous Laplace on a vector.

Relation: add/remove of one unit. Sensitivity Δ₁: the most by which one unit moves the vector in L1, over
all coordinates and all vectors released together. Noise of density exp(−|z|/b)/(2b) on each coordinate:
two densities shifted by v differ by a factor of at most exp(‖v‖₁/b), so the release is (Δ₁/b)-DP (Dwork,
McSherry, Nissim and Smith 2006).

When it stops holding: the noise is floating point, from a 63-bit uniform that is never 0 (|z| ends
at 44.4·b, beyond which lies 2⁻⁶⁴ of the mass), and the low-order bits of the sum are not those of a real
Laplace variable (Mironov 2012). Value and noise are rounded to float32 before they are added, so that no
digit of the value lies below the noise's.
Counts, and sums on a grid (`privacy.mechanisms.contributions`), take `discrete_laplace`: it is exact.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass

import numpy as np
from dp_accounting import DpEvent
from numpy.typing import NDArray

from privacy.accounting import laplace_event
from privacy.errors import check_positive
from privacy.mechanisms.exact import RandBelow

_BITS = 63


@dataclass(frozen=True, kw_only=True)
class LaplaceMechanism:
    """Adds Laplace noise of scale b to each coordinate of a vector. ε = Δ₁/b, add/remove of one unit.

    Attributes:
        sensitivity: Δ₁, finite and > 0.
        scale: b, in the vector's own units, finite and > 0.
    """

    sensitivity: float
    scale: float

    def __post_init__(self) -> None:
        remedy = "State the most that one unit moves in L1."
        check_positive("sensitivity", self.sensitivity, remedy=remedy)
        check_positive("scale", self.scale, remedy="It is the sensitivity over ε.")

    @classmethod
    def calibrated(cls, *, sensitivity: float, epsilon: float) -> LaplaceMechanism:
        """The one with the least scale for ε."""
        check_positive(
            "sensitivity", sensitivity, remedy="State the most that one unit moves in L1."
        )
        check_positive("epsilon", epsilon, remedy="State the ε of this release.")
        # One step up: the division may have rounded down.
        return cls(sensitivity=sensitivity, scale=math.nextafter(sensitivity / epsilon, math.inf))

    @property
    def event(self) -> DpEvent:
        """What one release is charged as."""
        return laplace_event(noise_multiplier=self.scale / self.sensitivity)

    def release(
        self, values: NDArray[np.floating], *, randbelow: RandBelow = secrets.randbelow
    ) -> NDArray[np.float32]:
        """`values` (any shape) plus noise, in float32.

        Args:
            values: Sensitive; bounded by a clip before, on which the sensitivity rests. What is not
                finite in float32 counts as 0: an error would tell of the data.
            randbelow: Source of uniform integers; the operating system's by default.
        """
        with np.errstate(over="ignore"):
            exact = values.astype(np.float32)
        exact = np.where(np.isfinite(exact), exact, np.float32(0))
        noise = [self.scale * _standard(randbelow) for _ in range(exact.size)]
        added = np.array(noise, dtype=np.float32).reshape(exact.shape)
        return np.asarray(exact + added, dtype=np.float32)


def _standard(randbelow: RandBelow) -> float:
    magnitude = -math.log((randbelow(2**_BITS) + 0.5) * 2.0**-_BITS)
    return -magnitude if randbelow(2) == 1 else magnitude
