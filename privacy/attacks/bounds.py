"""Lower bounds on ε from the successes of an attack, each beside its ceiling.

What this holds: two ways to turn "the attack was right so often" into "the mechanism is not
(ε, δ)-DP for any ε below this", and the rule by which several of them are read together.

What it guarantees: if the mechanism is (ε, δ)-DP under add/remove of one unit, then
``P[lower_bound > ε] ≤ 1 − confidence``, over the coins of the attack and of the mechanism, with
no assumption on the mechanism's distribution.

When that stops: when the threshold or the number of guesses was chosen on the scores it is
applied to; when the trials are not independent (Clopper-Pearson) or the canaries' coins are not
fair and independent (one run); when the best of several bounds is read at the confidence of a
single one (see ``combine``). A lower bound never proves privacy: it can only disprove a claim,
and only up to its ceiling.

Sources: Kairouz, Oh, Viswanath 2015 (hypothesis-testing region of (ε, δ)-DP, Theorem 2.1);
Clopper, Pearson 1934; Jagielski, Ullman, Oprea 2020 (bound from repeated runs); Steinke, Nasr,
Jagielski 2023, arXiv:2305.08846 (one run, main theorem for (ε, δ)).
"""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy import special

Verdict = Literal["pass", "fail", "inconclusive"]

