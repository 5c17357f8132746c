"""Released models: weights as safetensors, a card as JSON; loading executes nothing.

A model folder holds `weights.safetensors` and `model.json` (classes, head, encoder digest and tokens,
plan digest, ε, δ, ledger row). It is written under a temporary name and renamed, so a killed release
leaves no half model. What the production gate refused is never written here.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from storage.errors import StorageError

SCHEMA = 2


class ModelError(StorageError):
    """A model folder is missing, incomplete, or of another schema."""


@dataclass(frozen=True)
class StoredModel:
    """A model as stored.

    Attributes:
        card: What `model.json` says.
        state: Weights by name.
    """

    card: Mapping[str, Any]
    state: Mapping[str, torch.Tensor]


def save_model(folder: Path, *, card: Mapping[str, Any], state: Mapping[str, torch.Tensor]) -> Path:
    """Write a model folder atomically; an existing one of that name is never overwritten."""
    if folder.exists():
        raise ModelError(f"{folder} exists; a released model is never overwritten.")
    temporary = folder.with_name(folder.name + ".part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    tensors = {k: v.detach().cpu().contiguous() for k, v in state.items()}
    save_file(tensors, temporary / "weights.safetensors")
    text = json.dumps({"schema": SCHEMA, **card}, indent=2, ensure_ascii=False, allow_nan=False)
    (temporary / "model.json").write_text(text, encoding="utf-8")
    temporary.rename(folder)
    return folder


def load_model(folder: Path) -> StoredModel:
    """Read a model folder.

    Raises:
        ModelError: It is no model folder of this schema.
    """
    try:
        card = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        state = load_file(folder / "weights.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(f"{folder} is not a released model: {error}.") from None
    if not isinstance(card, dict):
        raise ModelError(f"{folder} is not a released model: model.json holds no object.")
    if card.get("schema") != SCHEMA:
        raise ModelError(f"{folder} has schema {card.get('schema')}; this version reads {SCHEMA}.")
    return StoredModel(card, state)
