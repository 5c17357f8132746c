"""The Rényi filter: the ledger's gate for mechanisms without a loss distribution, hold-outs among them.

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
too early. A mechanism with a δ of its own has no Rényi divergence and is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import dp_accounting
from dp_accounting import DpEvent

from privacy.accounting.events import (
    ApproximateDpEvent,
    DiscreteGaussianDpEvent,
    ExponentialDpEvent,
    finite,
    leaves,
    pure_epsilon,
    require_priceable,
    rounded_up,
)
from privacy.errors import PlanError, UnsupportedMechanism, check_positive, check_whole

UNITS_PER_NAT = 10**9
"""Ledger units in one nat of Rényi divergence."""

ORDERS: tuple[int, ...] = (2, 3, 4, 5, 6, 8, 11, 16, 24, 40, 64, 128)
"""The filter's grid Λ: at most 12 integer orders; frozen in a block when it is opened."""


def renyi_divergence(event: DpEvent, order: int) -> float:
    """Upper bound on the Rényi divergence of integer order ≥ 2, both directions, in nats.

    Gaussian, and discrete Gaussian (Canonne, Kamath and Steinke 2020, prop. 5): α/(2σ²).
    Poisson-sampled Gaussian: the binomial sum of Mironov, Talwar and Zhang (2019, eq. 11), whose add
    direction dominates the remove direction; summed in log space. Laplace: Mironov (2017, prop. 6).
    Pure ε: the least of ε and α·ε²/2 (Bun and Steinke 2016, prop. 3.3). Exponential mechanism: the
    least of ε and α·ε²/8 (Cesar and Rogers 2021).

    Raises:
        UnsupportedMechanism: A part has no bound here.
    """
    require_priceable(event)
    check_whole("order", order, at_least=2, remedy="Use the filter's own orders.")
    return math.fsum(count * _of_one(part, order) for part, count in leaves(event))


def _of_one(part: DpEvent, order: int) -> float:
    if isinstance(part, dp_accounting.PoissonSampledDpEvent) and isinstance(
        part.event, dp_accounting.GaussianDpEvent
    ):
        return _sampled_gaussian(
            float(part.sampling_probability), float(part.event.noise_multiplier), order
        )
    if isinstance(part, dp_accounting.LaplaceDpEvent):
        return _laplace(float(part.noise_multiplier), order)
    rho, pure = zcdp_rho(part), pure_epsilon(part)
    return min(order * rho, math.inf if pure is None else pure)


def zcdp_rho(part: DpEvent) -> float:
    """ρ of an unsampled mechanism: its Rényi divergence of order α is at most ρ·α.

    Raises:
        UnsupportedMechanism: It has none here.
    """
    if isinstance(part, dp_accounting.GaussianDpEvent | DiscreteGaussianDpEvent):
        return 1 / (2 * float(part.noise_multiplier) ** 2)
    pure = pure_epsilon(part)
    if isinstance(part, ApproximateDpEvent):
        raise UnsupportedMechanism(
            f"delta must be 0 for a Rényi price; got a mechanism with delta={part.delta} of its own. "
            "Use a block with the agdp filter."
        )
    if pure is None:
        raise UnsupportedMechanism(f"mechanism {type(part).__name__} has no Rényi price here.")
    return pure**2 / (8 if isinstance(part, ExponentialDpEvent) else 2)


def _laplace(scale: float, order: int) -> float:
    gain = (order - 1) / scale + math.log(order / (2 * order - 1))
    loss = -order / scale + math.log((order - 1) / (2 * order - 1))
    total = gain + math.log1p(math.exp(loss - gain))
    # Cancellation for wide noise: the pure bound is exact enough there, and safe.
    bound = min(1 / scale, order / (2 * scale**2))
    return min(bound, total / (order - 1) * (1 + 1e-12) + 1e-15)


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
    name: ClassVar[str] = "renyi"

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
            max(1, math.ceil(finite(renyi_divergence(event, a)) * UNITS_PER_NAT))
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
        return rounded_up(max(0.0, min(claims)), 6)

    def share(self, used: Sequence[int]) -> float:
        """Share of ε that is used up."""
        return self.epsilon_of(used) / self.epsilon

    def admits(self, used: Sequence[int], cost: Sequence[int]) -> bool:
        """Whether `cost` on top of `used` stays within the cap at some order."""
        return any(u + c <= cap for u, c, cap in zip(used, cost, self.caps(), strict=True))
