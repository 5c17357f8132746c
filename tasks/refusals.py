"""Why a run was refused, in declared and ledger figures, and what its owner can do.

The evidence holds the reason of a refused reservation or step; what the audit refused is asked of the
audit itself. Neither quotes a private row.
"""

from __future__ import annotations

import json
from typing import Any

from storage.runs import RunFolder
from tasks.installation import Installation

RESERVATION, AUDIT, STEP = "reservation", "audit", "step"

_REMEDIES = {
    RESERVATION: (
        "Ask for less: lower training.epsilon, or evaluation.epsilon for a hold-out.",
        "Or use another period: register it, and its block has budget of its own.",
    ),
    AUDIT: ("Find out what the audit saw, or why it saw too little, before the next run.",),
    STEP: ("Start again from an unchanged profile; what was started stays charged.",),
}


def refusal_of(run: RunFolder) -> tuple[str, str]:
    """Where a run was refused (reservation, audit or step) and why; two empty strings if it was not."""
    told = _told(run)
    if told:
        return str(told["at"]), str(told["reason"])
    if not (run.has("audit") and run.has("reservation")) or run.has("release"):
        return "", ""
    from tasks.auditing import ReleaseRefused, require_audit  # noqa: PLC0415 - loads torch

    try:
        require_audit(run)
    except ReleaseRefused as refused:
        return AUDIT, str(refused)
    return "", ""


def advice(run: RunFolder, installation: Installation, at: str) -> list[str]:
    """What to do about a refusal, most useful first."""
    planned = run.read("plan")
    found = list(_REMEDIES.get(at, ()))
    models = installation.settings.models / str(planned["dataset"])
    released = [p for p in models.glob("*") if p.is_dir() and p.name != run.run_id]
    if released:
        newest = max(released, key=lambda p: p.stat().st_mtime)
        found.append(f"Until then the last released model stays in use: {newest}.")
    return found


def _told(run: RunFolder) -> dict[str, Any]:
    """Body of the evidence's refusal; empty if there is none."""
    path = run.path / "evidence.jsonl"
    if not path.is_file():
        return {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:  # a torn tail: the evidence itself deals with it
            continue
        if isinstance(entry, dict) and entry.get("kind") == "refusal":
            return dict(entry["body"])
    return {}
