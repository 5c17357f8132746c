"""A histogram with whole-number noise, for units of up to k records.

Relation: add/remove of one unit with all its records, at most k of them, each in one bin. The bins are
declared; a bin that nobody falls into is noised and released like the others.

Sensitivity, jointly over all bins, for a unit with r_j records in bin j, Σr_j ≤ k:
- L1: Σr_j ≤ k.
- L2: √Σr_j² ≤ Σr_j ≤ k, attained by k records in one bin.
- If a unit falls into each bin at most once (`once_per_bin`), L2 is √Σr_j ≤ √k. L1 stays k.

Noise is exact (`privacy.mechanisms.discrete`): discrete Gaussian at σ/Δ₂, or discrete Laplace at
a = ε/k. It stops holding if a unit has more than k records in the counts: bound them before.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Literal

import numpy as np
from dp_accounting import DpEvent
from numpy.typing import NDArray

from privacy.accounting import discrete_gaussian_event, discrete_laplace_event
from privacy.errors import PlanError, check_positive, check_whole
from privacy.mechanisms.discrete import discrete_laplace, noised_counts
from privacy.mechanisms.exact import RandBelow


def histogram_sensitivity(
    *, norm: Literal["l1", "l2"], records_per_unit: int, once_per_bin: bool = False
) -> float:
    """The most by which one unit moves all counts together, add/remove.

    Args:
        norm: "l1" or "l2".
        records_per_unit: k ≥ 1, the most records that a unit has in the counts.
        once_per_bin: No unit has two records in one bin.
    """
    check_whole("records_per_unit", records_per_unit, at_least=1, remedy="Set it at registration.")
    if norm not in ("l1", "l2"):
        raise PlanError(f"norm must be l1 or l2; got {norm!r}. Choose by the noise.")
    return math.sqrt(records_per_unit) if norm == "l2" and once_per_bin else records_per_unit


@dataclass(frozen=True, kw_only=True)
class NoisyHistogram:
    """Counts of declared bins plus exact whole-number noise. Add/remove of one unit.

    Attributes:
        bins: How many, declared, ≥ 1.
        records_per_unit: k ≥ 1: Δ₁ = k, Δ₂ = k, or √k if `once_per_bin`.
        once_per_bin: No unit has two records in one bin.
        noise: "gaussian" or "laplace", both discrete.
        scale: σ of the Gaussian; b of the Laplace, P(x) ∝ exp(−|x|/b). Finite and > 0.
    """

    bins: int
    records_per_unit: int
    noise: Literal["gaussian", "laplace"]
    scale: float
    once_per_bin: bool = False

    def __post_init__(self) -> None:
        check_whole("bins", self.bins, at_least=1, remedy="Declare the bins.")
        check_whole(
            "records_per_unit", self.records_per_unit, at_least=1, remedy="Set it at registration."
        )
        if self.noise not in ("gaussian", "laplace"):
            raise PlanError(f"noise must be gaussian or laplace; got {self.noise!r}. Choose one.")
        check_positive("scale", self.scale, remedy="Calibrate it to an epsilon.")

    @property
    def sensitivity(self) -> float:
        """Δ₂ for Gaussian noise, Δ₁ for Laplace noise."""
        return histogram_sensitivity(
            norm="l2" if self.noise == "gaussian" else "l1",
            records_per_unit=self.records_per_unit,
            once_per_bin=self.once_per_bin,
        )

    @property
    def event(self) -> DpEvent:
        """What one release of all bins is charged as."""
        if self.noise == "gaussian":
            return discrete_gaussian_event(noise_multiplier=self.scale / self.sensitivity)
        return discrete_laplace_event(noise_parameter=self._rate, sensitivity=self.records_per_unit)

    def release(
        self, counts: NDArray[np.int64], *, randbelow: RandBelow = secrets.randbelow
    ) -> NDArray[np.int64]:
        """`counts` plus independent noise; may be negative.

        Args:
            counts: Whole numbers, shape (bins,). Sensitive.
            randbelow: Source of uniform integers; the operating system's by default.

        Raises:
            PlanError: The counts are not one whole number a declared bin.
        """
        if counts.shape != (self.bins,) or not np.issubdtype(counts.dtype, np.integer):
            raise PlanError(
                f"counts must be whole numbers of shape ({self.bins},); got {counts.dtype} of shape "
                f"{counts.shape}. Count the declared bins."
            )
        if self.noise == "gaussian":
            return noised_counts(counts, sigma=self.scale, randbelow=randbelow)
        noise = [
            discrete_laplace(noise_parameter=self._rate, randbelow=randbelow)
            for _ in range(self.bins)
        ]
        return counts + np.array(noise, dtype=np.int64)

    @property
    def _rate(self) -> float:
        """A = 1/b as a float: the same number is drawn with and charged."""
        return 1 / self.scale
