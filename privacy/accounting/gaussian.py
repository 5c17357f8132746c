"""The adaptive Gaussian-DP filter (`agdp`): the ledger's default gate.

Claim. A block with (μ_cap, δ₀_cap) admits runs while Σμ² ≤ μ_cap² and Σδ₀ ≤ δ₀_cap. Whatever is
run, each run chosen after all results before it, the whole is (ε, δ(ε))-DP for every ε ≥ 0 with

    δ(ε) = (1 − δ₀_cap)·δ_GDP(μ_cap; ε) + δ₀_cap,
    δ_GDP(μ; ε) = Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2)      (Balle and Wang 2018, thm 8).

Proof. Fix neighbouring inputs. Call "μ-GDP with leak δ₀" the experiment that shows the input with
probability δ₀, and a draw of N(0,1) or N(μ,1) otherwise; its hockey-stick divergence at e^ε, ε ≥ 0,
is (1−δ₀)·δ_GDP(μ; ε) + δ₀ in both directions.
 1. A run is charged the least (μ², δ₀) with δ_run(ε) ≤ (1−δ₀)·δ_GDP(μ; ε) + δ₀ for *all* ε ≥ 0 in
    both directions (negative ε is the other direction). Two experiments compared at every e^ε are
    compared at every trade-off, so by Blackwell's theorem (Dong, Roth and Su 2022, thm 2.10; Zhu, Dong
    and Wang 2022, for domination) the run is a post-processing of that experiment.
 2. A run chosen from the past has a cost that is a function of the past. Replace each run, in order, by
    the experiment it is a post-processing of: what an adversary sees is a post-processing of an adaptive
    sequence of leaky Gaussian experiments with Σμ² ≤ μ_cap² and Σδ₀ ≤ δ₀_cap.
 3. Without the leaks, adaptively chosen Gaussian experiments with Σμ² ≤ μ_cap² are together a
    post-processing of one μ_cap-GDP experiment: they are values of one Brownian motion with drift,
    looked at until the accumulated time reaches μ_cap² at the latest (Smith and Thakurta 2022; Koskela,
    Tobaben and Honkela 2023). Nothing is lost, unlike with other filters.
 4. The leaks. Let U be uniform on (0, 1). Let the one experiment show the input and U if U ≤ δ₀_cap,
    and the Gaussian of 3 otherwise. Let a run leak when U first falls below 1 − Π(1 − δ₀), taken over
    the runs so far. That is each run's own chance, independent of what was seen while nothing has
    leaked; and as 1 − Π(1 − δ₀) never passes Σδ₀ ≤ δ₀_cap, no run leaks when U > δ₀_cap. So the whole
    sequence can be generated from the one experiment: with the input known, exactly; without it, as
    in 3. The claim is the curve of that experiment. ∎

This is *not* the central-limit approximation of DP-SGD by a Gaussian, which understates: μ comes from
the run's own loss distribution, cell by cell. On a grid 0 = ε₀ < … < ε_m, cell i compares the larger
side of the run, δ_run(ε_i), with the smaller side of the Gaussian, δ_GDP(μ; ε_{i+1}); both fall with ε,
so the inequality holds inside. Beyond ε_m the run is below δ₀ and the inequality is trivial. δ_run
carries a bound on the error of the Fourier transforms it comes from; where that bound is a noticeable
part of δ₀ the run is refused: such a δ is too small for that many steps.

A mechanism with a δ of its own is the pure mechanism of its ε behind one more leak: that δ is added to
δ₀.

Constants. δ₀_cap = δ/2, and each charge that is not exactly Gaussian takes δ₀ = δ/50: at most 25 such
charges a block. A larger δ₀ makes a run's μ smaller (its far tail leaks instead) and the block's μ_cap
smaller; at δ/50 the ε of one run stays within 5 % of its PLD on every pair of q, σ, T that is tested.
An unsampled continuous Gaussian of multiplier σ has μ = 1/σ exactly and takes no δ₀.

When it stops holding: a mechanism without a loss distribution (the discrete Gaussian) is refused; a
charge that is understated, or a run that is not charged, voids it. For single Laplace or pure
mechanisms the Gaussian that dominates is much wider than they are; the Rényi filter serves them better.

Integers: μ² in units of 1e-9, δ₀ in units of 1e-18; costs are rounded up, caps down.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import dp_accounting
import numpy as np
from dp_accounting import DpEvent
from numpy.typing import NDArray
from scipy.special import ndtri

from privacy.accounting.analytic import gaussian_delta, gaussian_epsilon, gaussian_mu
from privacy.accounting.events import (
    ApproximateDpEvent,
    PureDpEvent,
    event_from_json,
    event_to_json,
    leaves,
    require_priceable,
)
from privacy.accounting.prices import deltas, loss_distribution, rounding_error
from privacy.errors import PlanError, PrivacyError, check_positive

UNITS_PER_MU_SQUARED = 10**9
UNITS_PER_DELTA = 10**18
LEAK_SHARE = 0.5
"""δ₀_cap over δ."""

RELEASES = 25
"""Charges a block can take that are not exactly Gaussian: δ₀ of one is δ₀_cap over this."""

NO_EPSILON = 1e6
"""Shown where the leak alone exceeds δ, so that no ε holds: only a booked-again history gets there."""

_CELLS = 4000
_MOST_UNITS = 2**53  # what a reader with floats only still tells apart
_ROUNDING = 1e-9
Array = NDArray[np.float64]


def dominating_mu(event: DpEvent, leak: float) -> float:
    """Smallest μ, to 1e-7 of it, such that μ-GDP with leak `leak` dominates the event everywhere.

    Everywhere is: in both directions, on every cell of a grid of ε ≥ 0, and beyond its end.

    Args:
        event: Its loss distribution must exist.
        leak: δ₀ in (0, 1).

    Raises:
        PrivacyError: No μ up to 1e3 does, or the check of the result fails.
    """
    return _dominating_mu(json.dumps(event_to_json(event)), leak)


@lru_cache(maxsize=512)
def _dominating_mu(stored: str, leak: float) -> float:
    event = event_from_json(json.loads(stored))
    error = rounding_error(event)
    if error > leak / 10:
        raise PrivacyError(
            f"delta must be at least {10 * RELEASES / LEAK_SHARE * error:.1e} for that many steps "
            f"under filter agdp; got {leak * RELEASES / LEAK_SHARE:.1e}. Take fewer steps, or use a "
            "block with the renyi filter."
        )
    grid, left = _cells(loss_distribution(event), leak, error)
    if len(grid) == 0:
        return 0.0
    needed = (left - leak) / (1 - leak)
    if needed[0] > 1 - 1e-9:
        raise PrivacyError(
            f"the mechanism's total variation must be below 1 - 1e-9 for filter agdp; got {needed[0]}. "
            "Add noise, or take fewer steps."
        )
    high = float(np.max(gaussian_mu(needed, grid))) * (1 + _ROUNDING)
    while not dominates(high, grid, needed):
        high *= 1 + 1e-7
        if high > 1e3:
            raise PrivacyError(
                "no Gaussian up to mu = 1000 dominates the mechanism. Add noise, or use a block with "
                "the renyi filter."
            )
    return high


def _cells(distribution: Any, leak: float, error: float = 0.0) -> tuple[Array, Array]:
    """(right edge, δ_run at the left edge) of every cell in which δ_run exceeds the leak."""

    def run(at: Array) -> Array:
        # The discretised distribution is pessimistic; the slack covers its own rounding.
        return np.minimum(deltas(distribution, at) * (1 + _ROUNDING) + error, 1.0)

    total = float(run(np.zeros(1))[0])
    if total <= leak:
        return np.empty(0), np.empty(0)
    end = 1e-3
    while float(run(np.array([end]))[0]) > leak:
        end *= 1.5
        if end > 1e4:
            raise PrivacyError(
                f"the mechanism's loss exceeds {end:g} more often than {leak:g}: it is out of range. "
                "Add noise."
            )
    # The Gaussian with the same total variation sets the scale of the first cells.
    scale = max(2 * float(ndtri((1 + min(total, 1 - 1e-12)) / 2)), 1e-9)
    fine = np.linspace(0.0, min(scale / 4, end), _CELLS // 4)
    edges = np.unique(np.concatenate([fine, np.linspace(0.0, end, _CELLS)]))
    return edges[1:], run(edges[:-1])


def dominates(mu: float, right: Array, needed: Array) -> bool:
    """Whether μ-GDP reaches, at every cell's right edge, what the run needs at its left edge."""
    return bool(np.all(gaussian_delta(mu, right) * (1 - _ROUNDING) >= needed))


