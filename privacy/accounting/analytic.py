"""The Gaussian mechanism in closed form (Balle and Wang 2018, theorem 8).

For sensitivity 1 and μ = 1/σ, and for every ε ≥ 0, the mechanism is (ε, δ)-DP exactly from

    δ(μ; ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ)

on, in both directions alike. It rises with μ and falls with ε: the searches here rely on both. Nothing
is rounded towards privacy except where a function says so; the relative error is below 1e-9 for μ in
[1e-5, 100].
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special

from privacy.accounting.events import rounded_up
from privacy.errors import PrivacyError, check_positive

_MOST_MU = 1e4


def gaussian_delta(mu: Any, epsilon: Any) -> Any:
    """δ of the Gaussian mechanism at ε ≥ 0; elementwise, μ > 0."""
    mu, epsilon = np.asarray(mu, dtype=float), np.asarray(epsilon, dtype=float)
    near = (epsilon / mu - mu / 2) / math.sqrt(2)
    far = (epsilon / mu + mu / 2) / math.sqrt(2)
    # With Φ(−u) = erfcx(u/√2)·exp(−u²/2)/2 the factor e^ε cancels, since far² − near² = ε: what
    # remains is a difference of two numbers of ordinary size, also where δ itself is tiny.
    safe = np.maximum(near, 0.0)
    tail = 0.5 * np.exp(-(safe**2)) * (special.erfcx(safe) - special.erfcx(far))
    with np.errstate(over="ignore", invalid="ignore"):
        body = 0.5 * special.erfc(near) - 0.5 * np.exp(-(near**2)) * special.erfcx(far)
    return np.where(near > 0, tail, body)


def gaussian_mu(delta: Any, epsilon: Any) -> Any:
    """The largest μ of which δ(μ; ε) stays within `delta` in (0, 1), to 1e-13; at most 1e4."""
    delta, epsilon = np.broadcast_arrays(
        np.asarray(delta, dtype=float), np.asarray(epsilon, dtype=float)
    )
    low, high = np.full(delta.shape, -30.0), np.full(delta.shape, math.log(_MOST_MU))
    for _ in range(60):
        middle = (low + high) / 2
        within = gaussian_delta(np.exp(middle), epsilon) <= delta
        low, high = np.where(within, middle, low), np.where(within, high, middle)
    return np.exp(low)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest ε ≥ 0 at which δ(μ; ε) is at most `delta`, rounded up to 1e-6; 0 for μ = 0."""
    if mu <= 0 or float(gaussian_delta(mu, 0.0)) <= delta:
        return 0.0
    low, high = 0.0, mu * mu / 2 + mu * 40
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if float(gaussian_delta(mu, middle)) > delta else (low, middle)
    return rounded_up(high, 6)


def analytic_gaussian_sigma(*, epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The smallest noise of one Gaussian release that is (ε, δ)-DP, rounded up in the 12th digit.

    Args:
        epsilon: Finite and > 0.
        delta: In (0, 1).
        sensitivity: L2, finite and > 0.

    Returns:
        σ in the units of `sensitivity`; checked to be within δ after rounding.
    """
    check_positive("epsilon", epsilon, remedy="Set training.epsilon in the profile.")
    check_positive("delta", delta, below=1, remedy="Use less than 1/n, for example 1e-5.")
    check_positive("sensitivity", sensitivity, remedy="State what one unit moves at most.")
    mu = float(gaussian_mu(delta, epsilon)) * (1 - 1e-12)
    if not float(gaussian_delta(mu, epsilon)) <= delta:
        raise PrivacyError(
            f"epsilon must be one that some noise reaches at delta={delta}; got {epsilon}. Use a "
            "larger epsilon or delta."
        )
    return sensitivity / mu
