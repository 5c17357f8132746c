"""Utility: noised confusion matrices on the private hold-out (charged), or a public twin (free).

The hold-out is cut by keyed hash and is a block of its own, so a unit is in the training block or in
the hold-out, never in both, and the two charges compose in parallel. All arms are released together:
one unit moves at most k cells by one in each of A matrices, L2 sensitivity k·√A (see
`privacy.mechanisms`), and that joint release is what the ledger row pays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from prefect import task
from prefect.cache_policies import NO_CACHE
from torch import nn

from privacy.mechanisms import noised_counts
from privacy.mixing import PublicData, fit_public
from privacy.noise import NoiseSource
from privacy.plan import MixingPlan, Plan
from privacy.release import accuracy, confusion_matrix, macro_f1, macro_f1_interval
from privacy.training import make_units, train
from storage.runs import RunFolder
from tasks.installation import Installation
from tasks.planning import EVALUATION, MIXED, PRIVATE_ONLY
from tasks.private_data import load_records, trust_zone
from tasks.progress import stage
from tasks.public import PublicSet
from tasks.training import fresh_head, public_of

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
            twin = compare_on_twin(plan, public_of(planned, plan))
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
    grant = installation.ledger.start(row)
    installation.evidence(run).append("start", {"row": row, "epoch": grant.epoch, "arm": "holdout"})
    with (
        trust_zone(installation, planned["dataset"], run.run_id),
        stage("private: evaluating on the hold-out"),
    ):
        records = load_records(installation, grant, planned["holdouts"], planned["sections"])
        # Sensitive: exact counts live in this block only.
        noised = {}
        for arm in arms:
            head = fresh_head(plan)
            head.load_state_dict(run.read_weights(arm))
            exact = _confusion(head, records.vectors, records.labels, len(plan.classes))
            noised[arm] = noised_counts(exact, sigma=settings["sigma"])
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
    settled = installation.evidence(run).append(
        "settlement",
        {"row": row, "epoch": grant.epoch, "sigma": settings["sigma"], "confusion": released},
    )
    installation.ledger.commit(grant, note=f"evidence head {settled}")
    return {
        "row": row,
        "declared": declared,
        "sigma": settings["sigma"],
        "epsilon": settings["epsilon"],
        "arms": figures,
    }


def compare_on_twin(plan: Plan, public: PublicSet) -> dict[str, Any]:
    """Mixed against private-only on public data alone: a third is public, a third plays private.

    Costs nothing and says how the arms compare on *public* text. Empty if too little is labelled.
    """
    rows = public.labelled
    if len(rows) < _TWIN_MINIMUM:
        return {}
    start, private, test = (rows[k::3] for k in range(3))
    played = replace(plan, declared_units=max(len(private), 1000))
    vectors, labels = public.vectors, public.labels
    fitted = fit_public(
        fresh_head(plan),
        PublicData(torch.from_numpy(vectors[start]), torch.from_numpy(labels[start])),
    )
    figures = {}
    for arm, mixing, head in (
        (
            MIXED,
            plan.mixing,
            fitted if "warm_start" in plan.mixing.strategies else fresh_head(plan),
        ),
        (PRIVATE_ONLY, MixingPlan(), fresh_head(plan)),
    ):
        units = make_units(
            public.views(mixing, vectors[private]),
            torch.from_numpy(labels[private]),
            torch.arange(len(private)),
            records_per_unit=1,
        )
        bounded = replace(played, mixing=mixing, privacy_unit="record", records_per_unit=1)
        trained = train(bounded, units, head, source=NoiseSource())
        counts = _confusion(trained.head, vectors[test], labels[test], len(plan.classes))
        figures[arm] = _figures(counts, sigma=0.0, records=len(test))
    return {"records": len(test), "arms": figures}


def _confusion(
    head: nn.Module, vectors: np.ndarray, labels: np.ndarray, classes: int
) -> np.ndarray:
    with torch.inference_mode():
        predicted = head(torch.from_numpy(vectors)).argmax(dim=-1).numpy()
    return confusion_matrix(labels, predicted, classes)


def _figures(counts: np.ndarray, *, sigma: float, records: int) -> dict[str, Any]:
    low, high = macro_f1_interval(counts, sigma=sigma, records=records, level=LEVEL)
    return {
        "confusion": counts.tolist(),
        "macro_f1": macro_f1(counts),
        "interval": [low, high],
        "accuracy": accuracy(counts),
    }
