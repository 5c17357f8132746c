"""What a verification found, in lines for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

VALID, INCOMPLETE, INVALID = "VALID", "INCOMPLETE", "INVALID"
_RANK = (VALID, INCOMPLETE, INVALID)


class Mismatch(Exception):  # noqa: N818 - a finding about a file, not a fault of ours
    """An entry does not add up.

    Attributes:
        entry: Its number, counted from 0; None if it is the whole that does not.
    """

    def __init__(self, message: str, *, entry: int | None = None) -> None:
        super().__init__(message)
        self.entry = entry


@dataclass(frozen=True)
class Report:
    """The outcome of a verification.

    Attributes:
        lines: For people; the last one is the result.
        result: VALID, INCOMPLETE or INVALID.
        data: The same as plain values: {"files": […], "blocks": […], "failures": […], "missing": […]}.
    """

    lines: tuple[str, ...]
    result: str
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 if VALID, else 1."""
        return 0 if self.result == VALID else 1

    def to_json(self) -> dict[str, Any]:
        """Plain values, result and lines included."""
        return {"result": self.result, **self.data, "lines": list(self.lines)}


def worst(results: list[str]) -> str:
    """The result of a whole whose parts have these."""
    return max(results, key=_RANK.index, default=VALID)
