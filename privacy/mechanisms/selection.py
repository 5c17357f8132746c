"""Choosing one of a declared list by its score: exponential mechanism and permute-and-flip.

Relation: add/remove of one unit. Sensitivity Δ: the most by which one unit moves *any one* score. The
candidates and Δ are declared; only the scores come from the data. Let s* be the best score, c = 2, and
w_i = exp(−ε·(s* − s_i)/(c·Δ)), a number in (0, 1].

- Exponential mechanism (McSherry and Talwar 2007): P(i) = w_i/Σw. One unit moves s_i by at most Δ, so
  exp(ε·s_i/(2Δ)) and its sum move by a factor of at most exp(ε/2) each: ε-DP. It is ε-bounded-range as
  well, which `exponential_event` prices.
- Permute-and-flip (McKenna and Sheldon 2020): go through the candidates in random order, and take each
  with probability w_i; the best is taken for sure when reached. ε-DP, and its expected score is never
  below the exponential mechanism's. It is *not* bounded-range: its price is that of any ε-DP mechanism.

`one_way=True` states that adding a unit moves every score the same way (counts do). Then the factors
cannot pull apart, and c = 1 does for both at the same ε.

Draws are exact, from whole numbers: a candidate drawn evenly and kept with probability w_i is the first
law; the second is its own recipe. Scores are whole numbers or fractions, so that no rounding moves them
by more than Δ. It stops holding if Δ is too small, if the list depends on the data, or if the time that
a choice took is shown: it depends on the scores.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational

from dp_accounting import DpEvent

from privacy.accounting import exponential_event, pure_event
from privacy.errors import PlanError, check_positive
from privacy.mechanisms.exact import RandBelow, bernoulli_exp


@dataclass(frozen=True, kw_only=True)
class _Selection:
    """What both mechanisms declare.

    Attributes:
        epsilon: ε of one choice, finite and > 0; taken as the exact fraction that the float is.
        sensitivity: Δ, a whole number or a fraction > 0.
        one_way: A unit that joins moves all scores up, or all down. False if in doubt.
    """

    epsilon: float
    sensitivity: Fraction | int
    one_way: bool = False

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon, remedy="State the ε of one choice.")
        if _exact("sensitivity", self.sensitivity) <= 0:
            raise PlanError(
                f"sensitivity must be > 0; got {self.sensitivity}. State the most that one unit moves a "
                "score."
            )

    def _gaps(self, scores: Sequence[Fraction | int]) -> list[Fraction]:
        """ε·(s* − s_i)/(c·Δ) of each candidate: coins are exp(−gap)."""
        if len(scores) == 0:
            raise PlanError("scores must hold >= 1 candidate; got 0. Declare what may be chosen.")
        exact = [_exact("score", score) for score in scores]
        best = max(exact)
        rate = Fraction(self.epsilon) / (
            (1 if self.one_way else 2) * _exact("sensitivity", self.sensitivity)
        )
        return [rate * (best - score) for score in exact]


@dataclass(frozen=True, kw_only=True)
class ExponentialMechanism(_Selection):
    """P(i) ∝ exp(ε·s_i/(2Δ)); exp(ε·s_i/Δ) if `one_way`. ε-DP under add/remove of one unit."""

    @property
    def event(self) -> DpEvent:
        """What one choice is charged as."""
        return exponential_event(epsilon=self.epsilon)

    def choose(
        self, scores: Sequence[Fraction | int], *, randbelow: RandBelow = secrets.randbelow
    ) -> int:
        """The position of the chosen candidate.

        Args:
            scores: One a candidate, whole numbers or fractions; sensitive.
            randbelow: Source of uniform integers; the operating system's by default.

        Raises:
            PlanError: No candidate, or a score that is no exact number.
        """
        gaps = self._gaps(scores)
        while True:
            i = randbelow(len(gaps))
            if bernoulli_exp(gaps[i], randbelow):
                return i


@dataclass(frozen=True, kw_only=True)
class PermuteAndFlip(_Selection):
    """In random order, the first whose coin exp(−ε·(s* − s_i)/(2Δ)) falls heads. ε-DP, add/remove."""

    @property
    def event(self) -> DpEvent:
        """What one choice is charged as: pure ε, since it is not bounded-range."""
        return pure_event(epsilon=self.epsilon)

    def choose(
        self, scores: Sequence[Fraction | int], *, randbelow: RandBelow = secrets.randbelow
    ) -> int:
        """The position of the chosen candidate.

        Args:
            scores: One a candidate, whole numbers or fractions; sensitive.
            randbelow: Source of uniform integers; the operating system's by default.

        Raises:
            PlanError: No candidate, or a score that is no exact number.
        """
        gaps = self._gaps(scores)
        waiting = list(range(len(gaps)))
        # The best one's coin always falls heads, so the list never runs empty.
        while True:
            i = waiting.pop(randbelow(len(waiting)))
            if bernoulli_exp(gaps[i], randbelow):
                return i


def _exact(name: str, value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, Rational):
        raise PlanError(
            f"{name} must be a whole number or a fraction; got {value!r}. Round it to a declared grid, "
            "and count the rounding in the sensitivity."
        )
    # numpy's whole numbers would overflow inside a fraction.
    return Fraction(int(value.numerator), int(value.denominator))
