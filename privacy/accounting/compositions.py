"""The ε of one pre-fixed event under each way of composing it, side by side, for comparison.

Only a filter gates. PLD is the tight figure for one run; RDP an upper bound; zCDP composes the
*unamplified* Gaussian, since Poisson sampling keeps no useful zCDP; basic and advanced composition
(Dwork, Rothblum and Vadhan 2010) add up amplified (ε, δ) steps, and show what their use would cost.
"""

from __future__ import annotations

import math

import dp_accounting
from dp_accounting import DpEvent
from scipy import optimize

from privacy.accounting.analytic import gaussian_epsilon
from privacy.accounting.events import leaves, pure_epsilon, rounded_up
from privacy.accounting.filters import make_filter
from privacy.accounting.prices import pld_epsilon, rdp_epsilon
from privacy.accounting.renyi import zcdp_rho
from privacy.errors import PrivacyError, UnsupportedMechanism, check_positive

_ANY_CAP = 10.0


def compare(event: DpEvent, *, delta: float) -> dict[str, float | None]:
    """ε at `delta` by pld, rdp, agdp, renyi, zcdp, advanced, basic; None where there is no such form.

    There is none where a mechanism lacks what the form composes (a loss distribution for pld and agdp, a
    δ of 0 for rdp, renyi and zcdp, an ε of one step for advanced and basic), or where a number is out
    of the form's own range: little noise for pld and agdp, a δ above 1e-2 for agdp.

    Raises:
        UnsupportedMechanism: A kind that no price is known for.
        PlanError: A number of the event, or δ, is out of its range.
    """
    check_positive("delta", delta, below=1, remedy="Use less than 1/n, for example 1e-5.")
    leaves(event)

    def filtered(name: str) -> float:
        gate = make_filter(name, epsilon=_ANY_CAP, delta=delta)
        return gate.epsilon_of(gate.costs(event))

    forms = {
        "pld": lambda: pld_epsilon(event, delta=delta),
        "rdp": lambda: rdp_epsilon(event, delta=delta),
        "agdp": lambda: filtered("agdp"),
        "renyi": lambda: filtered("renyi"),
        "zcdp": lambda: _zcdp(event, delta),
        "advanced": lambda: _advanced(event, delta),
        "basic": lambda: _basic(event, delta),
    }
    found: dict[str, float | None] = {}
    for name, form in forms.items():
        try:
            found[name] = form()
        except PrivacyError:
            found[name] = None
    return found


def _zcdp(event: DpEvent, delta: float) -> float:
    rho = 0.0
    for part, count in leaves(event):
        inner = part.event if isinstance(part, dp_accounting.PoissonSampledDpEvent) else part
        rho += count * zcdp_rho(inner)
    return zcdp_epsilon(rho, delta)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """ε of a ρ-zCDP mechanism: the best order of Canonne, Kamath and Steinke (2020, prop. 12)."""

    def claim(log_above_one: float) -> float:
        above = math.exp(log_above_one)
        alpha = 1 + above
        gained = (math.log(1 / delta) - math.log(alpha)) / above
        return alpha * rho + gained + math.log(above) - math.log(alpha)

    # Any order is valid; the one that the plain conversion would take is close to the best.
    start = math.log(math.sqrt(math.log(1 / delta) / rho))
    best = optimize.minimize_scalar(claim, bounds=(start - 4, start + 4), method="bounded")
    return rounded_up(max(0.0, min(claim(start), float(best.fun))), 6)


def _basic(event: DpEvent, delta: float) -> float:
    return sum(count * epsilon for epsilon, count in _steps(event, delta))


def _advanced(event: DpEvent, delta: float) -> float:
    """Advanced composition of unequal steps, half of δ for the deviation (Kairouz et al. 2015)."""
    steps = _steps(event, delta / 2)
    mean = sum(n * e * math.tanh(e / 2) for e, n in steps)
    squares = sum(n * e * e for e, n in steps)
    return mean + math.sqrt(2 * math.log(2 / delta) * squares)


def _steps(event: DpEvent, delta: float) -> list[tuple[float, int]]:
    """(ε of one step, count), δ shared evenly by the steps that need one; sampling amplifies."""
    parts = leaves(event)
    steps = sum(count for part, count in parts if pure_epsilon(part) is None)
    found = []
    for part, count in parts:
        pure = pure_epsilon(part)
        if pure is not None:
            found.append((pure, count))
            continue
        rate = 1.0
        inner = part
        if isinstance(part, dp_accounting.PoissonSampledDpEvent):
            rate, inner = float(part.sampling_probability), part.event
        if not isinstance(inner, dp_accounting.GaussianDpEvent):
            raise UnsupportedMechanism(f"{type(inner).__name__} has no (ε, δ) step here.")
        alone = gaussian_epsilon(
            1 / float(inner.noise_multiplier), min(delta / steps / rate, 0.999)
        )
        # Amplification by sampling: (ε, δ) becomes (ln(1 + q(e^ε − 1)), qδ).
        large = alone > 700  # beyond floats: ln q + ε
        amplified = alone + math.log(rate) if large else math.log1p(rate * math.expm1(alone))
        found.append((amplified, count))
    return found
