"""From a row of a file to a unit: what is well-formed, whose it is, and where a keyed hash sends it."""

from __future__ import annotations

import hashlib
import hmac

from storage.private.dataset import Dataset
from storage.private.files import Row

_MAXIMUM_CHARACTERS = 1_000_000


def parse(
    row: Row, dataset: Dataset, period: str, index: dict[str, int]
) -> tuple[str, int, str] | None:
    """(text, label, person), or None for a malformed row."""
    text = row.get(dataset.text_column)
    label = index.get(_field(row, dataset.label_column))
    person = _field(row, dataset.person_column)
    if not isinstance(text, str) or not text.strip() or label is None:
        return None
    if dataset.person_column and not person:
        return None
    if dataset.period_column and _field(row, dataset.period_column) != period:
        return None
    text = text[:_MAXIMUM_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
    return text, label, person


def _field(row: Row, column: str) -> str:
    """A row's value as text; '' if there is none, or it is a list or an object."""
    value = row.get(column)
    return "" if value is None or isinstance(value, list | dict) else str(value).strip()


def unit_id(key: str, dataset: Dataset, period: str, person: str, text: str) -> str:
    """Keyed hash of the unit alone: never of its position, its label or its neighbours."""
    if dataset.unit == "person":
        return digest(key, f"person\n{period}\n{person}")
    return digest(key, f"record\n{text}")


def digest(key: str, value: str) -> str:
    """HMAC-SHA-256 of a text under a key of hex digits."""
    # A lone surrogate is no text, but it can stand in a person key, and must not raise.
    return hmac.digest(bytes.fromhex(key), value.encode(errors="surrogatepass"), "sha256").hex()


def fraction(key: str, unit: str) -> float:
    """Where a unit falls in [0, 1), by a second keyed hash."""
    return int.from_bytes(hashlib.sha256(bytes.fromhex(digest(key, unit))).digest()[:7]) / 2**56
