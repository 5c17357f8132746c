"""Whole-number noise for counts: the discrete Gaussian and the discrete Laplace, drawn exactly.

Relation: add/remove of one unit. The caller states the sensitivity, jointly over all that is released
together; both mechanisms add independent noise to each coordinate of an integer vector.

- Discrete Gaussian: the Rényi divergence for a shift by an integer vector v is at most α·‖v‖₂²/(2σ²)
  (Canonne, Kamath and Steinke 2020, proposition 5, coordinate by coordinate), the continuous one's. Its
  price therefore is that of σ/Δ₂, by a Rényi bound only (`discrete_gaussian_event`).
- Discrete Laplace: P(x)/P(x+v) ≤ exp(a·|v|) by the triangle inequality, so the vector is (a·Δ₁)-DP.

Sampling uses whole numbers only, so there are no floating-point bits to attack. It stops holding for
counts that are no whole numbers, or whose sum with the noise leaves 64 bits.

Sensitivity of stacked confusion matrices. One unit with one record in the hold-out changes exactly
one cell by one in each of A matrices, published together: Δ₂ = √A under add/remove. A person with at
most k records there moves at most k cells by one, or one cell by k, in each matrix: Δ₂ = k·√A.
`confusion_sensitivity` is that number, joint over all that is released together.
"""

from __future__ import annotations

import math
import secrets
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privacy.errors import check_positive, check_whole
from privacy.mechanisms.exact import RandBelow, bernoulli_exp, two_sided_geometric


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
        candidate = two_sided_geometric(Fraction(1, scale), randbelow)
        gap = (Fraction(abs(candidate)) - variance / scale) ** 2 / (2 * variance)
        if bernoulli_exp(gap, randbelow):
            return candidate


def discrete_laplace(*, noise_parameter: float, randbelow: RandBelow = secrets.randbelow) -> int:
    """One exact draw with P(x) ∝ exp(−a·|x|) over the integers.

    Added to a count of L1 sensitivity Δ it is (a·Δ)-DP: `discrete_laplace_event`.

    Args:
        noise_parameter: a = ε/Δ, finite and > 0.
        randbelow: Source of uniform integers; the operating system's by default.
    """
    check_positive("noise_parameter", noise_parameter, remedy="It is ε over the sensitivity.")
    return two_sided_geometric(Fraction(noise_parameter), randbelow)


def noised_counts(
    counts: NDArray[np.int64], *, sigma: float, randbelow: RandBelow = secrets.randbelow
) -> NDArray[np.int64]:
    """`counts` (any shape, whole numbers) plus independent discrete Gaussian noise."""
    noise = [discrete_gaussian(sigma=sigma, randbelow=randbelow) for _ in range(counts.size)]
    return counts + np.array(noise, dtype=np.int64).reshape(counts.shape)
