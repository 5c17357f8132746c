"""A run's folder: small JSON files and noised weights, handed between tasks by path.

Nothing private is ever written here. Every file is written whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from storage.errors import StorageError
from storage.files import write_whole


class RunError(StorageError):
    """A run's folder lacks what an earlier stage should have written."""


class RunFolder:
    """One run's files, by name.

    Args:
        path: The folder; made if missing.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)

    @property
    def run_id(self) -> str:
        """The folder's name."""
        return self.path.name

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Write `name`.json; NaN and infinities are refused."""
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
        write_whole(self.path / f"{name}.json", text.encode())

    def read(self, name: str) -> dict[str, Any]:
        """Read `name`.json.

        Raises:
            RunError: It is not there: the stage that writes it has not run.
        """
        path = self.path / f"{name}.json"
        if not path.is_file():
            raise RunError(f"{self.path} has no {path.name}: an earlier stage did not finish.")
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return value

    def has(self, name: str) -> bool:
        """Whether `name`.json has been written."""
        return (self.path / f"{name}.json").is_file()

    def write_weights(self, arm: str, state: Mapping[str, torch.Tensor]) -> None:
        """Keep an arm's weights: public ones, or noised and paid for."""
        folder = self.path / "arms"
        folder.mkdir(exist_ok=True)
        temporary = folder / f"{arm}.part"
        save_file({k: v.detach().cpu().contiguous() for k, v in state.items()}, temporary)
        temporary.replace(folder / f"{arm}.safetensors")

    def arms(self) -> list[str]:
        """Names of the arms whose weights are there."""
        return sorted(p.stem for p in (self.path / "arms").glob("*.safetensors"))

    def read_weights(self, arm: str) -> dict[str, torch.Tensor]:
        """An arm's weights.

        Raises:
            RunError: They are not there, or are no weights.
        """
        path = self.path / "arms" / f"{arm}.safetensors"
        if not path.is_file():
            known = ", ".join(self.arms()) or "none"
            raise RunError(f"{self.path} has no weights of arm {arm!r}; it has those of: {known}.")
        try:
            weights: dict[str, torch.Tensor] = load_file(path)
        except SafetensorError as error:
            raise RunError(f"{path} holds no weights: {error}.") from None
        return weights
