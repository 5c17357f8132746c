"""retrain: plan, quote, reserve, audit the mechanism, train, evaluate, release, report."""

from __future__ import annotations

from prefect import flow

from tasks.auditing import audit_members, audit_plan, gate_on_audit
from tasks.budget import quote, reserve
from tasks.embedding import EncoderOptions
from tasks.evaluation import evaluate
from tasks.planning import MIXED, PRIVATE_ONLY, build_plan
from tasks.releasing import close_evidence, release
from tasks.reporting.summary import report
from tasks.runs import close_refused
from tasks.sections import (
    AuditSection,
    CorpusSection,
    DatasetSection,
    EvaluationSection,
    MixingSection,
    TrainingSection,
)
from tasks.training import train_arm, train_public_only


@flow(
    name="retrain",
    flow_run_name="retrain {dataset.name} ε={training.epsilon}",
    persist_result=False,
    retries=0,
    on_failure=[close_refused],
    on_crashed=[close_refused],
    on_cancellation=[close_refused],
)
def retrain(
    dataset: DatasetSection,
    corpus: CorpusSection,
    training: TrainingSection,
    encoder: EncoderOptions = EncoderOptions(),
    mixing: MixingSection = MixingSection(),
    evaluation: EvaluationSection = EvaluationSection(),
    audit: AuditSection = AuditSection(),
) -> str:
    """Train on private data under differential privacy, mixing in public data; gated by the ledger.

    Args:
        dataset: The private dataset and its periods.
        corpus: The public corpus, refreshed before.
        training: ε and the DP-SGD settings: what is charged follows from these.
        encoder: The frozen encoder.
        mixing: How public data is mixed in.
        evaluation: What is published about utility, and what that costs.
        audit: How hard the run is attacked before anything is released.
    """
    run = build_plan(dataset, corpus.name, encoder, training, mixing, evaluation, audit)
    quote(run)
    reserve(run)
    audit_plan(run)
    gate_on_audit(run)
    train_arm(run, MIXED)
    train_arm(run, PRIVATE_ONLY)
    train_public_only(run)
    evaluate(run)
    release(run)
    audit_members(run)
    close_evidence(run)
    return report(run)
