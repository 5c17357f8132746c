"""Single releases on counts: the discrete Gaussian, with its sensitivity stated by the caller.

`discrete_gaussian` samples exactly, with integer arithmetic only (Canonne, Kamath and Steinke 2020,
algorithms 1 to 3), so there are no floating-point bits to attack. Its Rényi divergence for a shift by
an integer vector v is at most α·‖v‖₂²/(2σ²) (ibid., proposition 5, coordinate by coordinate), the
continuous Gaussian's: the ledger therefore prices it as `gaussian_event(σ/Δ₂)`.

Sensitivity of stacked confusion matrices. One unit with one record in the hold-out changes exactly
one cell by one in each of A matrices, published together: Δ₂ = √A under add/remove. A person with at
most k records there moves at most k cells by one, or one cell by k, in each matrix: Δ₂ = k·√A.
`confusion_sensitivity` is that number, joint over all that is released together.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privacy.errors import check_positive, check_whole

RandBelow = Callable[[int], int]
"""n → a uniform whole number in [0, n)."""


def confusion_sensitivity(*, arms: int, records_per_unit: int) -> float:
    """Joint L2 sensitivity of `arms` confusion matrices over the same hold-out, add/remove."""
    check_whole("arms", arms, at_least=1, remedy="Count the models released together.")
    check_whole("records_per_unit", records_per_unit, at_least=1, remedy="Set it at registration.")
    return records_per_unit * math.sqrt(arms)


def discrete_gaussian(*, sigma: float, randbelow: RandBelow = secrets.randbelow) -> int:
    """One exact draw with P(x) ∝ exp(−x²/(2σ²)) over the integers.

    Args:
        sigma: Scale, finite and > 0. (The variance is at most σ².)
        randbelow: Source of uniform integers; the operating system's by default.
    """
    check_positive("sigma", sigma, remedy="Calibrate it to an epsilon.")
    variance = Fraction(sigma) ** 2
    scale = math.floor(sigma) + 1
    while True:
        candidate = _discrete_laplace(scale, randbelow)
        gap = (Fraction(abs(candidate)) - variance / scale) ** 2 / (2 * variance)
        if _bernoulli_exp(gap, randbelow):
            return candidate


def noised_counts(
    counts: NDArray[np.int64], *, sigma: float, randbelow: RandBelow = secrets.randbelow
) -> NDArray[np.int64]:
    """`counts` (any shape, whole numbers) plus independent discrete Gaussian noise."""
    noise = [discrete_gaussian(sigma=sigma, randbelow=randbelow) for _ in range(counts.size)]
    return counts + np.array(noise, dtype=np.int64).reshape(counts.shape)


def _bernoulli(p: Fraction, randbelow: RandBelow) -> bool:
    return randbelow(p.denominator) < p.numerator


def _bernoulli_exp(gamma: Fraction, randbelow: RandBelow) -> bool:
    """True with probability exp(−gamma), exactly, for gamma ≥ 0."""
    while gamma > 1:
        if not _bernoulli_exp(Fraction(1), randbelow):
            return False
        gamma -= 1
    k = 1
    while _bernoulli(gamma / k, randbelow):
        k += 1
    return k % 2 == 1


def _discrete_laplace(scale: int, randbelow: RandBelow) -> int:
    """P(x) ∝ exp(−|x|/scale) over the integers."""
    while True:
        u = randbelow(scale)
        if not _bernoulli_exp(Fraction(u, scale), randbelow):
            continue
        v = 0
        while _bernoulli_exp(Fraction(1), randbelow):
            v += 1
        magnitude = u + scale * v
        negative = randbelow(2) == 1
        if negative and magnitude == 0:
            continue
        return -magnitude if negative else magnitude
