"""Coins with exact probabilities, from uniform whole numbers alone.

Guaranteed: each function returns true, or a value, with exactly the stated probability, as long as
`randbelow(n)` is uniform over 0 … n−1: all arithmetic is on whole numbers and fractions (Canonne, Kamath
and Steinke 2020, algorithms 1 and 2). Not guaranteed: constant time. How long a draw takes depends on
what is drawn, so the time of one release must not be shown to whoever is to learn the release only.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

RandBelow = Callable[[int], int]
"""n → a uniform whole number in [0, n)."""


def bernoulli(p: Fraction, randbelow: RandBelow) -> bool:
    """True with probability p in [0, 1]."""
    return randbelow(p.denominator) < p.numerator


def bernoulli_exp(gamma: Fraction, randbelow: RandBelow) -> bool:
    """True with probability exp(−gamma), for gamma ≥ 0."""
    while gamma > 1:
        if not bernoulli_exp(Fraction(1), randbelow):
            return False
        gamma -= 1
    k = 1
    while bernoulli(gamma / k, randbelow):
        k += 1
    return k % 2 == 1


def two_sided_geometric(rate: Fraction, randbelow: RandBelow) -> int:
    """A whole number x with P(x) ∝ exp(−rate·|x|), for rate > 0."""
    over, under = rate.denominator, rate.numerator
    while True:
        u = randbelow(over)
        if not bernoulli_exp(Fraction(u, over), randbelow):
            continue
        v = 0
        while bernoulli_exp(Fraction(1), randbelow):
            v += 1
        # u + over·v is geometric at rate 1/over; dropping the remainder by `under` makes it `rate`.
        magnitude = (u + over * v) // under
        negative = randbelow(2) == 1
        if negative and magnitude == 0:
            continue
        return -magnitude if negative else magnitude
