"""What happens when a run ends without a release: reservations it never started are given back."""

from __future__ import annotations

from typing import Any

from storage.runs import RunFolder
from storage.settings import Settings
from tasks.budget import release_unstarted
from tasks.reporting.summary import report


def close_refused(_flow: Any, flow_run: Any, _state: Any) -> None:
    """Prefect hook: release what was never started; report why, where the audit said no.

    A started row is never touched: its charge stays, whatever happened.
    """
    release_unstarted(str(flow_run.id))
    for run in _folders(str(flow_run.id)):
        refusal = refusal_of(run)
        if refusal and not (run.path / "report.html").exists():
            report.fn(str(run.path), refusal)


def refusal_of(run: RunFolder) -> str:
    """Why the audit stopped a run; empty if it did not."""
    from tasks.auditing import ReleaseRefused, require_audit  # noqa: PLC0415 - loads torch

    if not (run.has("audit") and run.has("reservation")) or run.has("release"):
        return ""
    try:
        require_audit(run)
    except ReleaseRefused as refused:
        return str(refused)
    return ""


def _folders(flow_run_id: str) -> list[RunFolder]:
    marker = flow_run_id.replace("-", "")[:8]
    return [
        RunFolder(p) for p in Settings().runs.glob(f"*-{marker}*") if (p / "plan.json").exists()
    ]
