"""A restored ledger and the evidence: what started since the backup is booked again, in full.

Only what the signed evidence shows to have *started* is booked: from that moment a charge stays. A
reservation that never started cost nothing. What was spent without leaving evidence under DPMIX_RUNS
cannot be found here: keep a run's folder until a newer backup of the ledger exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storage.evidence import public_key, verify
from storage.ledger import Charge, Ledger
from storage.runs import RunFolder
from tasks.installation import Installation

NOTE = "booked again from the evidence"


def reconcile(dataset: str) -> list[str]:
    """Book what the ledger has forgotten of a dataset, then let its reads go on; says what it booked.

    Raises:
        EvidenceError: A run's evidence does not verify.
        LedgerError: A block is not open in this ledger: open it first, with `dpmix ledger open`.
        PrivateDataError: The dataset is not registered, or belongs to a ledger of another id.
    """
    installation = Installation.open()
    installation.store.declaration(dataset)
    said = []
    for path in sorted(installation.settings.runs.glob("*/evidence.jsonl")):
        said += _of_run(installation, path, dataset)
    installation.store.reconciled(dataset)
    return [*said, f"dataset {dataset} takes the ledger as it stands now"]


def _of_run(installation: Installation, path: Path, dataset: str) -> list[str]:
    folder = path.parent
    if not (folder / "plan.json").is_file():
        return []
    planned = RunFolder(folder).read("plan")
    if planned["dataset"] != dataset:
        return []
    bodies = verify(path, public_key(installation.key)).bodies
    rows = [
        row
        for kind, body in bodies
        if kind == "reservation" and body["ledger"] == installation.ledger.id
        for row in body["rows"]
    ]
    started = {body["row"] for kind, body in bodies if kind == "start"}
    wanted = [r for r in rows if r["row"] in started and r["kind"] == "charged"]
    return _book(installation.ledger, wanted, planned) if wanted else []


def _book(ledger: Ledger, rows: list[Mapping[str, Any]], planned: Mapping[str, Any]) -> list[str]:
    flow_run_id, attempt = planned["key"]
    standing = {
        e.purpose: e for e in ledger.history()
        if (e.flow_run_id, e.run_count) == (flow_run_id, attempt)
    }  # fmt: skip
    said, missing = [], []
    for row in rows:
        entry = standing.get(row["purpose"])
        if entry is None or entry.state == "RELEASED":
            missing.append(row)
        elif entry.state == "RESERVED":
            # The backup was made between the reservation and its start.
            ledger.start(entry.row)
            ledger.spend(entry.row, note=NOTE)
            said.append(f"row {entry.row} ({entry.purpose}): was RESERVED here, is spent")
    if missing:
        key = flow_run_id if not standing else f"again:{flow_run_id}"
        booked = ledger.record_spent(
            [_charge(row, planned) for row in missing],
            flow_run_id=key,
            run_count=attempt,
            note=f"{NOTE}: row {', '.join(str(r['row']) for r in missing)}",
        )
        said += [
            f"row {new} ({row['purpose']}): ε={row['epsilon']:.4g} booked again, was row {row['row']}"
            for new, row in zip(booked, missing, strict=True)
        ]
    return said


def _charge(row: Mapping[str, Any], planned: Mapping[str, Any]) -> Charge:
    steps = max((p["steps"] for p in planned["plans"].values()), default=0)
    return Charge(
        purpose=row["purpose"],
        kind=row["kind"],
        mechanism=row["mechanism"],
        epsilon=row["epsilon"],
        delta=row["delta"],
        steps=steps if "plan_digest" in row["mechanism"] else 0,
        costs={name: tuple(units) for name, units in row["costs"].items()},
    )
