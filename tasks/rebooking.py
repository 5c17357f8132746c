"""How a ledger row says which evidence it was booked again from, at a reconciliation.

The note of its transition names the entry, by hash, that shows the charge to have started. A verifier
who holds that file finds the row by it, under whatever number the restored ledger gave it.
"""

from __future__ import annotations

import re

_NOTE = re.compile(
    r"booked again from the evidence: .*, started by entry ([0-9a-f]{64})", re.DOTALL
)


def note(*, row: int, run: str, entry: str) -> str:
    """What a row that was booked again says.

    Args:
        row: The charge's row in the ledger that was lost.
        run: Name of the run's folder.
        entry: Hash of the evidence entry that shows its start.
    """
    return f"booked again from the evidence: row {row} of run {run}, started by entry {entry}"


def entry_of(said: str) -> str:
    """Hash of the entry that a note names; empty if it is no such note."""
    found = _NOTE.fullmatch(said)
    return found[1] if found else ""