@lru_cache(maxsize=256)
def _caps(epsilon: float, delta: float) -> tuple[int, int]:
    leaks = math.floor(delta * LEAK_SHARE * UNITS_PER_DELTA)
    share = leaks / UNITS_PER_DELTA
    wanted = (delta - share) / (1 - share)
    low, high = 0.0, 1e3
    for _ in range(200):
        middle = (low + high) / 2
        fits = middle == 0 or gaussian_delta(middle, epsilon) * (1 + _ROUNDING) <= wanted
        low, high = (middle, high) if fits else (low, middle)
    return math.floor(low * low * UNITS_PER_MU_SQUARED), leaks


@dataclass(frozen=True)
class GaussianFilter:
    """The gate's arithmetic at one (ε, δ); components (μ², δ₀), every one of which must fit.

    Attributes:
        epsilon: The block's ε cap, finite and > 0.
        delta: The block's δ, in (0, 1e-2].
    """

    epsilon: float
    delta: float
    name: ClassVar[str] = "agdp"
    orders: ClassVar[tuple[int, ...]] = ()

    def __post_init__(self) -> None:
        check_positive("epsilon_cap", self.epsilon, remedy="Set it when the block is opened.")
        check_positive("delta", self.delta, below=1, remedy="Use less than 1/n.")
        if not 1e-15 <= self.delta <= 1e-2:
            raise PlanError(
                f"delta must lie in [1e-15, 0.01] for filter agdp; got {self.delta}. Use less than 1/n."
            )

    @property
    def leak(self) -> float:
        """δ₀ of one charge that is not exactly Gaussian."""
        return self._leak_units / UNITS_PER_DELTA

    @property
    def _leak_units(self) -> int:
        return self.caps()[1] // RELEASES

    def caps(self) -> tuple[int, ...]:
        """(μ_cap², δ₀_cap) in units, rounded down."""
        return _caps(self.epsilon, self.delta)

    def costs(self, event: DpEvent) -> tuple[int, ...]:
        """(μ², δ₀) of the event in units, rounded up.

        Raises:
            UnsupportedMechanism: A part has no loss distribution.
            PrivacyError: A number out of range, or more than any block holds.
        """
        require_priceable(event)
        exact, own, rest = Fraction(0), Fraction(0), []
        for part, count in leaves(event):
            if isinstance(part, dp_accounting.GaussianDpEvent):
                exact += count / Fraction(float(part.noise_multiplier)) ** 2
                continue
            known = part
            if isinstance(part, ApproximateDpEvent):
                known = PureDpEvent(part.epsilon)
                own += count * Fraction(part.delta)
            rest.append(dp_accounting.SelfComposedDpEvent(known, count))
        units = math.ceil(exact * UNITS_PER_MU_SQUARED)
        if rest:
            mu = dominating_mu(dp_accounting.ComposedDpEvent(rest), self.leak)
            units += math.ceil(Fraction(mu) ** 2 * UNITS_PER_MU_SQUARED)
        leak = math.ceil(own * UNITS_PER_DELTA) + (self._leak_units if rest else 0)
        if units >= _MOST_UNITS or leak >= UNITS_PER_DELTA:
            raise PrivacyError(
                f"mu squared must be below {_MOST_UNITS / UNITS_PER_MU_SQUARED:g} and delta0 below 1; "
                f"got {units / UNITS_PER_MU_SQUARED:g} and {leak / UNITS_PER_DELTA:g}. Add noise, or "
                "take fewer steps."
            )
        return max(1, units), leak

    def epsilon_of(self, used: Sequence[int]) -> float:
        """The ε that `used` units would claim at this δ; 0 if nothing has been used."""
        if len(used) != len(self.caps()):
            raise PlanError(f"expected 2 costs (mu squared, delta0); got {len(used)}.")
        if not any(used):
            return 0.0
        leak = used[1] / UNITS_PER_DELTA
        if leak >= self.delta:
            return NO_EPSILON
        return gaussian_epsilon(
            math.sqrt(used[0] / UNITS_PER_MU_SQUARED), (self.delta - leak) / (1 - leak)
        )

    def share(self, used: Sequence[int]) -> float:
        """Share of the cap that is used up: of ε or of δ₀, whichever is scarcer."""
        return max(self.epsilon_of(used) / self.epsilon, used[1] / self.caps()[1])

    def admits(self, used: Sequence[int], cost: Sequence[int]) -> bool:
        """Whether `cost` on top of `used` stays within both caps."""
        return all(u + c <= cap for u, c, cap in zip(used, cost, self.caps(), strict=True))
