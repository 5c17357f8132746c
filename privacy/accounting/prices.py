"""Prices of one pre-fixed event: tight ε by loss distributions, and ε by Rényi composition.

Every number is a function of *declared* quantities only (q, σ, T, δ), never of data. `pld_epsilon` is
tight up to a pessimistic discretisation; it speaks of one sequence fixed beforehand and must never gate
an adaptive sequence of runs: that is what the filters are for. `rdp_epsilon` is an upper bound.

A loss distribution's cells are 1e-4 wide, and wider where the losses reach so far that 1e-4 would mean
more than two million cells; rounding stays pessimistic at any width.
"""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import Any

import dp_accounting
import numpy as np
from dp_accounting import DpEvent, dp_event, pld, rdp
from dp_accounting.pld import common, privacy_loss_distribution
from numpy.typing import NDArray

from privacy.accounting.analytic import gaussian_epsilon
from privacy.accounting.events import (
    ApproximateDpEvent,
    ExponentialDpEvent,
    PureDpEvent,
    event_from_json,
    event_to_json,
    finite,
    leaves,
    require_priceable,
    rounded_up,
)
from privacy.accounting.renyi import renyi_divergence, zcdp_rho
from privacy.errors import PrivacyError, UnsupportedMechanism, check_positive

LEAST_NOISE_FOR_PLD = 0.05
"""Below, the discretised loss distribution outgrows memory."""

_CELL, _MOST_CELLS = 1e-4, 2e6
_REACH_ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)
_BY_NOBODY = math.log(1e15)  # a loss exceeded with probability 1e-15 is cut off, pessimistically


def loss_distribution(event: DpEvent) -> Any:
    """The event's privacy loss distribution, pessimistic, both directions (dp_accounting's object).

    Raises:
        UnsupportedMechanism: A part has none (the discrete Gaussian).
        PrivacyError: A part's noise is out of range.
    """
    require_priceable(event, LEAST_NOISE_FOR_PLD)
    return _composed(json.dumps(event_to_json(event)))


