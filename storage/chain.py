"""Hash chains over canonical JSON: the one form in which the ledger's journal and the evidence are kept.

A link is {"sequence", "kind", "at", "previous", "body"}, and its hash is SHA-256 over the canonical form
of exactly these five, so the previous hash lies inside what is hashed. `at` is a day, never a time: how
long a private stage took speaks of its rows. A chain shows that nothing before its newest hash (the
head) was changed, dropped or put in between; by itself it does not show that the end was not cut off,
nor who wrote it. For that, a head is kept elsewhere, and links are signed (`storage.evidence`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import date
from typing import Any

GENESIS = "0" * 64
"""The hash before the first link."""

LINK = ("sequence", "kind", "at", "previous", "body")
"""The fields that a link's hash covers."""


def canonical(value: Mapping[str, Any]) -> str:
    """The one spelling of a JSON object: sorted keys, no spaces, no NaN, Unicode as it is.

    Raises:
        ValueError: A number is not finite.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest(link: Mapping[str, Any]) -> str:
    """Hex SHA-256 over the canonical form of a link's five fields."""
    return hashlib.sha256(canonical({k: link[k] for k in LINK}).encode()).hexdigest()


def make_link(
    *, sequence: int, kind: str, day: date, previous: str, body: Mapping[str, Any]
) -> dict[str, Any]:
    """The next link with its hash: {"sequence", "kind", "at", "previous", "body", "hash"}."""
    link = {
        "sequence": sequence,
        "kind": kind,
        "at": day.isoformat(),
        "previous": previous,
        "body": dict(body),
    }
    return {**link, "hash": digest(link)}
