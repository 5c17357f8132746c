"""Utility: noised confusion matrices on the private hold-out (charged), or a public twin (free).

The hold-out is cut by keyed hash and is a block of its own, so a unit is in the training block or in
the hold-out, never in both, and the two charges compose in parallel. All arms are released together:
one unit moves at most k cells by one in each of A matrices, L2 sensitivity k·√A (see
`privacy.mechanisms`), and that joint release is what the ledger row pays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from prefect import task
from prefect.cache_policies import NO_CACHE
from torch import nn

from privacy.classifier import Classifier, starting_classifier
from privacy.mechanisms import noised_counts
from privacy.mixing import PublicData
from privacy.noise import NoiseSource
from privacy.plan import Plan
from privacy.release import accuracy, confusion_matrix, macro_f1, macro_f1_interval
from privacy.training import make_units, train
from storage.runs import RunFolder
from tasks.attempts import make_source, start_entry, told
from tasks.installation import Installation
from tasks.planning import EVALUATION, MIXED, PRIVATE_ONLY, without_mixing
from tasks.private_data import load_records, trust_zone
from tasks.progress import stage
from tasks.public import PublicSet
from tasks.sections import EvaluationSection
from tasks.training import load_arm, public_of

_TWIN_MINIMUM = 300
LEVEL = 0.95


@task(persist_result=False, cache_policy=NO_CACHE, retries=0, task_run_name="evaluate")
def evaluate(run_path: str) -> None:
    """Write the arms' utility into the run's folder: noised where it is private."""
    run, installation = RunFolder(run_path), Installation.open()
    planned = run.read("plan")
    plan = Plan.from_json(planned["plans"][MIXED])
    result: dict[str, Any] = {"classes": list(plan.classes), "level": LEVEL}
    if planned["holdouts"]:
        result["holdout"] = _on_holdout(run, installation, planned, plan)
    if PRIVATE_ONLY not in planned["plans"] or not planned["holdouts"]:
        with stage("comparing the arms on a public twin"):
            alone = without_mixing(plan, EvaluationSection(**planned["sections"]["evaluation"]))
            twin = compare_on_twin({MIXED: plan, PRIVATE_ONLY: alone}, public_of(planned, plan))
        if twin:
            result["twin"] = twin
    run.write("evaluation", result)


def _on_holdout(
    run: RunFolder, installation: Installation, planned: dict[str, Any], plan: Plan
) -> dict[str, Any]:
    arms = run.arms()
    settings = planned["evaluation"]
    if len(arms) != settings["arms"]:
        raise RuntimeError(f"{len(arms)} arms to evaluate, {settings['arms']} were paid for.")
    row = run.read("reservation")["rows"][EVALUATION]
    source = make_source(installation, run, planned, row)
    grant = installation.ledger.start(row)
    evidence = installation.evidence(run)
    evidence.append("start", start_entry(grant, "holdout", source, planned))
    with (
        told(evidence, grant, run),
        trust_zone(installation, planned["dataset"], run.run_id),
        stage("private: evaluating on the hold-out"),
    ):
        records = load_records(installation, grant, planned["holdouts"], planned["sections"])
        # Sensitive: exact counts live in this block only.
        noised = {}
        for arm in arms:
            classifier = load_arm(run, planned, arm)
            exact = _confusion(classifier, records.vectors, records.labels, len(plan.classes))
            noised[arm] = noised_counts(exact, sigma=settings["sigma"], randbelow=source.randbelow)
    declared = sum(
        b.declared_units
        for b in installation.ledger.blocks(planned["dataset"])
        if b.name in planned["holdouts"]
    )
    figures = {
        arm: _figures(counts, sigma=settings["sigma"], records=declared)
        for arm, counts in noised.items()
    }
    released = {arm: f["confusion"] for arm, f in figures.items()}
    settled = evidence.append(
        "settlement",
        {"row": row, "epoch": grant.epoch, "sigma": settings["sigma"], "confusion": released},
    )
    installation.ledger.commit(grant, head=settled)
    return {
        "row": row,
        "declared": declared,
        "sigma": settings["sigma"],
        "epsilon": settings["epsilon"],
        "arms": figures,
    }


def compare_on_twin(plans: Mapping[str, Plan], public: PublicSet) -> dict[str, Any]:
    """Mixed against private-only on public data alone: a third is public, a third plays private.

    Costs nothing and says how the arms compare on *public* text. Empty if too little is labelled.
    """
    rows = public.labelled
    if len(rows) < _TWIN_MINIMUM:
        return {}
    start, private, test = (rows[k::3] for k in range(3))
    vectors, labels = public.vectors, public.labels
    shown = PublicData(torch.from_numpy(vectors[start]), torch.from_numpy(labels[start]))
    figures = {}
    for arm, plan in plans.items():
        played = replace(
            plan,
            declared_units=max(len(private), 1000),
            privacy_unit="record",
            records_per_unit=1,
        )
        classifier = starting_classifier(played, shown)
        units = make_units(
            classifier.features(public.views(plan.mixing, vectors[private])),
            torch.from_numpy(labels[private]),
            torch.arange(len(private)),
            records_per_unit=1,
        )
        trained = train(played, units, classifier.head, source=NoiseSource())
        fitted = Classifier(classifier.features, trained.head)
        counts = _confusion(fitted, vectors[test], labels[test], len(plan.classes))
        figures[arm] = _figures(counts, sigma=0.0, records=len(test))
    return {"records": len(test), "arms": figures}


def _confusion(
    classifier: nn.Module, vectors: np.ndarray, labels: np.ndarray, classes: int
) -> np.ndarray:
    with torch.inference_mode():
        predicted = classifier(torch.from_numpy(vectors)).argmax(dim=-1).numpy()
    return confusion_matrix(labels, predicted, classes)


def _figures(counts: np.ndarray, *, sigma: float, records: int) -> dict[str, Any]:
    low, high = macro_f1_interval(counts, sigma=sigma, records=records, level=LEVEL)
    return {
        "confusion": counts.tolist(),
        "macro_f1": macro_f1(counts),
        "interval": [low, high],
        "accuracy": accuracy(counts),
    }
