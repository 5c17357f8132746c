"""The audits of a run: the mechanism on a public twin (gates), the members (restricted, never gates)."""

from __future__ import annotations

import json
import time

import numpy as np
import torch
from prefect import task
from prefect.cache_policies import NO_CACHE

from privacy.attacks import loss_threshold
from privacy.attacks.mechanism import AuditSize, audit_mechanism
from privacy.classifier import fit_features
from privacy.mixing import LEAST_LABELLED
from privacy.plan import Plan
from storage.runs import RunFolder
from tasks.attempts import end_refused, told
from tasks.installation import Installation
from tasks.planning import MEMBERS, MIXED
from tasks.private_data import load_records, trust_zone
from tasks.progress import stage
from tasks.sections import AuditSection
from tasks.training import load_arm, public_of

_TWIN_ROWS = 2000


class ReleaseRefused(RuntimeError):  # noqa: N818 - the gate's answer, not a fault
    """The mechanism audit does not support the claim; nothing is released."""


@task(persist_result=False, cache_policy=NO_CACHE, task_run_name="audit-mechanism")
def audit_plan(run_path: str) -> str:
    """Attack the run's own trainer and plan on a public twin; returns the verdict.

    Reads nothing private and costs no budget, so it runs before the private read: a build that
    fails here has spent nothing.
    """
    run, installation = RunFolder(run_path), Installation.open()
    planned = run.read("plan")
    section = AuditSection(**planned["sections"]["audit"])
    plan = Plan.from_json(planned["plans"][MIXED])
    public = public_of(planned, plan)
    labelled = public.labelled
    rows = (labelled if len(labelled) >= LEAST_LABELLED else np.arange(len(public.vectors)))[
        :_TWIN_ROWS
    ]
    labels = np.where(public.labels[rows] >= 0, public.labels[rows], rows % len(plan.classes))
    size = AuditSize(
        canaries=section.canaries,
        guesses=section.guesses,
        repeats=section.repeats,
        confidence=section.confidence,
    )
    features = fit_features(plan, public.data)
    started = time.monotonic()
    with stage("audit: attacking the mechanism on a public twin", size.repeats + 2) as update:
        result = audit_mechanism(
            plan,
            views=features(public.views(plan.mixing, public.vectors[rows])).numpy(),
            labels=labels,
            size=size,
            on_progress=update,
        )
    report = {
        **result.to_json(),
        "strict": section.strict,
        "seconds": round(time.monotonic() - started, 1),
    }
    run.write("audit", report)
    installation.evidence(run).append("audit", report)
    return result.verdict


def require_audit(run: RunFolder) -> None:
    """Let a run go on only if its mechanism audit supports the claim.

    Raises:
        ReleaseRefused: A bound is above the claim; or, when strict, the audit could not have seen.
    """
    audit = run.read("audit")
    if audit["verdict"] == "fail":
        raise ReleaseRefused(
            f"release refused: the mechanism audit shows at least ε={audit['lower_bound']:.3g} where "
            f"ε={audit['claimed']:.3g} is claimed (δ={audit['delta']:g}, confidence "
            f"{audit['confidence']:.0%}). The build does not do what its plan says; nothing private "
            "was read. Find the fault before any further run."
        )
    if audit["verdict"] != "pass" and audit["strict"]:
        raise ReleaseRefused(
            "release refused: the mechanism audit is inconclusive: it could not have seen a fault, a "
            "control misfired, or the head is not linear and was not attacked itself. Run it again with "
            "more audit.canaries and audit.repeats, or set audit.strict: false to disclose it instead."
        )


@task(persist_result=False, cache_policy=NO_CACHE, task_run_name="audit-gate")
def gate_on_audit(run_path: str) -> None:
    """Stop here, before private data is read, unless the mechanism audit passed.

    Raises:
        ReleaseRefused: It did not; the evidence says so and is closed.
    """
    run = RunFolder(run_path)
    try:
        require_audit(run)
    except ReleaseRefused as refused:
        evidence = Installation.open().evidence(run)
        end_refused(evidence, run, {"at": "audit", "reason": str(refused)})
        raise


@task(persist_result=False, cache_policy=NO_CACHE, retries=0, task_run_name="audit-members")
def audit_members(run_path: str) -> None:
    """Attack real members by loss threshold; the result goes to the restricted folder only."""
    run, installation = RunFolder(run_path), Installation.open()
    planned = run.read("plan")
    row = run.read("reservation")["rows"].get(MEMBERS)
    if row is None:
        return
    classifier = load_arm(run, planned, MIXED)
    grant = installation.ledger.start(row, kind="restricted")
    evidence = installation.evidence(run)
    evidence.append("start", {"row": row, "epoch": grant.epoch, "arm": "members"})
    with (
        told(evidence, grant, run),
        trust_zone(installation, planned["dataset"], run.run_id),
        stage("private: member audit, into the restricted report"),
    ):
        scores = []
        for blocks in (planned["blocks"], planned["holdouts"]):
            records = load_records(installation, grant, blocks, planned["sections"])
            with torch.inference_mode():
                logits = classifier(torch.from_numpy(records.vectors)).numpy()
            scores.append(loss_threshold.scores(logits, records.labels))
        # Sensitive: un-noised. It stays in the trust zone, gates nothing, and says so.
        try:
            found = loss_threshold.evaluate(*scores, rng=np.random.default_rng())
        except ValueError:
            found = {}
        note = "RESTRICTED: un-noised member-level result; not for release, gates nothing."
        target = installation.store.restricted(planned["dataset"]) / f"{run.run_id}.json"
        target.touch(mode=0o600)
        target.write_text(json.dumps({"note": note, "loss_threshold": found}, indent=2))
    installation.ledger.commit(grant, note="restricted")
