"""A restored ledger and the evidence: what started since the backup is booked again, in full.

What is guaranteed. Every charge of a dataset that the signed evidence under DPMIX_RUNS shows to have
*started* stands in the ledger once this is through, and none stands twice because of it, however often
it runs, is killed or runs twice at once: each is booked in a transaction of its own, under a key that
follows from ledger, run, attempt and purpose, so that whoever comes later finds it. Only then does the
dataset take the ledger for its own and let reads go on. A reservation that never started cost nothing.

A kill may have cut off the last line of a run's evidence. The entries before it count: a start is on the
disk before the first private read, so half a start is no read. A file that is wrong in another way says
nothing reliable, and nothing is read until it has been put right.

Each row booked again names the entry that shows its start, so a verifier finds it under its new number
(see `tasks.rebooking`).

A block that the backup lacks is opened first, on the terms that the reservation's entry states. Where an
older entry states none, its owner opens it: nothing here guesses a cap.

When it stops holding: what was spent without leaving evidence under DPMIX_RUNS cannot be found here, so
a run's folder is kept until a newer backup of the ledger exists. Retirements and raised caps leave no
evidence; who decided them decides again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.errors import LedgerError, ReservationExpired
from storage.evidence import EvidenceError, Verification, public_key, verify_prefix
from storage.ledger import Block, Charge, Entry, Ledger
from storage.private import Dataset
from storage.runs import RunFolder
from tasks import rebooking
from tasks.installation import Installation


def reconcile(dataset: str) -> list[str]:
    """Book what the ledger has forgotten of a dataset, then let its reads go on; says what it booked.

    Raises:
        EvidenceError: A run's evidence does not verify, or does not say whose attempt it was.
        LedgerError: A block that was charged is not open, and its terms are not known; or it is open
            with other terms.
        PrivateDataError: The dataset is not registered, or belongs to a ledger of another id.
    """
    installation = Installation.open()
    declared = installation.store.declaration(dataset)
    with installation.store.reconciling(dataset):
        said, started = [], {}
        for path in sorted(installation.settings.runs.glob("*/evidence.jsonl")):
            if _may_concern(path.parent, dataset):
                found = _verified(installation, path)
                said += _cut_off(path, found)
                started |= {s.key: s for s in _started(installation, dataset, path.parent, found)}
        # Behind the evidence: whatever it shows to have started was in its ledger before.
        standing = {_key(e): e for e in installation.ledger.history(dataset)}
        for charge in started.values():
            said += _settle(installation.ledger, declared, charge, standing)
    return [*said, f"dataset {dataset} takes the ledger as it stands now"]


@dataclass(frozen=True)
class _Started:
    """A charge that the evidence shows to have started.

    Attributes:
        row: Its row in the ledger that was lost.
        key: (flow run id, attempt, purpose).
        charge: What was charged.
        blocks: Terms of its blocks, by name, as far as the evidence states them.
        run: Name of the run's folder.
        entry: Hash of the evidence entry that shows its start.
    """

    row: int
    key: tuple[str, int, str]
    charge: Charge
    blocks: Mapping[str, Block]
    run: str
    entry: str

    @property
    def note(self) -> str:
        """What its row in the restored ledger says."""
        return rebooking.note(row=self.row, run=self.run, entry=self.entry)

    def key_again(self, ledger: str) -> tuple[str, int, str]:
        """The key under which it is booked if the ledger has forgotten it."""
        _, attempt, purpose = self.key
        told = json.dumps([ledger, *self.key])
        return f"again:{hashlib.sha256(told.encode()).hexdigest()[:48]}", attempt, purpose


def _key(entry: Entry) -> tuple[str, int, str]:
    return entry.flow_run_id, entry.run_count, entry.purpose


def _may_concern(folder: Path, dataset: str) -> bool:
    """Whether a run may have charged the dataset: not if its plan names another one."""
    run = RunFolder(folder)
    return not run.has("plan") or run.read("plan")["dataset"] == dataset


def _verified(installation: Installation, path: Path) -> Verification:
    try:
        return verify_prefix(path, public_key(installation.key))
    except EvidenceError as error:
        raise EvidenceError(
            f"run {path.parent.name}: {error} What it charged cannot be told, and nothing is read. Put "
            "its folder back from a copy and reconcile again."
        ) from None


def _cut_off(path: Path, found: Verification) -> list[str]:
    run, count = path.parent.name, found.entries
    said = f"run {run}: its last line was cut off; the {count} entries before it count"
    return [said] if found.cut_off else []


def _started(
    installation: Installation, dataset: str, folder: Path, found: Verification
) -> list[_Started]:
    """The charges of a dataset that a run's evidence shows to have started."""
    entries = zip(found.bodies, found.hashes, strict=True)
    started = {body["row"]: entry for (kind, body), entry in entries if kind == "start"}
    charges = []
    for kind, body in found.bodies:
        if kind != "reservation" or body["ledger"] != installation.ledger.id:
            continue
        blocks = {name: _block(terms) for name, terms in body.get("blocks", {}).items()}
        for row in body["rows"]:
            mine = any(name.split("/")[0] == dataset for name in row["costs"])
            if mine and row["kind"] == "charged" and row["row"] in started:
                planned = _planned(folder)
                flow_run_id, attempt = planned["key"]
                key = (flow_run_id, attempt, row["purpose"])
                charge, entry = _charge(row, planned), started[row["row"]]
                charges.append(_Started(row["row"], key, charge, blocks, folder.name, entry))
    return charges


