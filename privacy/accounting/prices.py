"""Prices of one pre-fixed event: tight ε by loss distributions, ε by Rényi composition, calibration.

Every number is a function of *declared* quantities only (q, σ, T, δ), never of data. `pld_epsilon` is
tight up to a pessimistic discretisation; it speaks of one sequence fixed beforehand and must never gate
an adaptive sequence of runs: that is what the filters are for. `rdp_epsilon` is an upper bound.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import dp_accounting
from dp_accounting import DpEvent, dp_event, pld, rdp
from dp_accounting.pld import common, privacy_loss_distribution

from privacy.accounting.events import (
    ExponentialDpEvent,
    PureDpEvent,
    event_from_json,
    event_to_json,
    finite,
    leaves,
    require_priceable,
    rounded_up,
)
from privacy.errors import PrivacyError, UnsupportedMechanism, check_positive

LEAST_NOISE_FOR_PLD = 0.05
"""Below, the discretised loss distribution outgrows memory."""


def loss_distribution(event: DpEvent) -> Any:
    """The event's privacy loss distribution, pessimistic, both directions (dp_accounting's object).

    Raises:
        UnsupportedMechanism: A part has none (the discrete Gaussian).
        PrivacyError: A part's noise is out of range.
    """
    require_priceable(event, LEAST_NOISE_FOR_PLD)
    return _composed(json.dumps(event_to_json(event)))


@lru_cache(maxsize=128)
def _composed(stored: str) -> Any:
    """Of an event in its stored form, which can be compared where the event itself cannot."""
    event = event_from_json(json.loads(stored))
    accountant, pure = pld.PLDAccountant(), []
    for part, count in leaves(event):
        if isinstance(part, PureDpEvent | ExponentialDpEvent):
            pure.append((part.epsilon, count))
        elif accountant.supports(part):
            accountant.compose(part, count)
        else:
            raise UnsupportedMechanism(
                f"{type(part).__name__} has no loss distribution here. Use a block with the renyi "
                "filter."
            )
    composed = accountant._pld  # noqa: SLF001 - the accountant has no public way to its distribution
    for epsilon, count in pure:
        terms = common.DifferentialPrivacyParameters(epsilon, 0.0)
        single = privacy_loss_distribution.from_privacy_parameters(terms)
        composed = composed.compose(single.self_compose(count))
    return composed


def pld_epsilon(event: DpEvent, *, delta: float) -> float:
    """Tight ε of one pre-fixed event at `delta`, rounded up to 1e-6."""
    check_positive("delta", delta, below=1, remedy="Use less than 1/n, for example 1e-5.")
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
    from privacy.accounting.renyi import zcdp_rho  # noqa: PLC0415 - renyi imports events only

    if isinstance(
        part,
        dp_accounting.GaussianDpEvent
        | dp_accounting.PoissonSampledDpEvent
        | dp_accounting.LaplaceDpEvent,
    ):
        return part
    return dp_event.ZCDpEvent(zcdp_rho(part))


def calibrate_noise(
    make_event: Callable[[float], DpEvent],
    *,
    epsilon: float,
    delta: float,
    price: Callable[..., float] = pld_epsilon,
) -> float:
    """Smallest noise multiplier (4 significant digits, rounded up) whose ε is at most `epsilon`.

    The result is re-accounted after rounding: it never exceeds the target.

    Args:
        make_event: noise multiplier → event; its ε must fall as the multiplier grows.
        epsilon: Target, finite and > 0.
        delta: In (0, 1).
        price: `pld_epsilon`, or `rdp_epsilon` for a mechanism that has Rényi bounds only.

    Raises:
        PrivacyError: No multiplier in the priced range reaches the target.
    """
    check_positive("epsilon", epsilon, remedy="Set training.epsilon in the profile.")
    check_positive("delta", delta, below=1, remedy="Use less than 1/n, for example 1e-5.")
    high = 1.0
    while price(make_event(high), delta=delta) > epsilon:
        high *= 4
        if high > 1e6:
            raise PrivacyError(
                f"no noise up to 1e6 reaches epsilon={epsilon} at delta={delta}. Raise epsilon, "
                "or take fewer steps."
            )
    # Walk down from above: far below the answer, pricing is slow and of no use.
    low = high / 2
    while price(make_event(low), delta=delta) <= epsilon:
        low, high = low / 2, low
    while high - low > 1e-5 * high:
        middle = math.sqrt(low * high)
        if price(make_event(middle), delta=delta) > epsilon:
            low = middle
        else:
            high = middle
    sigma = _rounded_up_to_digits(high, 4)
    if price(make_event(sigma), delta=delta) > epsilon:
        raise PrivacyError(f"calibration failed: sigma={sigma} exceeds epsilon={epsilon}.")
    return sigma


def _rounded_up_to_digits(value: float, digits: int) -> float:
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return math.ceil(value * scale) / scale
