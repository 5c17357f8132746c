"""Membership by loss threshold, and what a list of membership scores shows.

What this holds: the simplest membership attack (an example with a low loss was probably trained
on; Yeom et al. 2018, Adversary 1) and the evaluation that serves any membership score.

What it guarantees: every figure has an interval of the stated confidence; the accuracy is
measured on examples that did not choose its threshold; no rate is given where there are too few
non-members to support it.

When that stops: scores and figures of this module come from real members. They are *restricted*:
for the restricted report, never for a release, a gate or a log. The interval of the AUC is
asymptotic (DeLong et al. 1988) unless members and non-members are fully separated.
"""

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from privacy.attacks.base import Attack, FloatArray, Observation, Publishes, Tier, register
from privacy.attacks.bounds import rate_upper

LOW_FPR = 0.001
NON_MEMBERS_FOR_LOW_FPR = 10_000
_FEWEST = 8  # a side: both halves of the split then hold a variance and a rate


@register
class LossThreshold(Attack):
    """Score = −loss under the model. Member tier: restricted."""

    name: ClassVar[str] = "loss_threshold"
    tier: ClassVar[Tier] = "member"
    publishes: ClassVar[Publishes] = "restricted"
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def score(self, seen: Observation) -> FloatArray:
        """(n,) −loss of each example."""
        assert seen.logits is not None
        return scores(seen.logits, seen.labels)


def scores(logits: NDArray[Any], labels: NDArray[Any]) -> FloatArray:
    """Minus the loss of each example, in nats: softmax cross-entropy, averaged over views.

    Args:
        logits: (n, K), or (n, V, K) for V views.
        labels: (n,) integer classes.

    Returns:
        (n,) float64, ≤ 0. A malformed row (a label outside the classes, a logit that is not
        finite) gets −inf: it is neither an error nor a message, since rows may be private.

    Raises:
        ValueError: the shapes do not fit.
    """
    if logits.ndim not in (2, 3) or labels.shape != logits.shape[:1]:
        raise ValueError(
            "logits must have shape (n, K) or (n, V, K) and labels (n,); "
            f"got {logits.ndim} and {labels.ndim} dimensions."
        )
    views = logits.astype(np.float64).reshape(len(logits), -1, logits.shape[-1])
    classes = views.shape[-1]
    usable = np.isfinite(views).all(axis=(1, 2)) & (labels >= 0) & (labels < classes)
    result = np.full(len(views), -np.inf)
    if usable.any():
        log_probability = special.log_softmax(views[usable], axis=-1)
        chosen = labels[usable].astype(np.int64)[:, None, None]
        result[usable] = np.take_along_axis(log_probability, chosen, axis=-1).mean(axis=(1, 2))
    return result


