"""Digests of what ran and how it was set: named in the evidence, so that a copy can be compared.

The digest of the code shows which files were installed where the plan was made; it is the installation's
own word, not a proof that this code ran.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from storage.chain import canonical

PACKAGES = ("flows", "privacy", "storage", "tasks")
_ROOT = Path(__file__).resolve().parent.parent


def digests(sections: Mapping[str, Any]) -> dict[str, str]:
    """Hex SHA-256 of the project's code and of a run's configuration.

    Args:
        sections: The profile's sections as plain values.
    """
    configuration = hashlib.sha256(canonical(sections).encode()).hexdigest()
    return {"code": code_digest(_ROOT), "configuration": configuration}


@lru_cache(maxsize=8)
def code_digest(root: Path) -> str:
    """Hex SHA-256 over path, length and content of every file of the four packages, sorted by path."""
    digest = hashlib.sha256()
    for name, path in sorted(_files(root)):
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _files(root: Path) -> list[tuple[str, Path]]:
    return [
        (path.relative_to(root).as_posix(), path)
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
