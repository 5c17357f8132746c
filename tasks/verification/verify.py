"""Runs and the ledger's export, held against each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from storage.evidence import EvidenceError
from storage.evidence.keys import read_public_key
from tasks.verification.ledger import Export, block_lines, read_export
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

    Raises:
        Mismatch: They contradict each other.
    """
    if not run.ledger:
        return VALID
    if run.ledger != export.ledger:
        raise Mismatch(
            f"{run.name} reserved in ledger {run.ledger}; the export is {export.ledger}'s"
        )
    result = VALID
    for number, claimed in run.rows.items():
        if number not in export.rows:
            if number <= max(export.rows, default=0):
                raise Mismatch(f"row {number} of {run.name} is not in the ledger")
            lines.append(f"INCOMPLETE: the export ends before row {number} of {run.name}")
            result = INCOMPLETE
            continue
        _same_row(run, number, claimed, export.rows[number].body)
        row = export.rows[number]
        settled = run.settlements.get(number)
        if row.state == "COMMITTED" and claimed["kind"] == "charged" and settled != row.head:
            if settled is None and not run.complete:
                continue  # named as missing: the end of this file was cut off
            raise Mismatch(
                f"row {number} of {run.name} is settled by {settled}; the ledger anchors "
                f"{row.head or 'nothing'}",
                entry=run.settled_at.get(number),
            )
        if settled and row.state != "COMMITTED":
            if run.released == number:
                raise Mismatch(f"row {number} of {run.name} was released, and is {row.state}")
            lines.append(f"row {number} of {run.name} was settled and never committed: {row.state}")
    return result


def _same_row(run: CheckedRun, number: int, claimed: Any, booked: Any) -> None:
    for name in ("purpose", "kind", "mechanism", "costs", "epsilon", "delta"):
        same = claimed[name] == booked[name]
        if name in ("epsilon", "delta"):
            same = abs(claimed[name] - booked[name]) <= SLACK * abs(booked[name])
        if not same:
            raise Mismatch(
                f"row {number} of {run.name} has {name} {claimed[name]!r}; the ledger has "
                f"{booked[name]!r}"
            )