def evaluate(
    member_scores: ArrayLike,
    nonmember_scores: ArrayLike,
    *,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> dict[str, dict[str, float | str]]:
    """What the scores tell about membership. Restricted when the members are real.

    Args:
        member_scores: (a,) scores of members, higher means "in"; a ≥ 8. NaN counts as −inf.
        nonmember_scores: (b,) scores of non-members from the same distribution; b ≥ 8.
        rng: splits both sides into a half that chooses the threshold and one that measures.
        confidence: of each interval by itself, in (0, 1).

    Returns:
        Three entries, each a mapping that JSON can hold:

        ``auc``: ``value, low, high, interval``; chance is 0.5. DeLong's interval; on full
        separation, where that has no width, Hoeffding's for two-sample U-statistics (1963, 5.7).
        ``balanced_accuracy``: ``value, low, high, threshold, tpr, fpr, advantage``, on the second
        half. Exact limits of both error rates at α/4 a side, averaged.
        ``tpr_at_fpr_0.1pct``: ``value, low, high, fpr_upper``; or ``refused, needed`` if there
        are fewer than 10,000 non-members, since ten false positives are the least to go by.

    Raises:
        ValueError: too few scores on a side, a wrong shape, or a confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be strictly between 0 and 1; got {confidence}.")
    inside = _as_scores(member_scores, "member_scores")
    outside = _as_scores(nonmember_scores, "nonmember_scores")
    return {
        "auc": _auc(inside, outside, confidence),
        "balanced_accuracy": _balanced_accuracy(inside, outside, confidence, rng),
        "tpr_at_fpr_0.1pct": _tpr_at_low_fpr(inside, outside, confidence),
    }


def _as_scores(values: ArrayLike, name: str) -> FloatArray:
    array = np.array(values, dtype=np.float64)
    if array.ndim != 1 or array.size < _FEWEST:
        raise ValueError(f"{name} must be one row of at least {_FEWEST} scores.")
    array[np.isnan(array)] = -np.inf
    return array


def _auc(inside: FloatArray, outside: FloatArray, confidence: float) -> dict[str, float | str]:
    a, b = len(inside), len(outside)
    ranks = stats.rankdata(np.concatenate([inside, outside]))
    # Share of the other side below each score, ties by half: DeLong's structural components.
    below = (ranks[:a] - stats.rankdata(inside)) / b
    above = 1 - (ranks[a:] - stats.rankdata(outside)) / a
    value = float(below.mean())
    variance = float(below.var(ddof=1) / a + above.var(ddof=1) / b)
    if variance > 0:
        width = float(special.ndtri((1 + confidence) / 2)) * math.sqrt(variance)
        interval = "delong"
    else:
        width = math.sqrt(math.log(2 / (1 - confidence)) / (2 * min(a, b)))
        interval = "hoeffding"
    low, high = max(0.0, value - width), min(1.0, value + width)
    return {"value": value, "low": low, "high": high, "interval": interval}


def _balanced_accuracy(
    inside: FloatArray, outside: FloatArray, confidence: float, rng: np.random.Generator
) -> dict[str, float | str]:
    choose_in, measure_in = np.array_split(rng.permutation(inside), 2)
    choose_out, measure_out = np.array_split(rng.permutation(outside), 2)
    candidates = np.unique(np.concatenate([choose_in, choose_out]))
    candidates = candidates[np.isfinite(candidates)]
    threshold = 0.0
    if candidates.size:
        missed = np.searchsorted(np.sort(choose_in), candidates) / len(choose_in)
        spared = np.searchsorted(np.sort(choose_out), candidates) / len(choose_out)
        best = int(np.argmax(spared - missed))
        # Halfway down to the next score: the other half's scores fall between those of this one.
        threshold = float(candidates[max(best - 1, 0) : best + 1].mean())
    tp, fp = int((measure_in >= threshold).sum()), int((measure_out >= threshold).sum())
    n_in, n_out, alpha = len(measure_in), len(measure_out), (1 - confidence) / 4
    tpr, fpr = tp / n_in, fp / n_out
    return {
        "value": (tpr + 1 - fpr) / 2,
        "low": (2 - rate_upper(n_in - tp, n_in, alpha) - rate_upper(fp, n_out, alpha)) / 2,
        "high": (rate_upper(tp, n_in, alpha) + rate_upper(n_out - fp, n_out, alpha)) / 2,
        "threshold": threshold,
        "tpr": tpr,
        "fpr": fpr,
        "advantage": tpr - fpr,
    }


def _tpr_at_low_fpr(
    inside: FloatArray, outside: FloatArray, confidence: float
) -> dict[str, float | str]:
    if len(outside) < NON_MEMBERS_FOR_LOW_FPR:
        return {
            "refused": f"needs at least {NON_MEMBERS_FOR_LOW_FPR:,} non-members",
            "needed": NON_MEMBERS_FOR_LOW_FPR,
        }
    allowed = math.floor(LOW_FPR * len(outside))
    # Strictly above the (allowed+1)-th largest: at most `allowed` false positives, ties included.
    threshold = float(np.sort(outside)[-(allowed + 1)])
    tp, fp = int((inside > threshold).sum()), int((outside > threshold).sum())
    n_in, alpha = len(inside), (1 - confidence) / 2
    return {
        "value": tp / n_in,
        "low": 1 - rate_upper(n_in - tp, n_in, alpha),
        "high": rate_upper(tp, n_in, alpha),
        "fpr_upper": rate_upper(fp, len(outside), alpha),
    }
