"""Prices of mechanisms: events, tight ε, and the Rényi filter's integer costs.

Relation: add/remove of one privacy unit, Poisson sampling over units. Every number here is a
function of *declared* quantities only (q, σ, T, δ), never of data.

Three prices of the same event, and when each may be used:

* `pld_epsilon`: tight (privacy loss distributions, pessimistic discretisation) for one mechanism
  sequence fixed beforehand. Not a filter: it must never gate an adaptive sequence of runs.
* `rdp_epsilon`: an upper bound from Rényi divergences, by dp_accounting; for comparison.
* `RenyiFilter`: what the ledger gates on. Valid under fully adaptive choice of later mechanisms.

The filter's argument. Fix adjacent inputs, and let L_t be the privacy loss after t mechanisms, each
chosen from the past, with Rényi costs ρ_t(α) given that past. For every α > 1,
M_t(α) = exp((α−1)·L_t − (α−1)·Σ_{s≤t} ρ_s(α)) is a supermartingale under the first input (the
conditional expectation of exp((α−1)·loss_t) is exp((α−1)·D_α) and D_α ≤ ρ_t(α)). Let the stopping
rule admit a mechanism only if, for *some* α in the grid Λ, the running total stays within cap(α).
Each α has its own stopped process: the longest prefix with Σρ(α) ≤ cap(α). By optional stopping the
Rényi divergence of order α of that stopped process is at most cap(α), and the conversion of
Canonne, Kamath and Steinke (2020, prop. 12), applied with δ/|Λ|, gives ε at every α with

    cap(α) = ε + [ln(δ/|Λ|) + ln α]/(α−1) − ln(1−1/α).

Whatever the adaptive sequence does, its realised prefix is the stopped prefix of one α in Λ; a union
over Λ adds the |Λ| parts δ/|Λ| to δ. (Feldman and Zrnic 2021 for one order; Rogers et al. 2016 for
the notion of a filter.) The argument stops holding when a cost is under-stated, when a mechanism
depends on anything but the history it was charged with, or when a run is not charged.

Integers: one unit is 1e-9 nat. Costs are rounded up, caps down, so a sum of units can only refuse
too early.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import dp_accounting
from dp_accounting import DpEvent, pld, rdp

from privacy.errors import (
    PlanError,
    PrivacyError,
    UnsupportedMechanism,
    check_positive,
    check_whole,
)

UNITS_PER_NAT = 10**9
"""Ledger units in one nat of Rényi divergence."""

ORDERS: tuple[int, ...] = (2, 3, 4, 5, 6, 8, 11, 16, 24, 40, 64, 128)
"""The filter's grid Λ: at most 12 integer orders; frozen in a block when it is opened."""

ACCOUNTANT = f"dp-accounting {version('dp-accounting')}"
"""Stored with every charge, so that a later reader knows which code priced it."""


def dpsgd_event(*, noise_multiplier: float, sample_rate: float, steps: int) -> DpEvent:
    """The event of `steps` Poisson-sampled Gaussian steps.

    Args:
        noise_multiplier: σ, the noise's standard deviation over the clip norm; finite, > 0.
        sample_rate: q in (0, 1].
        steps: T ≥ 1.

    Raises:
        PlanError: A value is out of its range.
    """
    _check_noise(noise_multiplier)
    check_positive("sample_rate", sample_rate, remedy="It is a probability: use at most 1.")
    if sample_rate > 1:
        raise PlanError(f"sample_rate must be at most 1; got {sample_rate}. It is a probability.")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise PlanError(f"steps must be a whole number >= 1; got {steps}. Set training.steps.")
    gaussian = dp_accounting.GaussianDpEvent(noise_multiplier)
    sampled = dp_accounting.PoissonSampledDpEvent(sample_rate, gaussian)
    return dp_accounting.SelfComposedDpEvent(sampled, steps)


def gaussian_event(*, noise_multiplier: float) -> DpEvent:
    """The event of one (continuous or discrete) Gaussian release; σ over the L2 sensitivity."""
    _check_noise(noise_multiplier)
    return dp_accounting.GaussianDpEvent(noise_multiplier)


def event_to_json(event: DpEvent) -> dict[str, Any]:
    """Serialise an event (schema 1). Inverse of `event_from_json`.

    Raises:
        UnsupportedMechanism: The event holds a kind that the ledger does not know.
    """
    if isinstance(event, dp_accounting.GaussianDpEvent):
        return {"kind": "gaussian", "noise_multiplier": float(event.noise_multiplier)}
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        return {
            "kind": "poisson_sampled",
            "sample_rate": float(event.sampling_probability),
            "event": event_to_json(event.event),
        }
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        return {
            "kind": "self_composed",
            "count": int(event.count),
            "event": event_to_json(event.event),
        }
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return {"kind": "composed", "events": [event_to_json(e) for e in event.events]}
    raise UnsupportedMechanism(
        f"mechanism {type(event).__name__} has no price here. Use Gaussian or Poisson-sampled "
        "Gaussian events, alone or composed."
    )


