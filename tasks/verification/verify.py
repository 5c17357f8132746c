"""Runs and the ledger's export, held against each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from storage.evidence import EvidenceError
from storage.evidence.keys import read_public_key
from tasks.verification.ledger import Export, Row, block_lines, read_export
from tasks.verification.report import INCOMPLETE, INVALID, VALID, Mismatch, Report, worst
from tasks.verification.run import SLACK, CheckedRun, check_run

CLOSING = "evidence proves consistency, not that this very code ran"


def verify_files(
    paths: Sequence[Path], key: str, *, head: str = "", export: Path | None = None
) -> Report:
    """Verify runs' evidence, and the ledger's export if there is one.

    Args:
        paths: Evidence files of runs; none is right where only the export is verified.
        key: Public key: 64 hex digits, or the path of a file that holds them.
        head: Head of the one file given, as published elsewhere.
        export: The ledger's export.
    """
    lines: list[str] = []
    data: dict[str, Any] = {"files": [], "blocks": [], "failures": [], "missing": []}
    results: list[str] = []
    runs: list[CheckedRun] = []

    def fail(error: Exception, file: str) -> None:
        results.append(INVALID)
        entry = getattr(error, "entry", None)
        data["failures"].append({"file": file, "entry": entry, "why": str(error)})
        lines.append(f"INVALID: {error}")

    try:
        digits = read_public_key(key)
    except EvidenceError as error:
        fail(error, "")
        return _report(lines, results, data)
    if head and len(paths) != 1:
        fail(Mismatch(f"--head is the head of one file; {len(paths)} files were given"), "")
        return _report(lines, results, data)
    for path in paths:
        try:
            run = check_run(path, digits, head=head)
        except Mismatch as error:
            fail(error, str(path))
            continue
        runs.append(run)
        results.append(_describe(run, path, lines, data))
    if export is not None:
        try:
            replayed = read_export(export, digits)
            results.append(_against(replayed, runs, lines, data))
        except Mismatch as error:
            fail(error, str(export))
    return _report(lines, results, data)


def _report(lines: list[str], results: list[str], data: dict[str, Any]) -> Report:
    result = worst(results) if results else INCOMPLETE
    return Report((*lines, CLOSING, result), result, data)


def _describe(run: CheckedRun, path: Path, lines: list[str], data: dict[str, Any]) -> str:
    lines.append(f"{path}: {run.entries} entries, each chained, signed and in order")
    lines.extend(f"  {line}" for line in run.lines)
    lines.append(f"  head {run.head}")
    result = VALID if run.complete else INCOMPLETE
    if not run.complete:
        lines.append(
            "  INCOMPLETE: the file is not closed and no head was given (--head): its end may have been "
            "cut off, or its run was killed"
        )
    data["files"].append(
        {
            "file": str(path),
            "result": result,
            "entries": run.entries,
            "head": run.head,
            "ledger": run.ledger,
            "rows": sorted(run.rows),
            "settled": sorted(run.settlements),
        }
    )
    return result


def _against(
    export: Export, runs: Sequence[CheckedRun], lines: list[str], data: dict[str, Any]
) -> str:
    lines.append(
        f"ledger {export.ledger} as of {export.day}: {export.entries} links replayed, every charge "
        f"priced again; head {export.head}"
    )
    results = [_match(export, run, lines) for run in runs]
    known = {h for run in runs for h in run.settlements.values()}
    for number, row in sorted(export.rows.items()):
        if row.state == "COMMITTED" and row.head and row.head not in known:
            name = f"{row.body['flow_run_id']}, attempt {row.body['run_count']}"
            data["missing"].append({"row": number, "run": name, "head": row.head})
            lines.append(
                f"INCOMPLETE: row {number} ({row.body['purpose']}, run {name}) was committed with head "
                f"{row.head}, which is in none of the files given"
            )
            results.append(INCOMPLETE)
    for line, values in block_lines(export):
        lines.append(line)
        data["blocks"].append(values)
    return worst(results)


def _match(export: Export, run: CheckedRun, lines: list[str]) -> str:
    """Compare a run's rows and settlements with the export's.

    A ledger that was restored from a backup gave numbers out anew. What a reconciliation booked again
    names its evidence; what cost nothing may be forgotten.

    Raises:
        Mismatch: They contradict each other.
    """
    if not run.ledger:
        return VALID
    if run.ledger != export.ledger:
        raise Mismatch(
            f"{run.name} reserved in ledger {run.ledger}; the export is {export.ledger}'s"
        )
    booked = {row.booked_from: number for number, row in export.rows.items() if row.booked_from}
    result = VALID
    for number, claimed in run.rows.items():
        found = booked.get(run.started.get(number, ""), number)
        of = f"row {number} of {run.name}"
        same = found in export.rows and not _difference(claimed, export.rows[found].body)
        if booked and not same and _cost_nothing(run, number):
            lines.append(
                f"{of} cost nothing, and is forgotten: the ledger was restored from a backup"
            )
            continue
        if found not in export.rows:
            if found <= max(export.rows, default=0):
                raise Mismatch(f"{of} is not in the ledger")
            lines.append(f"INCOMPLETE: the export ends before {of}")
            result = INCOMPLETE
            continue
        row = export.rows[found]
        if name := _difference(claimed, row.body):
            raise Mismatch(f"{of} has {name} {claimed[name]!r}; the ledger has {row.body[name]!r}")
        if row.booked_from:
            lines.append(f"{of} was booked again at a reconciliation, as row {found}")
            continue
        _same_settlement(run, number, row, lines)
    return result


def _cost_nothing(run: CheckedRun, number: int) -> bool:
    return run.rows[number]["kind"] != "charged" or number not in run.started


def _same_settlement(run: CheckedRun, number: int, row: Row, lines: list[str]) -> None:
    of, settled = f"row {number} of {run.name}", run.settlements.get(number)
    if row.state == "COMMITTED" and row.body["kind"] == "charged" and settled != row.head:
        if settled is None and not run.complete:
            return  # named as missing: the end of this file was cut off
        raise Mismatch(
            f"{of} is settled by {settled}; the ledger anchors {row.head or 'nothing'}",
            entry=run.settled_at.get(number),
        )
    if settled and row.state != "COMMITTED":
        if run.released == number:
            raise Mismatch(f"{of} was released, and is {row.state}")
        lines.append(f"{of} was settled and never committed: {row.state}")


def _difference(claimed: Any, booked: Any) -> str:
    """Name of the first figure in which a run's row and the ledger's differ; empty if they agree."""
    for name in ("purpose", "kind", "mechanism", "costs", "epsilon", "delta"):
        same = claimed[name] == booked[name]
        if name in ("epsilon", "delta"):
            same = abs(claimed[name] - booked[name]) <= SLACK * abs(booked[name])
        if not same:
            return name
    return ""
