"""The mechanism audit: the production trainer, attacked on a public twin with canaries.

What is attacked is `privacy.training.train` itself with the plan's q, T, σ, C, learning rate and
divisor, noise from a fresh `NoiseSource`; only the data differs: public records stand in for private
ones, and the features gain one coordinate for each canary. Nothing private is read, so any number here
may be published, and the release gate may act on it.

Two experiments, each with what it can certify at best:

* one run, m canaries (Steinke, Nasr and Jagielski 2023): fair coins decide which enter; the released
  weights are scored, the most certain are guessed;
* repeated runs, one canary (Clopper–Pearson): the same tiny twin with and without one record. The tiny
  twin holds what breaks careless code: a class that is declared and absent, a malformed record, and
  steps whose sample is empty.

Only linear heads are attacked. For any other head the linear one stands in: a failure counts, since the
sampler, clip and noise are shared; a pass is reported as inconclusive.

Controls: the first experiment without noise must be seen near its ceiling; with coins that the run
never saw it must read zero. A lower bound never proves privacy; a bound above the claim disproves it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from privacy.attacks import canary
from privacy.attacks.bounds import Bound, clopper_pearson, combine, per_bound_confidence, verdict
from privacy.heads import build_head
from privacy.noise import NoiseSource
from privacy.plan import Plan
from privacy.training import make_units, train

NO_NOISE = 1e-6
"""Noise multiplier of the positive control: as good as none."""


@dataclass(frozen=True, kw_only=True)
class AuditSize:
    """How much is tried; fixed before anything is seen.

    Attributes:
        canaries: m of the one-run experiment.
        guesses: How many of them are guessed; the rest abstain.
        repeats: Runs of the repeated experiment, half with and half without the canary on average.
        confidence: Joint confidence of both bounds.
        control_confidence: Of the negative control, which may rarely cry wolf.
    """

    canaries: int = 1000
    guesses: int = 200
    repeats: int = 200
    confidence: float = 0.95
    control_confidence: float = 0.999


@dataclass(frozen=True, kw_only=True)
class MechanismAudit:
    """The audit's result; every figure is public.

    Attributes:
        claimed: ε of the plan.
        delta: Its δ.
        bounds: One for each experiment.
        combined: The largest of them, at the joint confidence.
        positive_control: Bound of the run without noise.
        negative_control: Bound against coins never used.
        verdict: ``pass``, ``fail`` or ``inconclusive``.
    """

    claimed: float
    delta: float
    bounds: tuple[Bound, ...]
    combined: Bound
    positive_control: Bound
    negative_control: Bound
    verdict: str

    def to_json(self) -> dict[str, Any]:
        """Plain values for the summary and the evidence."""
        return {
            "claimed": self.claimed,
            "delta": self.delta,
            "lower_bound": self.combined.lower_bound,
            "ceiling": self.combined.ceiling,
            "confidence": self.combined.confidence,
            "verdict": self.verdict,
            "bounds": [_plain(b) for b in self.bounds],
            "positive_control": {
                **_plain(self.positive_control),
                "seen": self.positive_control.lower_bound >= self.positive_control.ceiling / 2,
            },
            "negative_control": {
                **_plain(self.negative_control),
                "ok": self.negative_control.lower_bound == 0,
            },
        }


def audit_mechanism(
    plan: Plan,
    *,
    views: NDArray[np.float32],
    labels: NDArray[np.int64],
    size: AuditSize,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> MechanismAudit:
    """Attack the plan's training on a public twin.

    Args:
        plan: What will be (or was) run on private data.
        views: (n, V, d) features of public records and of their mixtures, as the head sees them.
        labels: (n,) their classes.
        size: How much is tried.
        on_progress: Called with (runs done, runs in all).
    """
    total = size.repeats + 2
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # thousands of tiny steps: handing them around costs more than they do
    try:
        return _audit(plan, views, labels, size, on_progress, total)
    finally:
        torch.set_num_threads(threads)


def _audit(
    plan: Plan,
    views: NDArray[np.float32],
    labels: NDArray[np.int64],
    size: AuditSize,
    on_progress: Callable[[int, int], None],
    total: int,
) -> MechanismAudit:
    each = per_bound_confidence(joint=size.confidence, count=2)
    coins = canary.draw_coins(m=size.canaries, token_bytes=secrets.token_bytes)
    unseen = canary.draw_coins(m=size.canaries, token_bytes=secrets.token_bytes)
    scores = _run(plan, views, labels, coins)
    on_progress(1, total)
    leaky = _run(replace(plan, noise_multiplier=NO_NOISE), views, labels, coins)
    on_progress(2, total)

    def bound(of: NDArray[np.float64], against: NDArray[Any], confidence: float) -> Bound:
        return canary.one_run_bound(
            of, against, count=size.guesses, delta=plan.delta, confidence=confidence
        )

    repeated = _repeated(
        plan,
        views,
        labels,
        size=size,
        confidence=each,
        on_run=lambda k: on_progress(k + 2, total),
    )
    bounds = (bound(scores, coins, each), repeated)
    positive = bound(leaky, coins, size.confidence)
    negative = bound(scores, unseen, size.control_confidence)
    return MechanismAudit(
        claimed=plan.pld_epsilon,
        delta=plan.delta,
        bounds=bounds,
        combined=combine(bounds, confidence=size.confidence),
        positive_control=positive,
        negative_control=negative,
        verdict=_of_this_head(plan, verdict(plan.pld_epsilon, bounds, positive, negative)),
    )


def _of_this_head(plan: Plan, found: str) -> str:
    """Canaries live in a linear head's own columns: of another head, a pass would say too much."""
    return "inconclusive" if found == "pass" and plan.head != "linear" else found