def event_from_json(value: Mapping[str, Any]) -> DpEvent:
    """Rebuild an event; every number is checked again, since the file may have been edited."""
    try:
        return _event_from_json(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, PrivacyError):
            raise
        raise PlanError(
            f"the stored event {value!r} lacks a part or holds a wrong one ({error}). Price the "
            "mechanism again."
        ) from None


def _event_from_json(value: Mapping[str, Any]) -> DpEvent:
    kind = value["kind"]
    if kind == "gaussian":
        return gaussian_event(noise_multiplier=float(value["noise_multiplier"]))
    if kind == "poisson_sampled":
        inner = _event_from_json(value["event"])
        if not isinstance(inner, dp_accounting.GaussianDpEvent):
            raise UnsupportedMechanism(
                f"a Poisson-sampled {value['event']['kind']!r} has no price here; only gaussian has."
            )
        return dpsgd_event(
            noise_multiplier=inner.noise_multiplier,
            sample_rate=float(value["sample_rate"]),
            steps=1,
        ).event
    if kind == "self_composed":
        count = check_whole("count", value["count"], at_least=1, remedy="Price it again.")
        return dp_accounting.SelfComposedDpEvent(_event_from_json(value["event"]), count)
    if kind == "composed":
        return dp_accounting.ComposedDpEvent([_event_from_json(e) for e in value["events"]])
    raise UnsupportedMechanism(f"mechanism kind {kind!r} is unknown to this version.")


def pld_epsilon(event: DpEvent, *, delta: float) -> float:
    """Tight ε of one pre-fixed event at `delta`, rounded up to 1e-6."""
    accountant = pld.PLDAccountant()
    _require_support(accountant, event)
    return _ceil(_finite(accountant.compose(event).get_epsilon(delta)), 6)


def rdp_epsilon(event: DpEvent, *, delta: float) -> float:
    """Upper bound on ε by Rényi composition over dp_accounting's default orders."""
    accountant = rdp.RdpAccountant()
    _require_support(accountant, event)
    return _finite(accountant.compose(event).get_epsilon(delta))


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
        PrivacyError: No multiplier up to 1e6 reaches the target.
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
    sigma = _ceil_significant(high, 4)
    if price(make_event(sigma), delta=delta) > epsilon:
        raise PrivacyError(f"calibration failed: sigma={sigma} exceeds epsilon={epsilon}.")
    return sigma


def renyi_divergence(event: DpEvent, order: int) -> float:
    """Upper bound on the Rényi divergence of integer order ≥ 2, both directions, in nats.

    Gaussian: α/(2σ²). Poisson-sampled Gaussian: the binomial sum of Mironov, Talwar and Zhang
    (2019, eq. 11), whose add direction dominates the remove direction; summed in log space.
    """
    _require_priceable(event)
    check_whole("order", order, at_least=2, remedy="Use the filter's own orders.")
    if isinstance(event, dp_accounting.GaussianDpEvent):
        return order / (2 * float(event.noise_multiplier) ** 2)
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        return int(event.count) * renyi_divergence(event.event, order)
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return math.fsum(renyi_divergence(e, order) for e in event.events)
    if isinstance(event, dp_accounting.PoissonSampledDpEvent) and isinstance(
        event.event, dp_accounting.GaussianDpEvent
    ):
        return _sampled_gaussian(
            float(event.sampling_probability), float(event.event.noise_multiplier), order
        )
    raise UnsupportedMechanism(f"mechanism {type(event).__name__} has no Rényi price here.")


def _sampled_gaussian(q: float, sigma: float, order: int) -> float:
    if q == 1.0:
        return order / (2 * sigma**2)
    # The binomial weights sum to one, so A − 1 = Σ_{k≥2} weight·(exp(x_k) − 1): no cancellation.
    terms = []
    for k in range(2, order + 1):
        x = (k * k - k) / (2 * sigma**2)
        weight = math.log(math.comb(order, k)) + (order - k) * math.log1p(-q) + k * math.log(q)
        terms.append(weight + x + math.log(-math.expm1(-x)))
    largest = max(terms)
    excess = largest + math.log(math.fsum(math.exp(t - largest) for t in terms))
    total = math.log1p(math.exp(excess)) if excess < 0 else excess + math.log1p(math.exp(-excess))
    # Rounding is below 1e-13 of the value; the slack keeps the price an upper bound.
    return total / (order - 1) * (1 + 1e-12)


