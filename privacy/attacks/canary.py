"""Dirac canaries for the mechanism audit of a linear head.

What this holds: the public twin's features get m coordinates of their own. Canary j is the unit
vector on coordinate d+j; a fair coin decides whether it enters. All other rows are zero there,
so the head's column d+j moves by the canary's clipped gradients and the noise, and by nothing
else: no canary disturbs another (interference is what weakens one-run audits), and each attains
the whole sensitivity that its clip leaves it. Two experiments use them:

* one run with m canaries (``one_run_bound``; Steinke, Nasr, Jagielski 2023);
* R runs with one canary, in or out (``repeated_bound``; Jagielski, Ullman, Oprea 2020; the
  Dirac gradient canary is that of Nasr et al. 2021 and 2023), against a threshold that follows
  from the plan's constants alone.

What it guarantees: pure functions; a score depends on the coin only through training; the
threshold and the number of guesses depend on no score. So the bounds hold at their confidence.

When that stops: when coins are not fair, secret to the trainer and independent (take them from
the operating system); when canaries reach the run under another plan, reader, clip or noise than
the release; when a preprocessing step mixes the extra coordinates into other rows. White-box:
the score reads the weights' columns, so it may be published only for a public twin.

The loss is softmax cross-entropy averaged over views; the head has weights (K, d+m) and biases
(K,); a step is ``w −= learning_rate / divisor · (Σ clipped gradients + noise)``. The gradient of
a canary of class y on its column is s·(p − e_y), on the biases p − e_y, and the clip sees both:
norm ‖p − e_y‖·√(s² + 1), where s is the canary's scale.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privacy.attacks.base import (
    Attack,
    FloatArray,
    IntArray,
    Observation,
    Publishes,
    Tier,
    register,
)
from privacy.attacks.bounds import Bound, clopper_pearson, one_run


@register
class DiracCanary(Attack):
    """Score = movement of the canary's own column, along its gradient. Mechanism tier."""

    name: ClassVar[str] = "dirac_canary"
    tier: ClassVar[Tier] = "mechanism"
    publishes: ClassVar[Publishes] = "release"
    needs: ClassVar[frozenset[str]] = frozenset({"weight_before", "weight_after"})

    def score(self, seen: Observation) -> FloatArray:
        """(m,) signed movement of each canary's column."""
        assert seen.weight_before is not None
        assert seen.weight_after is not None
        return dirac_scores(
            seen.weight_before, seen.weight_after, seen.labels, bias_before=seen.bias_before
        )


