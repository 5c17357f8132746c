"""From a profile to a plan and its quote: everything checked before anything is reserved.

A run's folder is made here; it carries the settings, the frozen plans and the quote to the later tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from prefect import runtime, task
from prefect.cache_policies import NO_CACHE

from privacy import accounting
from privacy.classifier import fit_features
from privacy.errors import PlanError
from privacy.heads import build_head
from privacy.mechanisms import confusion_sensitivity
from privacy.mixing import LEAST_LABELLED, build
from privacy.plan import MixingPlan, Plan
from storage.ledger import Block
from storage.private import Dataset
from storage.runs import RunFolder
from tasks.cleaning import base
from tasks.embedding import EncoderOptions, encoder_of
from tasks.fingerprint import digests
from tasks.installation import Installation
from tasks.public import load_public
from tasks.sections import (
    AuditSection,
    DatasetSection,
    EvaluationSection,
    MixingSection,
    TrainingSection,
)

MIXED, PRIVATE_ONLY, PUBLIC_ONLY = "mixed", "dp_private_only", "public_only"
PURPOSES = {MIXED: "mixed model", PRIVATE_ONLY: "private-only arm"}
EVALUATION = "evaluation"
MEMBERS = "member audit"


@task(persist_result=False, cache_policy=NO_CACHE, task_run_name="plan")
def build_plan(
    dataset: DatasetSection,
    corpus: str,
    encoder: EncoderOptions,
    training: TrainingSection,
    mixing: MixingSection,
    evaluation: EvaluationSection,
    audit: AuditSection,
) -> str:
    """Check the profile as a whole, calibrate, freeze the plans; returns the run's folder.

    Raises:
        PlanError: A part is out of range or does not match another.
        PrivateDataError: The dataset or a period is not registered.
        CorpusError, EmbeddingError: The public corpus is not there yet.
    """
    installation = Installation.open()
    declared = installation.store.dataset(dataset.name)
    blocks = train_blocks(installation, declared, dataset.periods)
    build_head(training.head, feature_dimension=encoder_of(encoder).dimension,
               classes=len(declared.classes))  # fmt: skip
    if audit.guesses > audit.canaries:
        raise PlanError(
            f"audit.guesses must be at most audit.canaries = {audit.canaries}; got {audit.guesses}."
        )
    _check_private_steps(dataset.cleaning_steps)
    mixing_plan = MixingPlan(**{**mixing.model_dump(), "strategies": tuple(mixing.strategies)})
    build(mixing_plan)
    if training.epsilon > min(b.epsilon_cap for b in blocks):
        cap = min(b.epsilon_cap for b in blocks)
        raise PlanError(
            f"training.epsilon must be at most the blocks' cap {cap:g}; got {training.epsilon:g}. "
            "Lower it: no run may ask for more than ε_total."
        )
    common = {
        "privacy_unit": declared.unit,
        "declared_units": sum(b.declared_units for b in blocks),
        "records_per_unit": declared.records_per_unit,
        "classes": declared.classes,
        "feature_dimension": encoder_of(encoder).dimension,
        "encoder_digest": encoder_of(encoder).digest,
        **training.model_dump(exclude={"max_physical_batch", "device"}),
    }
    public = load_public(corpus, encoder, declared.classes)
    _check_public_labels(mixing_plan, corpus, declared, len(public.labelled))
    mixed = Plan.calibrated(
        mixing=MixingPlan(**{**mixing_plan.__dict__, "public_digest": public.digest}), **common
    )
    fit_features(mixed, public.data)  # refused now, if at all: before anything is reserved
    plans = {MIXED: mixed.to_json()}
    if evaluation.private_only:
        plans[PRIVATE_ONLY] = without_mixing(mixed, evaluation).to_json()
    run = RunFolder(installation.settings.runs / _run_name(dataset.name))
    arms = len(plans) + int(len(public.labelled) >= LEAST_LABELLED)
    run.write(
        "plan",
        {
            "run_id": run.run_id,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "key": list(run_key()),
            "dataset": declared.name,
            "blocks": [b.name for b in blocks],
            "holdouts": holdouts(installation, declared, dataset.periods),
            "plans": plans,
            "evaluation": evaluation_release(evaluation, declared, blocks, arms),
            "sections": {
                "dataset": dataset.model_dump(),
                "corpus": corpus,
                "encoder": encoder.model_dump(),
                "training": training.model_dump(),
                "audit": audit.model_dump(),
                "evaluation": evaluation.model_dump(),
            },
        },
    )
    told = {"plans": plans, "blocks": [b.name for b in blocks]}
    made = digests(run.read("plan")["sections"])
    installation.evidence(run).append("plan", {**told, "digests": made})
    return str(run.path)


def without_mixing(plan: Plan, section: EvaluationSection) -> Plan:
    """The private-only arm of a plan: same data, noise and price, nothing public."""
    rate = section.private_only_learning_rate or plan.learning_rate
    return replace(plan, mixing=MixingPlan(), learning_rate=rate)


def run_key() -> tuple[str, int]:
    """(flow run id, attempt): the ledger's idempotence key."""
    return str(runtime.flow_run.id), int(runtime.flow_run.run_count or 1)