def _planned(folder: Path) -> dict[str, Any]:
    run = RunFolder(folder)
    if not run.has("plan"):
        raise EvidenceError(
            f"run {run.run_id} charged the dataset and has lost plan.json, which says whose attempt it "
            "was. Nothing is read. Put its folder back from a copy and reconcile again."
        )
    return run.read("plan")


def _block(terms: Mapping[str, Any]) -> Block:
    return Block(**{**terms, "orders": tuple(terms["orders"]), "caps": tuple(terms["caps"])})


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


def _settle(
    ledger: Ledger,
    dataset: Dataset,
    started: _Started,
    standing: Mapping[tuple[str, int, str], Entry],
) -> list[str]:
    """Make sure that a started charge stands in the ledger; says what it took."""
    entry, again = standing.get(started.key), started.key_again(ledger.id)
    if again in standing or (entry is not None and entry.state not in ("RESERVED", "RELEASED")):
        return []
    if entry is not None and entry.state == "RESERVED":
        # The backup was made between the reservation and its start.
        try:
            ledger.start(entry.row)
        except ReservationExpired:
            pass  # released this moment: booked below
        else:
            ledger.spend(entry.row, note=started.note)
            return [f"row {entry.row} ({entry.purpose}): was RESERVED here, is spent"]
    said = _open(ledger, dataset, started)
    flow_run_id, attempt, purpose = again
    (row,) = ledger.record_spent(
        [started.charge],
        flow_run_id=flow_run_id,
        run_count=attempt,
        note=started.note,
    )
    return [
        *said,
        f"row {row} ({purpose}): ε={started.charge.epsilon:.4g} booked again, was row {started.row}",
    ]


def _open(ledger: Ledger, dataset: Dataset, started: _Started) -> list[str]:
    """Open the blocks of a charge that the ledger lacks; says which.

    Raises:
        LedgerError: The terms of one are not known, or it is open with others.
    """
    known, said = {b.name: b for b in ledger.blocks(dataset.name)}, []
    for name in sorted(started.charge.costs):
        stated = started.blocks.get(name)
        if name not in known:
            if stated is None:
                raise LedgerError(_unknown(dataset, name, started))
            ledger.open_block(stated)
            said.append(f"block {name}: opened again with cap ε={stated.epsilon_cap:g}")
        elif stated is not None and stated != known[name]:
            raise LedgerError(
                f"block {name} was opened with other terms than run {started.run} was charged under. "
                "Nothing is read. Restore the backup once more, and reconcile before anything is opened."
            )
    return said


def _unknown(dataset: Dataset, block: str, started: _Started) -> str:
    period = block.split("/")[1]
    of_period = "" if period == "all" else f" --period {period}"
    return (
        f"block {block} is not open in this ledger, run {started.run} charged it, and its evidence does "
        "not state the block's terms. Nothing is read. Open it on the terms that it had, and reconcile "
        f"again: `dpmix ledger open {dataset.name}{of_period} --records {dataset.records} "
        f"--holdout-records {dataset.holdout_records} --epsilon-cap {dataset.epsilon_cap:g} "
        f"--holdout-epsilon-cap {dataset.holdout_epsilon_cap:g} --delta {dataset.delta:g}`. These "
        "figures are the dataset's own: change those that the period was registered with."
    )
