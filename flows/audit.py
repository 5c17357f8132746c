"""audit: attack the mechanism of a profile on a public twin, without reserving or reading anything."""

from __future__ import annotations

from prefect import flow

from tasks.auditing import audit_plan, gate_on_audit
from tasks.embedding import EncoderOptions
from tasks.planning import build_plan
from tasks.releasing import close_evidence
from tasks.sections import (
    AuditSection,
    CorpusSection,
    DatasetSection,
    EvaluationSection,
    MixingSection,
    TrainingSection,
)


@flow(name="audit", flow_run_name="audit {dataset.name} ε={training.epsilon}", persist_result=False)
def audit(
    dataset: DatasetSection,
    corpus: CorpusSection,
    training: TrainingSection,
    encoder: EncoderOptions = EncoderOptions(),
    mixing: MixingSection = MixingSection(),
    evaluation: EvaluationSection = EvaluationSection(),
    audit: AuditSection = AuditSection(),
) -> str:
    """Attack the plan that this profile makes; spends no budget and reads nothing private.

    Args:
        dataset: The private dataset whose declaration the plan follows.
        corpus: The public corpus that plays the private part.
        training: The DP-SGD settings under attack.
        encoder: The frozen encoder.
        mixing: How public data is mixed in.
        evaluation: Part of the plan; not used here.
        audit: How hard to attack.
    """
    run = build_plan(dataset, corpus.name, encoder, training, mixing, evaluation, audit)
    verdict = audit_plan(run)
    gate_on_audit(run)
    close_evidence(run)
    return verdict