def _repeated(
    plan: Plan,
    views: NDArray[np.float32],
    labels: NDArray[np.int64],
    *,
    size: AuditSize,
    confidence: float,
    on_run: Callable[[int], None],
) -> Bound:
    twin, twin_labels = tiny_twin(views, labels, classes=len(plan.classes))
    threshold = canary.repeated_threshold(
        sample_rate=plan.sample_rate,
        steps=plan.steps,
        learning_rate=plan.learning_rate,
        max_grad_norm=plan.max_grad_norm,
        divisor=plan.divisor,
        classes=len(plan.classes),
        scale=plan.feature_scale,
    )
    coins = canary.draw_coins(m=size.repeats, token_bytes=secrets.token_bytes)
    hits = [0, 0]
    for run, coin in enumerate(coins, start=1):
        score = _run(plan, twin, twin_labels, np.array([coin]))[0]
        hits[int(coin)] += int(score > threshold)
        on_run(run)
    inside = int(coins.sum())
    bound = clopper_pearson(
        tp=hits[1],
        n_in=inside,
        fp=hits[0],
        n_out=len(coins) - inside,
        delta=plan.delta,
        confidence=confidence,
    )
    return replace(bound, method="Clopper–Pearson, repeated runs")


def tiny_twin(
    views: NDArray[np.float32], labels: NDArray[np.int64], *, classes: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """A few records that hold an absent class and a malformed record; (≤ 9, V, d) and labels."""
    present = np.flatnonzero(labels != classes - 1)[:8]
    malformed = np.full_like(views[:1], np.nan)
    twin = np.concatenate([views[present], malformed])
    return twin, np.concatenate([labels[present], [0]]).astype(np.int64)


def _run(
    plan: Plan, views: NDArray[np.float32], labels: NDArray[np.int64], coins: NDArray[Any]
) -> NDArray[np.float64]:
    """Train once on the twin with the canaries whose coin is 1; score all of them."""
    classes = len(plan.classes)
    planted, targets = canary.plant(
        views, labels, len(coins), classes, coins, scale=plan.feature_scale
    )
    padded = replace(plan, feature_dimension=planted.shape[-1], head="linear")
    head = build_head("linear", feature_dimension=padded.feature_dimension, classes=classes)
    assert isinstance(head, nn.Linear)
    units = make_units(
        torch.from_numpy(planted),
        torch.from_numpy(targets),
        torch.arange(len(planted)),
        records_per_unit=1,
    )
    result = train(padded, units, head, source=NoiseSource()).head
    assert isinstance(result, nn.Linear)
    return canary.dirac_scores(
        head.weight.detach().numpy(),
        result.weight.detach().numpy(),
        canary.canary_labels(m=len(coins), classes=classes),
        scale=plan.feature_scale,
    )


def _plain(bound: Bound) -> dict[str, Any]:
    value = asdict(bound)
    value["detail"] = dict(bound.detail)
    return value
