"""What happens when a run ends without a release: reservations it never started are given back."""

from __future__ import annotations

from typing import Any

from storage.runs import RunFolder
from storage.settings import Settings
from tasks.budget import release_unstarted
from tasks.refusals import refusal_of
from tasks.reporting.summary import report


def close_refused(flow: Any, flow_run: Any, state: Any) -> None:  # noqa: ARG001 - see below
    """Prefect hook: release what was never started; report why it was refused, if it was.

    A started row is never touched: its charge stays, whatever happened. A run's own process passes the
    arguments by position, a worker that buries a killed run by these names.
    """
    release_unstarted(str(flow_run.id))
    for run in _folders(str(flow_run.id)):
        _, reason = refusal_of(run)
        if reason and not (run.path / "report.html").exists():
            report.fn(str(run.path), reason)


def _folders(flow_run_id: str) -> list[RunFolder]:
    marker = flow_run_id.replace("-", "")[:8]
    return [
        RunFolder(p) for p in Settings().runs.glob(f"*-{marker}*") if (p / "plan.json").exists()
    ]
