"""The release: what the audit supports becomes a model folder that loads without executing anything."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from privacy.classifier import is_preconditioned
from privacy.plan import Plan
from storage.evidence import CLOSED
from storage.models import save_model
from storage.runs import RunFolder
from tasks.auditing import require_audit
from tasks.installation import Installation
from tasks.planning import MIXED, PURPOSES


@task(persist_result=False, cache_policy=NO_CACHE, retries=0, task_run_name="release")
def release(run_path: str) -> None:
    """Publish the mixed model of a run whose audit supports the claim, and close its evidence.

    Raises:
        ReleaseRefused: The audit does not support it.
    """
    run, installation = RunFolder(run_path), Installation.open()
    require_audit(run)
    planned = run.read("plan")
    plan = Plan.from_json(planned["plans"][MIXED])
    sections = planned["sections"]
    row = run.read("reservation")["rows"][PURPOSES[MIXED]]
    folder = save_model(
        installation.settings.models / planned["dataset"] / run.run_id,
        card={
            "run_id": run.run_id,
            "dataset": planned["dataset"],
            "classes": list(plan.classes),
            "head": plan.head,
            "feature_dimension": plan.feature_dimension,
            "feature_scale": plan.feature_scale,
            "preconditioned": is_preconditioned(plan),
            "encoder": {"digest": plan.encoder_digest, **sections["encoder"]},
            "cleaning_steps": sections["dataset"]["cleaning_steps"],
            "privacy": {
                "epsilon": plan.pld_epsilon,
                "delta": plan.delta,
                "unit": plan.privacy_unit,
                "claim": _claim(installation, planned),
                "ledger": installation.ledger.id,
                "row": row,
                "plan_digest": plan.digest,
            },
        },
        state=run.read_weights(MIXED),
    )
    run.write("release", {"model": str(folder)})
    installation.evidence(run).append(
        "release", {"model": folder.name, "row": row, "weights": _digest(folder)}
    )


def _claim(installation: Installation, planned: Mapping[str, Any]) -> str:
    """What the model's ε speaks of, as the blocks that it was trained on say."""
    blocks = installation.ledger.blocks(planned["dataset"])
    return next(b.claim for b in blocks if b.name in planned["blocks"])


def _digest(folder: Path) -> str:
    """Hex SHA-256 of the weights file, as `sha256sum` gives it."""
    return hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest()


@task(persist_result=False, cache_policy=NO_CACHE, task_run_name="close-evidence")
def close_evidence(run_path: str) -> None:
    """Close the evidence: nothing is added to this run any more."""
    run, installation = RunFolder(run_path), Installation.open()
    installation.evidence(run).append(CLOSED, {"released": run.has("release")})
