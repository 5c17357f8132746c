"""A profile, and what of it each flow takes: one pydantic model for the form, the YAML and the CLI."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from tasks.embedding import EncoderOptions
from tasks.sections import (
    AuditSection,
    CleaningSection,
    CorpusSection,
    DatasetSection,
    EvaluationSection,
    MixingSection,
    TrainingSection,
)

FlowName = Literal["refresh_public", "retrain", "audit"]


class ProfileError(ValueError):
    """A profile that cannot be used; names the key, the value and the remedy."""


class RefreshPublic(BaseModel):
    """What `refresh_public` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    corpus: CorpusSection
    cleaning: CleaningSection = CleaningSection()
    encoder: EncoderOptions = EncoderOptions()


class Retrain(BaseModel):
    """What `retrain` and `audit` take."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: DatasetSection
    corpus: CorpusSection
    encoder: EncoderOptions = EncoderOptions()
    training: TrainingSection
    mixing: MixingSection = MixingSection()
    evaluation: EvaluationSection = EvaluationSection()
    audit: AuditSection = AuditSection()


_MODELS: dict[str, type[BaseModel]] = {
    "refresh_public": RefreshPublic,
    "retrain": Retrain,
    "audit": Retrain,
}
_SECTIONS = {name for model in _MODELS.values() for name in model.model_fields}


def read_profile(path: Path, overrides: list[str] | None = None) -> dict[str, Any]:
    """A profile's YAML with ``section.key=value`` overrides applied; not yet checked.

    Raises:
        ProfileError: It is missing, no YAML mapping, or an override has another form.
    """
    if not path.is_file():
        raise ProfileError(f"profile {path} does not exist. Profiles ship in deploy/profiles.")
    try:
        profile = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ProfileError(f"profile {path} is not YAML: {error}.") from None
    if not isinstance(profile, dict):
        raise ProfileError(f"profile {path} must be a mapping of sections; see deploy/README.md.")
    for override in overrides or []:
        target, found, text = override.partition("=")
        section, dot, key = target.partition(".")
        if not found or not dot:
            raise ProfileError(f"--set takes section.key=value; got {override!r}.")
        values = profile.setdefault(section, {})
        if not isinstance(values, dict):
            raise ProfileError(f"profile {path}: section {section!r} must be a mapping.")
        values[key] = yaml.safe_load(text)
    return profile


def parameters_of(profile: dict[str, Any], flow: FlowName) -> dict[str, Any]:
    """The flow's parameters from a profile, checked.

    Raises:
        ProfileError: Every key that is missing, unknown or out of range, with its value and bound.
    """
    model = _MODELS[flow]
    unknown = set(profile) - _SECTIONS
    if unknown:
        raise ProfileError(
            f"unknown section {', '.join(sorted(map(str, unknown)))}; known: "
            f"{', '.join(sorted(_SECTIONS))}."
        )
    try:
        checked = model(**{k: v for k, v in profile.items() if k in model.model_fields})
    except ValidationError as error:
        raise ProfileError("; ".join(_say(e) for e in error.errors()) + ".") from None
    return {name: getattr(checked, name) for name in model.model_fields}


def _say(error: Any) -> str:
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        return f"{key} is missing: add it to the profile"
    if error["type"] == "extra_forbidden":
        return f"{key} is unknown: take it out, or see deploy/README.md for the right name"
    return f"{key}: {error['msg'][0].lower()}{error['msg'][1:]}; got {error['input']!r}"
