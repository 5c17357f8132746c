"""Gathers a run's figures into its summary, each with its provenance, and writes the report.

Only figures that may be published come in here: public ones, declared ones, the ledger's, and DP ones
with the row that paid. Seconds are those of public stages; private stages are not timed.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from privacy import accounting
from privacy.plan import RELATION, Plan
from storage.corpus import Corpus
from storage.evidence import public_key
from storage.runs import RunFolder
from tasks.balances import gate_of, position
from tasks.installation import Installation
from tasks.planning import MIXED
from tasks.public import corpus_folder
from tasks.refusals import advice, refusal_of
from tasks.reporting.page import write_report

_POINTS = 12
_VERSIONS = (
    "torch",
    "opacus",
    "dp-accounting",
    "prefect",
    "presidio-analyzer",
    "ftfy",
    "faiss-cpu",
)


@task(persist_result=False, cache_policy=NO_CACHE, task_run_name="report")
def report(run_path: str, refusal: str = "") -> str:
    """Write summary.json and report.html; returns the page's path.

    Args:
        run_path: The run's folder.
        refusal: Why nothing was released; empty if something was.
    """
    run, installation = RunFolder(run_path), Installation.open()
    page = write_report(summarise(run, installation, refusal=refusal), run.path)
    _artifact(page)
    return str(page)


def _artifact(page: Path) -> None:
    from prefect.artifacts import create_link_artifact  # noqa: PLC0415 - needs a server
    from prefect.exceptions import MissingContextError  # noqa: PLC0415

    try:
        create_link_artifact(page.as_uri(), key="report", link_text="The report of this run")
    except MissingContextError:
        return


def summarise(run: RunFolder, installation: Installation, *, refusal: str = "") -> dict[str, Any]:
    """The summary of a run, as its folder, the ledger and the corpus have it."""
    planned = run.read("plan")
    plan = Plan.from_json(planned["plans"][MIXED])
    booked = run.read("reservation")["rows"] if run.has("reservation") else {}
    names = {*planned["blocks"], *planned["holdouts"]}
    balances = [
        b for b in installation.ledger.balances(planned["dataset"]) if b.block.name in names
    ]
    trained = next(b.block for b in balances if b.block.name in planned["blocks"])
    gate = gate_of(trained)
    corpus = planned["sections"]["corpus"]
    evidence = installation.evidence(run)
    summary: dict[str, Any] = {
        "schema": 1,
        "run_id": run.run_id,
        "flow_run_id": planned["key"][0],
        "dataset": planned["dataset"],
        "created_at": planned["created_at"],
        "mode": "production",
        "released": run.has("release"),
        "refusal": refusal or None,
        "privacy_unit": plan.privacy_unit,
        "relation": RELATION,
        "claim": trained.claim,
        "epsilon": plan.pld_epsilon,
        "delta": plan.delta,
        "noise_multiplier": plan.noise_multiplier,
        "sample_rate": plan.sample_rate,
        "steps": plan.steps,
        "max_grad_norm": plan.max_grad_norm,
        "expected_batch_size": plan.divisor,
        "learning_rate": plan.learning_rate,
        "feature_scale": plan.feature_scale,
        "declared_records": plan.declared_units,
        "mixing": {
            "strategies": list(plan.mixing.strategies),
            "neighbours": plan.mixing.neighbours,
            "temperature": plan.mixing.temperature,
            "weight": plan.mixing.weight,
            "whitening": plan.mixing.whitening,
        },
        "accounting": {
            "pld": plan.pld_epsilon,
            "rdp": accounting.rdp_epsilon(plan.event, delta=plan.delta),
            "filter_cost_epsilon": gate.epsilon_of(gate.costs(plan.event)),
            "filter": trained.filter,
        },
        "ledger": {b.block.name: position(b) for b in balances},
        "charges": _charges(run, installation, booked),
        "trajectory": _trajectory(plan),
        "cleaning": Corpus.open(corpus_folder(corpus)).funnel(),
        "evidence": _evidence(run, installation, evidence.head),
        "seconds": _seconds(corpus, run),
        "versions": {name: version(name) for name in _VERSIONS},
        "provenance": {
            "epsilon": "declared",
            "delta": "declared",
            "noise_multiplier": "declared",
            "sample_rate": "declared",
            "steps": "declared",
            "max_grad_norm": "declared",
            "expected_batch_size": "declared",
            "learning_rate": "declared",
            "feature_scale": "declared",
            "declared_records": "declared",
            "mixing": "declared",
            "accounting": "declared",
            "trajectory": "declared",
            "ledger": "ledger",
            "charges": "ledger",
            "cleaning": "public",
            "audit": "public",
            "evidence": "ledger",
            "seconds": "public",
        },
    }
    if run.has("audit"):
        summary["audit"] = {**run.read("audit"), "member_audit": "in the restricted report"}
    if run.has("notice"):
        summary["notice"] = run.read("notice")["text"]
    if refusal:
        summary["advice"] = advice(run, installation, refusal_of(run)[0])
    if run.has("release"):
        summary["model"] = run.read("release")["model"]
        summary["use"] = f"dpmix predict {summary['model']} FILE"
    if run.has("evaluation"):
        summary["utility"], sources = _utility(run.read("evaluation"))
        summary["provenance"].update(sources)
    return summary


def _utility(evaluation: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    holdout, twin = evaluation.get("holdout"), evaluation.get("twin")
    best = holdout or twin
    if best is None:
        return {}, {}
    arms = {
        name: {k: v for k, v in figures.items() if k != "confusion"}
        for name, figures in best["arms"].items()
    }
    utility: dict[str, Any] = {
        "classes": evaluation["classes"],
        "level": evaluation["level"],
        "macro_f1": arms[MIXED]["macro_f1"],
        "interval": arms[MIXED]["interval"],
        "arms": arms,
        "confusion": best["arms"][MIXED]["confusion"],
        "split": "private hold-out, noised" if holdout else "public twin",
        "holdout_declared": holdout["declared"] if holdout else twin["records"],
    }
    utility |= {name: arms[name]["macro_f1"] for name in arms if name != MIXED}
    sources = {
        "utility": "public",
        "utility.level": "declared",
        "utility.holdout_declared": "declared",
    }
    if holdout:
        utility["confusion_sigma"] = holdout["sigma"]
        source = f"dp(ε={holdout['epsilon']:.4g}, ledger row {holdout['row']})"
        sources |= {"utility": source, "utility.confusion_sigma": "declared"}
        if twin:
            utility["twin"] = {
                "records": twin["records"],
                "arms": {n: {"macro_f1": f["macro_f1"], "interval": f["interval"]}
                         for n, f in twin["arms"].items()},
            }  # fmt: skip
            sources["utility.twin"] = "public"
    return utility, sources


def _charges(
    run: RunFolder, installation: Installation, booked: dict[str, int]
) -> list[dict[str, Any]]:
    filters = {(r["purpose"], r["block"]): r["epsilon_filter"] for r in run.read("quote")["rows"]}
    rows = set(booked.values())
    charges = []
    for entry in installation.ledger.history(run.read("plan")["dataset"]):
        if entry.row in rows and entry.kind == "charged":
            taken = max(filters[entry.purpose, b] for b in entry.blocks)
            charges.append(
                {
                    "row": entry.row,
                    "purpose": entry.purpose,
                    "blocks": list(entry.blocks),
                    "epsilon_pld": entry.epsilon,
                    "epsilon_filter": taken,
                    "state": entry.state,
                }
            )
    return charges


def _trajectory(plan: Plan) -> dict[str, list[float]]:
    """ε (PLD) after each of some numbers of steps: a function of the plan alone."""
    steps = sorted({max(1, round(plan.steps * k / _POINTS)) for k in range(1, _POINTS + 1)})
    epsilons = [
        accounting.pld_epsilon(
            accounting.dpsgd_event(
                noise_multiplier=plan.noise_multiplier, sample_rate=plan.sample_rate, steps=t
            ),
            delta=plan.delta,
        )
        for t in steps
    ]
    return {"steps": [0, *steps], "epsilon": [0.0, *epsilons]}


def _evidence(run: RunFolder, installation: Installation, head: str) -> dict[str, Any]:
    path = run.path / "evidence.jsonl"
    key = public_key(installation.key)
    return {
        "path": str(path),
        "head": head,
        "entries": sum(1 for _ in path.open(encoding="utf-8")),
        "public_key": key,
        "verify": f"dpmix evidence verify {path} --public-key {key} --head {head}",
    }


def _seconds(corpus: str, run: RunFolder) -> dict[str, float]:
    path = corpus_folder(corpus) / "seconds.json"
    found = json.loads(path.read_text()) if path.is_file() else {}
    return {**found, "audit": run.read("audit")["seconds"]} if run.has("audit") else found
