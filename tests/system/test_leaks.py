"""Nothing leaks: whatever a run's end, nothing private is found outside of the trust zone.

Marker strings stand in private rows; spies (`leaks/planted`) note what cannot be seen from outside:
seeds, batches, exact results. Then everything that server, worker and command line left is searched for
all of it (`leaks/searching`).
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from system.leaks.machine import HOLDOUT_RECORDS, RECORDS, Machine
from system.leaks.needles import Needles
from system.leaks.searching import files, search

from privacy.release import accuracy, macro_f1
from storage.evidence import public_key

pytestmark = pytest.mark.system

STEPS, ARMS = 10, 3


def exact_figures(result: object) -> Iterator[float]:
    """Floats of a nested result that take many digits to write; others say nothing."""
    if isinstance(result, dict | list):
        for value in result.values() if isinstance(result, dict) else result:
            yield from exact_figures(value)
    elif isinstance(result, float) and np.isfinite(result) and result != round(result, 5):
        yield result


def needles_of(machine: Machine, table_rows: int) -> Needles:
    """All that the markers and the spies know of."""
    needles = Needles()
    for name, marker in vars(machine.markers).items():
        needles.add_text(f"{name} of a row", marker)
    for seed in machine.records("seed"):
        needles.add_seed("seed", bytes.fromhex(seed["value"]))
    needles.add_count("rows of the table", table_rows)
    # A process id may happen to be as large as a batch.
    public = {r["pid"] for r in machine.records()} | {RECORDS, HOLDOUT_RECORDS}
    for read in machine.records("read"):
        needles.add_count("rows read", read["rows"])
        needles.add_count("units read", read["units"])
    for size in {b["size"] for b in machine.records("batch")} - public:
        needles.add_count("batch size", size)
    for matrix in machine.records("matrix"):
        cells = np.array(matrix["cells"])
        needles.add_series("exact confusion matrix", cells.ravel().tolist())
        for figure in exact_figures([macro_f1(cells), accuracy(cells)]):
            needles.add_metric("exact utility", figure)
    for result in machine.records("members"):
        for figure in exact_figures(result["result"]):
            needles.add_metric("member audit", figure)
    return needles


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    key = public_key(X25519PrivateKey.generate())
    return Machine(tmp_path_factory.mktemp("machine"), replay_key=key)


@pytest.fixture(scope="module")
def served(machine):
    """The machine with data, a dataset, a corpus, and a server and a worker that run."""
    rows = machine.write_data()
    m = ("--text-column", "review", "--label-column", "sentiment", "--person-column", "person")
    declared = ("--classes", "negative,positive", "--records", str(RECORDS))
    declared += ("--holdout-records", str(HOLDOUT_RECORDS), "--records-per-person", "2")
    table = str(machine.given / "films.csv")
    done = machine.dpmix("dataset", "register", "films", table, *m, *declared)
    assert done.returncode == 0, done.stderr
    up = machine.dpmix("up")
    assert up.returncode == 0, up.stderr
    try:
        refreshed = machine.deployed("refresh-public")
        assert refreshed.returncode == 0, refreshed.stdout
        yield rows
    finally:
        machine.dpmix("down")


@pytest.fixture(scope="module")
def released(machine, served):
    """A released run by the worker."""
    done = machine.deployed("retrain")
    assert done.returncode == 0, done.stdout
    (summary,) = machine.runs.glob("*/summary.json")
    assert json.loads(summary.read_text())["released"]
    return machine.records()


@pytest.fixture(scope="module")
def needles(machine, served, released):
    """What is looked for, once all runs have ended and the services with them."""
    machine.dpmix("down")
    return needles_of(machine, served)


def test_the_spies_have_seen_what_is_looked_for(released):
    counted = {k: sum(r["kind"] == k for r in released) for k in ("seed", "batch", "read")}
    assert counted["seed"] > 3
    assert counted["batch"] == 2 * STEPS
    assert counted["read"] == 5  # two arms, the evaluation, two blocks of the member audit
    assert sum(r["kind"] == "matrix" for r in released) == ARMS
    (members,) = (r["result"] for r in released if r["kind"] == "members")
    assert len(list(exact_figures(members))) > 3
    assert all(r["rows"] > r["units"] > 0 for r in released if r["kind"] == "read")


def test_nothing_of_it_is_found_outside_of_the_trust_zone(machine, needles):
    assert search([machine.searched], needles, exempt=[machine.home / "private"]) == []


def test_the_trust_zone_is_its_owner_s_alone(machine, needles):
    zone = machine.home / "private"
    assert stat.S_IMODE(zone.stat().st_mode) == 0o700
    restricted = zone / "films" / "restricted"
    assert stat.S_IMODE(restricted.stat().st_mode) == 0o700
    assert {stat.S_IMODE(p.stat().st_mode) for p in files(restricted)} == {0o600}
    assert search([zone], needles)