def deltas(distribution: Any, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
    """δ at each ε ≥ 0, the larger of both directions: `get_delta_for_epsilon`, thirty times faster."""
    masses = {id(m): m for m in (distribution._pmf_remove, distribution._pmf_add)}  # noqa: SLF001
    return np.max([_read(mass.to_dense_pmf(), epsilons) for mass in masses.values()], axis=0)


def _read(mass: Any, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
    # The library's own reading of many ε is a Python loop over all losses, hence its private parts.
    width, first, probabilities = mass._discretization, mass._lower_loss, mass._probs  # noqa: SLF001
    losses = (first + np.arange(len(probabilities))) * width
    probabilities = np.asarray(probabilities)[losses > 0]
    losses = losses[losses > 0]
    # Σ_{l>ε} (1 − e^(ε−l))·p, as two sums over the tail; e^ε is let in where something is left.
    above = np.append(np.cumsum(probabilities[::-1])[::-1], 0.0)
    below = np.append(np.cumsum((probabilities * np.exp(-losses))[::-1])[::-1], 0.0)
    at = np.searchsorted(losses, epsilons, side="right")
    reached = np.minimum(epsilons, losses[-1] if len(losses) else 0.0)
    found = above[at] - np.exp(np.minimum(reached, 700.0)) * below[at]
    return np.asarray(mass._infinity_mass + np.maximum(found, 0.0))  # noqa: SLF001


def rounding_error(event: DpEvent) -> float:
    """Bound on the absolute error of a δ read from the event's distribution, by Fourier transforms.

    Against the closed form of a T-fold Gaussian the error was 2e-17·T at most; this is five times it.
    """
    return 1e-14 + 1e-16 * sum(count for _, count in leaves(event))


@lru_cache(maxsize=32)
def _composed(stored: str) -> Any:
    """Of an event in its stored form, which can be compared where the event itself cannot."""
    event = event_from_json(json.loads(stored))
    accountant = pld.PLDAccountant(value_discretization_interval=_cell_width(event))
    try:
        return _with_pure_parts(event, accountant)
    except UnsupportedMechanism:
        raise
    except (ArithmeticError, IndexError, MemoryError, ValueError) as error:
        raise PrivacyError(
            "noise, sample_rate and steps must be such that a loss distribution can be computed; the "
            f"accountant stopped with: {error}. Use more noise or fewer steps."
        ) from None


def _with_pure_parts(event: DpEvent, accountant: Any) -> Any:
    pure = []
    for part, count in leaves(event):
        if isinstance(part, PureDpEvent | ExponentialDpEvent | ApproximateDpEvent):
            delta = part.delta if isinstance(part, ApproximateDpEvent) else 0.0
            pure.append((part.epsilon, delta, count))
        elif accountant.supports(part):
            accountant.compose(part, count)
        else:
            raise UnsupportedMechanism(
                f"{type(part).__name__} has no loss distribution here. Use a block with the renyi "
                "filter."
            )
    composed = accountant._pld  # noqa: SLF001 - the accountant has no public way to its distribution
    for epsilon, delta, count in pure:
        terms = common.DifferentialPrivacyParameters(epsilon, delta)
        single = privacy_loss_distribution.from_privacy_parameters(
            terms, value_discretization_interval=_cell_width(event)
        )
        composed = composed.compose(single.self_compose(count))
    return composed


def _cell_width(event: DpEvent) -> float:
    """1e-4, or more where the total loss is large: from Rényi bounds, which are quick."""

    def bound(order: int) -> float:
        total = 0.0
        for part, count in leaves(event):
            known = PureDpEvent(part.epsilon) if isinstance(part, ApproximateDpEvent) else part
            total += count * renyi_divergence(known, order)
        return total + _BY_NOBODY / (order - 1)

    reach = min(bound(order) for order in _REACH_ORDERS)
    return max(_CELL, reach / _MOST_CELLS)


def pld_epsilon(event: DpEvent, *, delta: float) -> float:
    """Tight ε of one pre-fixed event at `delta`, rounded up to 1e-6.

    Raises:
        UnsupportedMechanism: A part without a loss distribution.
        PrivacyError: A number out of its range, or no finite ε at this δ.
    """
    check_positive("delta", delta, below=1, remedy="Use less than 1/n, for example 1e-5.")
    require_priceable(event)
    parts = leaves(event)
    if all(isinstance(part, dp_accounting.GaussianDpEvent) for part, _ in parts):
        # Gaussians compose to one, whose ε has a closed form.
        squared = math.fsum(n / float(part.noise_multiplier) ** 2 for part, n in parts)
        return finite(gaussian_epsilon(math.sqrt(squared), delta))
    found = loss_distribution(event).get_epsilon_for_delta(delta)
    return rounded_up(finite(found), 6)


def rdp_epsilon(event: DpEvent, *, delta: float) -> float:
    """Upper bound on ε by Rényi composition over dp_accounting's default orders."""
    check_positive("delta", delta, below=1, remedy="Use less than 1/n, for example 1e-5.")
    require_priceable(event)
    accountant = rdp.RdpAccountant()
    for part, count in leaves(event):
        known = _as_known_to_rdp(part)
        if not accountant.supports(known):
            raise UnsupportedMechanism(f"{type(part).__name__} has no Rényi bound here.")
        accountant.compose(known, count)
    return finite(accountant.get_epsilon(delta))


def _as_known_to_rdp(part: DpEvent) -> DpEvent:
    """The part, or one that dp_accounting knows and whose Rényi divergence is at least as large."""
    if isinstance(
        part,
        dp_accounting.GaussianDpEvent
        | dp_accounting.PoissonSampledDpEvent
        | dp_accounting.LaplaceDpEvent,
    ):
        return part
    return dp_event.ZCDpEvent(zcdp_rho(part))
