"""What a profile says, section by section: the same models make the UI's form, the YAML and the CLI.

One nesting level, no unions; limits stand in the descriptions, since forms do not show them. Rules that
span sections are checked when the plan is built, before anything is reserved.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tasks.cleaning.stages import STEPS


class Section(BaseModel):
    """Base of the sections: frozen, no unknown keys, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CorpusSection(Section):
    """The public corpus."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9._-]*$", description="Name of the corpus: lower-case letters."
    )
    raw: str = Field(description="Folder of raw public shards, JSON Lines (*.jsonl).")


class CleaningSection(Section):
    """How public text is cleaned."""

    steps: list[str] = Field(
        default=list(STEPS), description="Cleaning steps, by name or module:Class."
    )
    options: dict[str, dict[str, Any]] = Field(default={}, description="Options of steps, by step.")
    workers: int = Field(default=2, ge=0, le=64, description="Processes that clean; 0 to 64.")


class DatasetSection(Section):
    """The private dataset, as registered."""

    name: str = Field(description="Name under which the dataset is registered.")
    periods: list[str] = Field(
        default=[""], description="Periods to train on; the empty one is the dataset's only block."
    )
    cleaning_steps: list[str] = Field(
        default=["html", "repair"],
        description="Record-local cleaning steps for private text, run behind the grant.",
    )


class TrainingSection(Section):
    """DP-SGD: what is charged follows from these alone."""

    epsilon: float = Field(gt=0, description="ε of the run: above 0, at most what is left.")
    delta: float = Field(default=1e-5, gt=0, lt=1, description="δ: above 0, below 1/n.")
    sample_rate: float = Field(
        default=0.25,
        gt=0,
        le=1,
        description="Chance q of a unit to be in a step: above 0, up to 1.",
    )
    steps: int = Field(default=60, ge=1, description="Number of steps T: at least 1.")
    max_grad_norm: float = Field(
        default=2.5, gt=0, description="Clip C of a unit's gradient: above 0."
    )
    learning_rate: float = Field(default=0.1, gt=0, description="Step size: above 0.")
    feature_scale: float = Field(
        default=10.0, gt=0, description="Norm R of a record's features: above 0."
    )
    average_last: float = Field(
        default=0.5, gt=0, le=1, description="Share of final iterates that are averaged."
    )
    head: str = Field(default="linear", description="linear, or package.module:factory.")
    max_physical_batch: int = Field(
        default=4096, ge=1, description="Units in memory at once; changes nothing else."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="Where to train.")


class MixingSection(Section):
    """How public data is mixed in."""

    strategies: list[str] = Field(
        default=["public_whitening", "warm_start", "inside_clip"],
        description="Mixing strategies, applied together; none means DP-SGD alone.",
    )
    neighbours: int = Field(default=8, ge=1, le=1000, description="Public neighbours k: 1 to 1000.")
    temperature: float = Field(default=0.2, gt=0, description="Temperature τ: above 0.")
    weight: float = Field(
        default=0.3, gt=0, le=1, description="Share λ of the mixture in the second view: up to 1."
    )
    whitening: float = Field(
        default=0.5, gt=0, le=1, description="Power of the public covariance: above 0, up to 1."
    )


class EvaluationSection(Section):
    """What is published about utility, and what it costs."""

    epsilon: float = Field(
        default=1.0, gt=0, description="ε spent on the hold-out for the noised confusion matrices."
    )
    private_only: bool = Field(
        default=False,
        description="Train the private-only arm on private data too: a release, charged like one.",
    )
    private_only_learning_rate: float = Field(
        default=0.0,
        ge=0,
        description="Step size of that arm, which starts from nothing; 0: the training's.",
    )


class AuditSection(Section):
    """How hard the run is attacked before it is released."""

    canaries: int = Field(default=1000, ge=100, le=20000, description="Canaries: 100 to 20,000.")
    guesses: int = Field(default=200, ge=10, description="Canaries guessed: at least 10.")
    repeats: int = Field(default=200, ge=20, le=10000, description="Repeated runs: 20 to 10,000.")
    confidence: float = Field(default=0.95, gt=0.5, lt=1, description="Joint confidence.")
    strict: bool = Field(
        default=True, description="Refuse also when the audit could not have seen a fault."
    )
    members: bool = Field(
        default=True, description="Attack real members too, into the restricted report."
    )
    replay_key: str = Field(
        default="",
        pattern=r"^([0-9a-f]{64})?$",
        description="X25519 public key of an auditor (64 hex digits), to whom the noise is sealed for a "
        "replay: the run is then not private against the holder of that key. Empty: no replay.",
    )