def _run_name(dataset: str) -> str:
    flow_run_id, attempt = run_key()
    suffix = flow_run_id.replace("-", "")[:8] + (f"-{attempt}" if attempt > 1 else "")
    return f"{datetime.now(UTC):%Y%m%d}-{dataset}-{suffix}"


def train_blocks(
    installation: Installation, dataset: Dataset, periods: Sequence[str]
) -> list[Block]:
    """The training blocks of the chosen periods.

    Raises:
        PlanError: No period is given, one is given twice, or one is not registered.
    """
    known = {b.name: b for b in installation.ledger.blocks(dataset.name) if b.role == "train"}
    wanted = [dataset.block(p) for p in periods]
    if not wanted or len(set(wanted)) != len(wanted):
        raise PlanError(f"dataset.periods must name different periods; got {list(periods)}.")
    for name in wanted:
        if name not in known:
            raise PlanError(
                f"dataset.periods: block {name} is not registered; registered: "
                f"{', '.join(known) or 'none'}. Run `dpmix dataset register`."
            )
    return [known[name] for name in wanted]


def holdouts(installation: Installation, dataset: Dataset, periods: Sequence[str]) -> list[str]:
    """Names of the hold-out blocks of the chosen periods that exist."""
    known = {b.name for b in installation.ledger.blocks(dataset.name)}
    names = [dataset.block(p, holdout=True) for p in periods]
    return [n for n in names if n in known]


def _check_public_labels(mixing: MixingPlan, corpus: str, dataset: Dataset, found: int) -> None:
    wanting = [s.name for s in build(mixing) if s.needs_labels]
    if wanting and found < LEAST_LABELLED:
        raise PlanError(
            f"mixing.strategies: {', '.join(wanting)} needs at least {LEAST_LABELLED} public documents "
            f"labelled with a declared class ({', '.join(dataset.classes)}); corpus {corpus!r} has "
            f"{found}. Give its raw documents these labels, or take the strategy out."
        )


def _check_private_steps(steps: Sequence[str]) -> None:
    for step in steps:
        if not base.find(step).record_local:
            raise PlanError(
                f"dataset.cleaning_steps: {step!r} looks at more than one record, which couples "
                "private records. Use record-local steps only."
            )


def evaluation_release(
    section: EvaluationSection, dataset: Dataset, blocks: Sequence[Block], arms: int
) -> dict[str, Any]:
    """Noise of the confusion matrices: joint over all arms, for the dataset's unit."""
    sensitivity = confusion_sensitivity(arms=arms, records_per_unit=dataset.records_per_unit)
    delta = min(b.delta for b in blocks)
    multiplier = accounting.calibrate_noise(
        lambda s: accounting.discrete_gaussian_event(noise_multiplier=s),
        epsilon=section.epsilon,
        delta=delta,
        price=accounting.rdp_epsilon,
    )
    event = accounting.discrete_gaussian_event(noise_multiplier=multiplier)
    return {
        "arms": arms,
        "sensitivity": sensitivity,
        "sigma": multiplier * sensitivity,
        "noise_multiplier": multiplier,
        "epsilon": accounting.rdp_epsilon(event, delta=delta),
        "delta": delta,
        "event": accounting.event_to_json(event),
    }
