"""The error of this package."""

from __future__ import annotations

from storage.errors import StorageError


class EvidenceError(StorageError):
    """An evidence file cannot be written, or fails verification; names the entry.

    Attributes:
        entry: Number of the entry that fails, counted from 0; None if it is none of them.
    """

    def __init__(self, message: str, *, entry: int | None = None) -> None:
        super().__init__(message)
        self.entry = entry