_BISECTIONS = 60
_ROUNDING = 1e-12  # 1 − (1 − c)/k in floats may miss its own value by a few ulp


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A lower bound on ε and the most that the same experiment could have shown.

    Attributes:
        method: name of the bound, for the report.
        lower_bound: ε, finite, in [0, ceiling].
        ceiling: the lower bound that a perfect attack would have got from the same trials.
        confidence: probability, in (0, 1), with which the lower bound is not above the truth.
        trials: number of independent coins behind the bound (runs, or canaries).
        detail: the counts and rates that it was computed from.
    """

    method: str
    lower_bound: float
    ceiling: float
    confidence: float
    trials: int
    detail: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _check_confidence(self.confidence, "confidence")
        if not (math.isfinite(self.ceiling) and self.ceiling >= 0):
            raise ValueError(f"ceiling must be finite and ≥ 0; got {self.ceiling}.")
        if not 0 <= self.lower_bound <= self.ceiling:
            raise ValueError(
                f"lower_bound must be between 0 and the ceiling {self.ceiling}; "
                f"got {self.lower_bound}."
            )


def clopper_pearson(
    *, tp: int, n_in: int, fp: int, n_out: int, delta: float, confidence: float = 0.95
) -> Bound:
    """Bound ε from repeated independent trials of one fixed test.

    Any test of an (ε, δ)-DP mechanism has TPR ≤ e^ε FPR + δ and TNR ≤ e^ε FNR + δ (Kairouz, Oh,
    Viswanath 2015, Theorem 2.1). The two unknown rates are FPR and FNR; each gets a one-sided
    exact upper limit at level α/2, where α = 1 − confidence, so both hold jointly with the stated
    confidence. TPR and TNR are their complements: the second direction costs nothing more.

    Args:
        tp: trials with the canary that the test called "in", in [0, n_in].
        n_in: trials with the canary, ≥ 1.
        fp: trials without the canary that the test called "in", in [0, n_out].
        n_out: trials without the canary, ≥ 1.
        delta: δ of the claim, in [0, 1).
        confidence: of the whole bound, in (0, 1).

    Returns:
        The bound. Its ceiling is that of tp = n_in, fp = 0.

    Raises:
        ValueError: a count, δ or confidence is out of its range.

    Example:
        >>> bound = clopper_pearson(tp=800, n_in=1000, fp=10, n_out=1000, delta=1e-5)
        >>> round(bound.lower_bound, 2), round(bound.ceiling, 2)
        (3.74, 5.6)
    """
    n_in = _check_count(n_in, "n_in", 1)
    n_out = _check_count(n_out, "n_out", 1)
    tp = _check_count(tp, "tp", 0, n_in, "n_in")
    fp = _check_count(fp, "fp", 0, n_out, "n_out")
    _check_delta(delta)
    _check_confidence(confidence, "confidence")
    alpha = (1 - confidence) / 2
    fpr, fnr = rate_upper(fp, n_out, alpha), rate_upper(n_in - tp, n_in, alpha)
    best_fpr, best_fnr = rate_upper(0, n_out, alpha), rate_upper(0, n_in, alpha)
    return Bound(
        method="clopper-pearson",
        lower_bound=_epsilon_of_rates(fpr, fnr, delta),
        ceiling=_epsilon_of_rates(best_fpr, best_fnr, delta),
        confidence=confidence,
        trials=n_in + n_out,
        detail={
            "tp": tp,
            "n_in": n_in,
            "fp": fp,
            "n_out": n_out,
            "delta": delta,
            "fpr_upper": fpr,
            "fnr_upper": fnr,
        },
    )


def one_run(*, m: int, guesses: int, correct: int, delta: float, confidence: float = 0.95) -> Bound:
    """Bound ε from one run with many canaries, each put in by a fair coin of its own.

    Steinke, Nasr, Jagielski 2023 (main theorem for (ε, δ)): if the mechanism is (ε, δ)-DP, then
    the number W of right guesses among r, with m − r abstentions, satisfies::

        P[W ≥ v] ≤ P[B ≥ v] + 2 m δ · max_{1≤i≤v} P[v > B ≥ v − i] / i,   B ~ Bin(r, e^ε/(1+e^ε))

    The bound is the largest ε at which the right side is below α = 1 − confidence; the test is
    one-sided, so all of α is spent on it. (For 2 m δ > 1 the terms with i < 2 m δ are replaced by
    an upper bound that grows with ε. The right side then increases in ε for certain, the set of
    rejected ε is an interval, and the bisection is exact; for 2 m δ ≤ 1 it does so by itself.)

    Args:
        m: canaries with a coin, ≥ 1, whether guessed or not.
        guesses: r, the number of guesses, in [1, m]; fixed before the scores were seen.
        correct: v, the number of right ones, in [0, guesses].
        delta: δ of the claim, in [0, 1).
        confidence: in (0, 1).

    Returns:
        The bound; 0 if ε = 0 is not rejected. Its ceiling is that of correct = guesses.

    Raises:
        ValueError: a count, δ or confidence is out of its range.

    Example:
        >>> bound = one_run(m=1000, guesses=100, correct=95, delta=1e-5)
        >>> round(bound.lower_bound, 2), round(bound.ceiling, 2)
        (2.17, 3.47)
    """
    m = _check_count(m, "m", 1)
    guesses = _check_count(guesses, "guesses", 1, m, "m")
    correct = _check_count(correct, "correct", 0, guesses, "guesses")
    _check_delta(delta)
    _check_confidence(confidence, "confidence")
    level = 1 - confidence
    return Bound(
        method="one-run",
        lower_bound=_largest_rejected(m, guesses, correct, delta, level),
        ceiling=_largest_rejected(m, guesses, guesses, delta, level),
        confidence=confidence,
        trials=m,
        detail={"m": m, "guesses": guesses, "correct": correct, "delta": delta},
    )


def per_bound_confidence(*, joint: float, count: int) -> float:
    """Confidence that each of ``count`` bounds needs so that all hold together.

    Bonferroni's inequality: the bounds may depend on each other in any way.

    Args:
        joint: wanted probability that no bound is above the truth, in (0, 1).
        count: number of bounds that may be read, ≥ 1, fixed before the first is computed.

    Returns:
        1 − (1 − joint)/count.

    Raises:
        ValueError: an argument is out of its range.
    """
    _check_confidence(joint, "joint")
    count = _check_count(count, "count", 1)
    return 1 - (1 - joint) / count


def combine(bounds: Sequence[Bound], *, confidence: float = 0.95) -> Bound:
    """Report the largest of several bounds, at a joint confidence.

    The maximum is above the truth if any of the bounds is. It is therefore valid at
    ``confidence`` only if the bounds' own error probabilities add up to no more than
    1 − confidence: compute each at ``per_bound_confidence(joint=confidence, count=len(bounds))``.
    Every bound that was looked at belongs in the list, also the ones that came out low.

    Args:
        bounds: all bounds that were computed, at least one, at the same δ.
        confidence: of the maximum, in (0, 1).

    Returns:
        A bound named for the best one; its ceiling is the largest ceiling.

    Raises:
        ValueError: no bounds, different δ, or error probabilities that add up to too much.
    """
    _check_confidence(confidence, "confidence")
    if not bounds:
        raise ValueError("bounds must hold at least one bound; got none.")
    deltas = {bound.detail["delta"] for bound in bounds if "delta" in bound.detail}
    if len(deltas) > 1:
        raise ValueError(f"bounds must share one delta; got {sorted(deltas)}.")
    error = math.fsum(1 - bound.confidence for bound in bounds)
    if error > 1 - confidence + _ROUNDING:
        needed = per_bound_confidence(joint=confidence, count=len(bounds))
        raise ValueError(
            f"the bounds' error probabilities must add up to at most {1 - confidence:.6g}; got "
            f"{error:.6g}. Compute each of the {len(bounds)} at confidence {needed:.6g}."
        )
    best = max(bounds, key=lambda bound: bound.lower_bound)
    return Bound(
        method=best.method if len(bounds) == 1 else f"max of {len(bounds)}: {best.method}",
        lower_bound=best.lower_bound,
        ceiling=max(bound.ceiling for bound in bounds),
        confidence=confidence,
        trials=sum(bound.trials for bound in bounds),
        detail=dict(best.detail),
    )


def verdict(
    claimed_epsilon: float,
    bounds: Sequence[Bound],
    positive_control: Bound,
    negative_control: Bound,
) -> Verdict:
    """Read the audit. Only mechanism- and canary-tier bounds belong here; members never gate.

    Args:
        claimed_epsilon: ε of the claim at the bounds' δ, finite and > 0.
        bounds: all bounds of the audit, jointly valid (see ``per_bound_confidence``).
        positive_control: the same experiment on a mechanism known to leak (no noise).
        negative_control: the same experiment with coins that the run never saw.

    Returns:
        ``fail`` if a lower bound is above the claim. Else ``inconclusive`` if the audit could not
        have seen a fault: the positive control is below half its ceiling, or every ceiling is at
        or below the claim; or if it sees faults where there are none: the negative control is
        above 0. Else ``pass``, which does not prove privacy.

    Raises:
        ValueError: no bounds, or a claim that is not finite and > 0.
    """
    if not (math.isfinite(claimed_epsilon) and claimed_epsilon > 0):
        raise ValueError(f"claimed_epsilon must be finite and > 0; got {claimed_epsilon}.")
    if not bounds:
        raise ValueError("bounds must hold at least one bound; got none.")
    if max(bound.lower_bound for bound in bounds) > claimed_epsilon:
        return "fail"
    blind = positive_control.lower_bound < positive_control.ceiling / 2
    short = max(bound.ceiling for bound in bounds) <= claimed_epsilon
    if blind or short or negative_control.lower_bound > 0:
        return "inconclusive"
    return "pass"


def rate_upper(events: int, trials: int, alpha: float) -> float:
    """One-sided exact upper limit of a binomial rate (Clopper, Pearson 1934).

    Args:
        events: number of events, in [0, trials].
        trials: number of independent trials, ≥ 1.
        alpha: probability that the rate is above the limit, in (0, 1).

    Returns:
        The limit, in (0, 1]. The lower limit of the complement is one minus it.
    """
    if events == trials:
        return 1.0
    return float(special.betainccinv(events + 1, trials - events, alpha))


def _epsilon_of_rates(fpr: float, fnr: float, delta: float) -> float:
    """Largest ε ≥ 0 that upper limits of both error rates exclude, over both directions."""
    ratios = ((1 - fnr - delta) / fpr, (1 - fpr - delta) / fnr)
    return math.log(max(1.0, *ratios))


def _largest_rejected(m: int, guesses: int, correct: int, delta: float, level: float) -> float:
    """Largest ε ≥ 0 whose p-value is below the level, rounded down; 0 if there is none.

    The p-value is an upper bound on P[W ≥ correct] that increases in ε and decreases in correct.
    """
    if correct == 0:
        return 0.0
    below = np.arange(correct - 1, -1, -1, dtype=np.float64)  # v−1, …, 0: B just short of v
    log_choose = (
        special.gammaln(guesses + 1)
        - special.gammaln(below + 1)
        - special.gammaln(guesses - below + 1)
    )
    weight = 2 * m * delta / np.arange(1, correct + 1, dtype=np.float64)

    def rejected(epsilon: float) -> bool:
        # P[B ≥ v] = I_q(v, r−v+1), from the side of 1−q, which keeps its digits for large ε.
        tail = float(special.betaincc(guesses - correct + 1, correct, special.expit(-epsilon)))
        if tail >= level:
            return False
        log_q = -np.logaddexp(0.0, -epsilon)
        mass = np.exp(log_choose + below * log_q + (guesses - below) * (log_q - epsilon))
        at_least = np.minimum(tail + np.cumsum(mass), 1.0)  # P[B ≥ v − i]
        terms = tail * np.maximum(1 - weight, 0) + weight * at_least
        return float(terms.max()) < level

    if not rejected(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while rejected(high):
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def _check_count(value: int, name: str, low: int, high: int | None = None, of: str = "") -> int:
    number = operator.index(value)
    if high is None and number < low:
        raise ValueError(f"{name} must be ≥ {low}; got {number}.")
    if high is not None and not low <= number <= high:
        raise ValueError(f"{name} must be between {low} and {of} = {high}; got {number}.")
    return number


def _check_delta(delta: float) -> None:
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be in [0, 1); got {delta}.")


def _check_confidence(confidence: float, name: str) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"{name} must be strictly between 0 and 1; got {confidence}.")
