"""From a row of a file to a unit: what is well-formed, whose it is, and where a keyed hash sends it.

The unit `record` is its text *normalised* (NFKC, case folded, whitespace collapsed and stripped), so a
copy that was re-cased, re-spaced or re-encoded is the same unit, and stays in the block that it is bound
to. A copy that was edited in any other way is a unit of its own: no hash can tell it from a new text.
Nothing here raises, counts or logs because of what a row holds.
"""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from dataclasses import dataclass

from storage.private.dataset import Dataset
from storage.private.files import Row

_MAXIMUM_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class Parsed:
    """A well-formed row. Sensitive.

    Attributes:
        text: Its text, cut at a million characters.
        label: Class index.
        person: Person key; empty for unit ``record``.
        content: The whole text, normalised.
    """

    text: str
    label: int
    person: str
    content: str


def parse(row: Row, dataset: Dataset, period: str, index: dict[str, int]) -> Parsed | None:
    """A row as the dataset declares it; None if it is malformed or of another period.

    Args:
        row: Values by column.
        dataset: The declaration.
        period: What the period column must say, where there is one.
        index: Class index by name.
    """
    text = row.get(dataset.text_column)
    label = index.get(_field(row, dataset.label_column))
    person = _field(row, dataset.person_column)
    if not isinstance(text, str) or not text.strip() or label is None:
        return None
    if dataset.person_column and not person:
        return None
    if dataset.period_column and _field(row, dataset.period_column) != period:
        return None
    text = text.encode("utf-8", "replace").decode("utf-8")
    return Parsed(text[:_MAXIMUM_CHARACTERS], label, person, normalised(text))


def normalised(text: str) -> str:
    """NFKC, case folded, whitespace collapsed to single spaces; doing it again changes nothing.

    Texts come out equal exactly if they match caselessly under compatibility equivalence (Unicode
    standard, 3.13, D146: fold, decompose, fold again) and their spaces are no matter.
    """
    folded = unicodedata.normalize("NFD", text).casefold()
    folded = unicodedata.normalize("NFKD", folded).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def _field(row: Row, column: str) -> str:
    """A row's value as text; '' if there is none, or it is a list or an object."""
    value = row.get(column)
    return "" if value is None or isinstance(value, list | dict) else str(value).strip()


def unit_id(key: str, dataset: Dataset, period: str, parsed: Parsed) -> str:
    """Keyed hash of the unit alone: never of its position, its label or its neighbours."""
    if dataset.unit == "person":
        return digest(key, f"person\n{period}\n{parsed.person}")
    return digest(key, f"record\n{parsed.content}")


def digest(key: str, value: str) -> str:
    """HMAC-SHA-256 of a text under a key of hex digits."""
    # A lone surrogate is no text, but it can stand in a person key, and must not raise.
    return hmac.digest(bytes.fromhex(key), value.encode(errors="surrogatepass"), "sha256").hex()


def fraction(key: str, unit: str) -> float:
    """Where a unit falls in [0, 1), by a second keyed hash."""
    return int.from_bytes(hashlib.sha256(bytes.fromhex(digest(key, unit))).digest()[:7]) / 2**56
