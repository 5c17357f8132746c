"""The least noise that reaches an ε: searched, rounded up, priced again.

The search runs over the multipliers of four significant digits, so what it returns is the smallest of
them whose price is within the target, and the price that was compared is the price of the very number
returned. It never returns a number on the wrong side, however extreme the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dp_accounting import DpEvent

from privacy.accounting.prices import pld_epsilon, rdp_epsilon
from privacy.errors import PrivacyError, UnsupportedMechanism, check_positive

_DIGITS = 1000  # multipliers are k·10^e with k in 1000 … 9999
_LEAST_RUNG, _MOST_RUNG = -27000, 54000  # 1e-3 and 1e6


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

    Returns:
        The multiplier, in [1e-3, 1e6]; where the accountant cannot price as little noise as the target
        allows, the least that it can.

    Raises:
        PrivacyError: No multiplier up to 1e6 reaches the target.
    """
    check_positive("epsilon", epsilon, remedy="Set training.epsilon in the profile.")
    check_positive("delta", delta, below=1, remedy="Use less than 1/n, for example 1e-5.")

    def gap(rung: int) -> float:
        """ln(ε/target): at most 0 where the target is reached; inf where there is no price."""
        try:
            found = price(make_event(_multiplier(rung)), delta=delta)
        except UnsupportedMechanism:
            raise
        except PrivacyError:
            # Too little noise for this accountant; the search must end above it, not stop here.
            return math.inf
        if found <= epsilon:
            return min(-1e-12, math.log(max(found, epsilon * 1e-9) / epsilon))
        return max(1e-12, math.log(found / epsilon))

    start = _rung(1.0)
    if price is pld_epsilon:
        # An upper bound is quick, and starts the search near the answer: far below it, a tight price
        # takes minutes and gigabytes.
        start = _guess(make_event, epsilon, delta)
    return _multiplier(_search(gap, start, epsilon, delta))


def _guess(make_event: Callable[[float], DpEvent], epsilon: float, delta: float) -> int:
    try:
        return _rung(calibrate_noise(make_event, epsilon=epsilon, delta=delta, price=rdp_epsilon))
    except PrivacyError:
        return _rung(1.0)


def _search(gap: Callable[[int], float], start: int, epsilon: float, delta: float) -> int:
    high, above = start, gap(start)
    step = 1000  # rungs; 9000 are a factor of ten
    low, below = start, above
    while above > 0:
        if high == _MOST_RUNG:
            raise PrivacyError(
                f"no noise up to 1e6 reaches epsilon={epsilon} at delta={delta}. Raise epsilon, "
                "or take fewer steps."
            )
        low, below = high, above
        high = min(high + step, _MOST_RUNG)
        step *= 2
        above = gap(high)
    step = 1000
    while below <= 0:
        if low == _LEAST_RUNG:
            return low
        high, above = low, below
        low = max(low - step, _LEAST_RUNG)
        step = min(2 * step, 3000)
        below = gap(low)
    # ε is close to a power of the multiplier, so straight lines in logarithms soon hit; every third
    # guess halves, which ends the search whatever the curve.
    turn = 0
    while high - low > 1:
        turn += 1
        middle = (low + high) // 2
        if turn % 3 and math.isfinite(below):
            x, y = math.log(_multiplier(low)), math.log(_multiplier(high))
            middle = _rung(math.exp(x + (y - x) * below / (below - above)))
            middle = min(max(middle, low + 1), high - 1)
        found = gap(middle)
        if found > 0:
            low, below = middle, found
        else:
            high, above = middle, found
    return high


def _multiplier(rung: int) -> float:
    """The rung-th number of four significant digits, counted from 1."""
    exponent, offset = divmod(rung, 9 * _DIGITS)
    return float(f"{_DIGITS + offset}e{exponent - 3}")


def _rung(multiplier: float) -> int:
    exponent = math.floor(math.log10(multiplier))
    offset = round(multiplier / 10.0**exponent * _DIGITS) - _DIGITS
    return exponent * 9 * _DIGITS + offset