def draw_coins(*, m: int, token_bytes: Callable[[int], bytes]) -> IntArray:
    """Fair coins, one a canary.

    Args:
        m: number of coins, ≥ 1.
        token_bytes: gives that many random bytes: ``secrets.token_bytes`` in production,
            ``np.random.Generator.bytes`` in tests.

    Returns:
        (m,) of 0 (left out) and 1 (put in).

    Raises:
        ValueError: m < 1.
    """
    _check_positive_int(m, "m")
    octets = np.frombuffer(token_bytes((m + 7) // 8), dtype=np.uint8)
    return np.unpackbits(octets)[:m].astype(np.int64)


def canary_labels(*, m: int, classes: int) -> IntArray:
    """Class of each canary, in turn: public, and fixed before the coins.

    Args:
        m: number of canaries, ≥ 1.
        classes: number of declared classes, ≥ 2.

    Returns:
        (m,) in [0, classes).

    Raises:
        ValueError: an argument is below its bound.
    """
    _check_positive_int(m, "m")
    if classes < 2:
        raise ValueError(f"classes must be ≥ 2; got {classes}.")
    return np.arange(m, dtype=np.int64) % classes


def plant(
    features: NDArray[Any],
    labels: NDArray[Any],
    m: int,
    classes: int,
    coins: NDArray[Any],
    *,
    scale: float = 1.0,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Pad the twin's features by m coordinates and append the canaries whose coin is 1.

    Args:
        features: (n, d), or (n, V, d) for V views; a canary then has it in every view.
        labels: (n,) integer classes.
        m: number of canaries, ≥ 1; 1 for the repeated-run canary.
        classes: number of declared classes, ≥ 2.
        coins: (m,) of 0 and 1.
        scale: length s of the canary's vector, > 0. A longer one has more of its gradient on its
            column and less on the biases, where it drowns in those of others.

    Returns:
        Features (n + Σcoins, …, d + m) and labels (n + Σcoins,), of the dtypes given. Canary j
        has the class ``canary_labels(m=m, classes=classes)[j]``.

    Raises:
        ValueError: shapes do not fit, a coin is neither 0 nor 1, scale is not finite and > 0.
    """
    _check_positive(scale, "scale")
    if features.ndim not in (2, 3) or labels.shape != features.shape[:1]:
        raise ValueError(
            "features must have shape (n, d) or (n, V, d) and labels (n,); "
            f"got {features.shape} and {labels.shape}."
        )
    _check_coins(coins, m)
    entering = np.flatnonzero(coins)
    n, d = features.shape[0], features.shape[-1]
    shape = (n + len(entering), *features.shape[1:-1], d + m)
    padded = np.zeros(shape, dtype=features.dtype)
    padded[:n, ..., :d] = features
    for row, canary in enumerate(entering, start=n):
        padded[row, ..., d + canary] = scale
    chosen = canary_labels(m=m, classes=classes)[entering].astype(labels.dtype)
    return padded, np.concatenate([labels, chosen])


def dirac_scores(
    weight_before: NDArray[Any],
    weight_after: NDArray[Any],
    labels: NDArray[Any],
    *,
    bias_before: NDArray[Any] | None = None,
    scale: float = 1.0,
) -> FloatArray:
    """How far each canary's column moved along its own first descent direction.

    The direction e_y − p, p the public initial model's prediction for the canary, is known before
    training. The projection on its unit vector keeps all of the canary's signal (exactly so for
    two classes) and one dimension of the noise.

    Args:
        weight_before: (K, d+m) public initial weights.
        weight_after: (K, d+m) trained weights.
        labels: (m,) class of every canary, whether it entered or not. m is taken from here: the
            canaries' columns are the last m.
        bias_before: (K,) public initial biases; zero if not given.
        scale: as planted.

    Returns:
        (m,) in units of weight; 0 on average for a canary left out, more for one put in.

    Raises:
        ValueError: shapes do not fit, a label is out of range, or a weight is not finite.
    """
    _check_positive(scale, "scale")
    m = len(labels)
    if weight_before.shape != weight_after.shape or weight_before.ndim != 2:
        raise ValueError(
            "weight_before and weight_after must both have shape (K, d + m); "
            f"got {weight_before.shape} and {weight_after.shape}."
        )
    classes, width = weight_before.shape
    if not 1 <= m <= width:
        raise ValueError(f"labels must hold between 1 and d + m = {width} canaries; got {m}.")
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(f"labels must be in [0, {classes}); got {labels.min()}..{labels.max()}.")
    first = weight_before[:, width - m :].astype(np.float64).T  # (m, K)
    last = weight_after[:, width - m :].astype(np.float64).T
    if not (np.isfinite(first).all() and np.isfinite(last).all()):
        raise ValueError("weights of the canaries' columns must be finite: training diverged.")
    bias = np.zeros(classes) if bias_before is None else bias_before.astype(np.float64)
    direction = _descent_direction(scale * first + bias, labels)
    return np.asarray(np.sum((last - first) * direction, axis=1), dtype=np.float64)


def guesses(scores: FloatArray, count: int) -> IntArray:
    """Guess "in" for the highest scores, "out" for the lowest, abstain on the rest.

    Args:
        scores: (m,) higher means "in".
        count: number of guesses, even, in [2, m]; fixed before the scores are seen.

    Returns:
        (m,) of +1 (in), −1 (out) and 0 (abstain), with count/2 of each sign. Ties are broken by
        position, which knows nothing of the coins.

    Raises:
        ValueError: count is odd or out of range.
    """
    if count % 2 or not 2 <= count <= len(scores):
        raise ValueError(f"count must be even and between 2 and m = {len(scores)}; got {count}.")
    order = np.argsort(scores, kind="stable")
    result = np.zeros(len(scores), dtype=np.int64)
    result[order[: count // 2]] = -1
    result[order[-(count // 2) :]] = 1
    return result


def one_run_bound(
    scores: FloatArray,
    coins: NDArray[Any],
    *,
    count: int,
    delta: float,
    confidence: float = 0.95,
) -> Bound:
    """Lower bound on ε from the scores of one run with m canaries.

    Args:
        scores: (m,) as from ``dirac_scores``.
        coins: (m,) of 0 and 1, as planted. Fresh coins instead make the negative control.
        count: number of guesses, as in ``guesses``.
        delta: δ of the claim, in [0, 1).
        confidence: in (0, 1).

    Returns:
        The bound of ``bounds.one_run``.

    Raises:
        ValueError: an argument is out of its range.
    """
    _check_coins(coins, len(scores))
    guess = guesses(scores, count)
    correct = int(np.sum((guess == 1) & (coins == 1)) + np.sum((guess == -1) & (coins == 0)))
    return one_run(
        m=len(scores), guesses=count, correct=correct, delta=delta, confidence=confidence
    )


def repeated_threshold(
    *,
    sample_rate: float,
    steps: int,
    learning_rate: float,
    max_grad_norm: float,
    divisor: float,
    classes: int,
    scale: float = 1.0,
    bias_before: NDArray[Any] | None = None,
    label: int = 0,
) -> float:
    """Score above which a repeated-run canary is called "in", before any run.

    Half of how far the canary's column would move without noise if each step took the share q of
    its clipped gradient. Under noise of the same size with and without the canary, the midpoint
    is the best threshold; any other would still give a valid bound, since it reads no score.

    Args:
        sample_rate: q of the plan, in (0, 1].
        steps: T of the plan, ≥ 1.
        learning_rate: > 0.
        max_grad_norm: clip norm C, > 0.
        divisor: declared divisor of the summed gradient, > 0.
        classes: K, ≥ 2.
        scale: as planted.
        bias_before: (K,) public initial biases; zero if not given.
        label: class of the canary.

    Returns:
        The threshold, > 0, in units of weight.

    Raises:
        ValueError: an argument is out of its range.
    """
    _check_positive_int(steps, "steps")
    for name, value in (
        ("sample_rate", sample_rate),
        ("learning_rate", learning_rate),
        ("max_grad_norm", max_grad_norm),
        ("divisor", divisor),
        ("scale", scale),
    ):
        _check_positive(value, name)
    if sample_rate > 1:
        raise ValueError(f"sample_rate must be in (0, 1]; got {sample_rate}.")
    if classes < 2 or not 0 <= label < classes:
        raise ValueError(f"label must be in [0, classes = {classes}); got {label}.")
    bias = np.zeros(classes) if bias_before is None else bias_before.astype(np.float64)
    target = np.eye(classes)[label]
    column = np.zeros(classes)
    for _ in range(steps):
        residual = special.softmax(scale * column + bias) - target
        norm = float(np.linalg.norm(residual)) * math.hypot(scale, 1.0)
        shrink = min(1.0, max_grad_norm / norm) if norm > 0 else 1.0
        column -= learning_rate / divisor * sample_rate * shrink * scale * residual
    direction = _descent_direction(bias[None, :], np.array([label]))[0]
    return float(column @ direction) / 2


def repeated_bound(
    scores: FloatArray,
    coins: NDArray[Any],
    *,
    threshold: float,
    delta: float,
    confidence: float = 0.95,
) -> Bound:
    """Lower bound on ε from R runs with one canary each.

    Args:
        scores: (R,) score of the one canary in each run.
        coins: (R,) of 0 and 1, or a fixed half of each; at least one of each.
        threshold: as from ``repeated_threshold``; never chosen on these scores.
        delta: δ of the claim, in [0, 1).
        confidence: in (0, 1).

    Returns:
        The bound of ``bounds.clopper_pearson``.

    Raises:
        ValueError: an argument is out of its range, or all coins are alike.
    """
    _check_coins(coins, len(scores))
    called = scores > threshold
    return clopper_pearson(
        tp=int(np.sum(called & (coins == 1))),
        n_in=int(np.sum(coins == 1)),
        fp=int(np.sum(called & (coins == 0))),
        n_out=int(np.sum(coins == 0)),
        delta=delta,
        confidence=confidence,
    )


def _descent_direction(logits: FloatArray, labels: NDArray[Any]) -> FloatArray:
    """(m, K) unit vectors along e_y − softmax(logits)."""
    towards = np.eye(logits.shape[1])[labels] - special.softmax(logits, axis=1)
    norm = np.linalg.norm(towards, axis=1, keepdims=True)
    return np.asarray(towards / np.maximum(norm, np.finfo(np.float64).tiny), dtype=np.float64)


def _check_coins(coins: NDArray[Any], m: int) -> None:
    if coins.shape != (m,) or not np.isin(coins, (0, 1)).all():
        raise ValueError(f"coins must have shape ({m},) and be 0 or 1; got shape {coins.shape}.")


def _check_positive_int(value: int, name: str) -> None:
    if value < 1:
        raise ValueError(f"{name} must be ≥ 1; got {value}.")


def _check_positive(value: float, name: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be finite and > 0; got {value}.")