@dataclass(frozen=True)
class RenyiFilter:
    """The gate's arithmetic at one (ε, δ): caps, costs, and the ε that a used part would claim.

    Attributes:
        epsilon: The block's ε cap, finite and > 0.
        delta: The block's δ, in (0, 1).
        orders: Λ, at most 12 integer orders ≥ 2.
    """

    epsilon: float
    delta: float
    orders: tuple[int, ...] = ORDERS

    def __post_init__(self) -> None:
        check_positive("epsilon_cap", self.epsilon, remedy="Set it when the block is opened.")
        check_positive("delta", self.delta, below=1, remedy="Use less than 1/n.")
        whole = all(isinstance(a, int) and not isinstance(a, bool) and a >= 2 for a in self.orders)
        if not whole or not 1 <= len(self.orders) <= 12:
            raise PlanError(
                f"orders must be 1 to 12 whole numbers >= 2; got {self.orders}. Use "
                "privacy.accounting.ORDERS."
            )

    def _slack(self, order: int) -> float:
        """cap(α) − ε: negative for small orders, where the conversion costs most."""
        log_delta = math.log(self.delta / len(self.orders))
        return (log_delta + math.log(order)) / (order - 1) - math.log1p(-1 / order)

    def caps(self) -> tuple[int, ...]:
        """Cap at each order, in units, rounded down; a negative cap admits nothing at its order."""
        return tuple(
            math.floor((self.epsilon + self._slack(a)) * UNITS_PER_NAT) for a in self.orders
        )

    def costs(self, event: DpEvent) -> tuple[int, ...]:
        """Cost at each order, in units, rounded up; at least 1."""
        return tuple(
            max(1, math.ceil(_finite(renyi_divergence(event, a)) * UNITS_PER_NAT))
            for a in self.orders
        )

    def epsilon_of(self, used: Sequence[int]) -> float:
        """The ε that `used` units would claim at this δ; 0 if nothing has been used."""
        if len(used) != len(self.orders):
            raise PlanError(f"expected {len(self.orders)} costs; got {len(used)}.")
        if not any(used):
            return 0.0
        claims = (
            u / UNITS_PER_NAT - self._slack(a) for u, a in zip(used, self.orders, strict=True)
        )
        return _ceil(max(0.0, min(claims)), 6)

    def admits(self, used: Sequence[int], cost: Sequence[int]) -> bool:
        """Whether `cost` on top of `used` stays within the cap at some order."""
        return any(u + c <= cap for u, c, cap in zip(used, cost, self.caps(), strict=True))


_LEAST_NOISE, _MOST_NOISE = 1e-3, 1e9
_LEAST_NOISE_FOR_PLD = 0.05  # below, the discretised loss distribution outgrows memory


def _check_noise(noise_multiplier: float) -> None:
    """Refuse multipliers that no accountant here can price: they would overflow, not be private."""
    check_positive("noise_multiplier", noise_multiplier, remedy="Calibrate it to an epsilon.")


def _require_priceable(event: DpEvent, least: float = _LEAST_NOISE) -> None:
    for sigma in _noises(event):
        if not least <= sigma <= _MOST_NOISE:
            raise PrivacyError(
                f"noise_multiplier must lie in [{least:g}, {_MOST_NOISE:g}] to be priced; got "
                f"{sigma}. Calibrate it to an epsilon."
            )


def _noises(event: DpEvent) -> list[float]:
    if isinstance(event, dp_accounting.GaussianDpEvent):
        return [float(event.noise_multiplier)]
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return [sigma for part in event.events for sigma in _noises(part)]
    inner = getattr(event, "event", None)
    return [] if inner is None else _noises(inner)


def _require_support(accountant: Any, event: DpEvent) -> None:
    tight = isinstance(accountant, pld.PLDAccountant)
    _require_priceable(event, _LEAST_NOISE_FOR_PLD if tight else _LEAST_NOISE)
    if not accountant.supports(event):
        raise UnsupportedMechanism(
            f"{type(accountant).__name__} cannot price {type(event).__name__}."
        )


def _finite(value: float) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise PrivacyError(f"the accountant returned {value}: the mechanism is out of its range.")
    return number


def _ceil(value: float, digits: int) -> float:
    scale = 10**digits
    return math.ceil(value * scale) / scale


def _ceil_significant(value: float, digits: int) -> float:
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return math.ceil(value * scale) / scale
