"""Nothing leaks: whatever a run's end, nothing private is found outside of the trust zone.

Marker strings stand in private rows; spies (`leaks/planted`) note what cannot be seen from outside:
seeds, batches, exact results. Then everything that server, worker and command line left is searched for
all of it (`leaks/searching`).
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

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
def table_rows(machine):
    """A dataset and a corpus, and a server and a worker that run; how many rows the table has."""
    rows = machine.write_data()
    done = machine.register("films")
    assert done.returncode == 0, done.stderr
    machine.up()
    try:
        refreshed = machine.deployed("refresh-public")
        assert refreshed.returncode == 0, refreshed.stdout
        yield rows
    finally:
        machine.dpmix("down")


@pytest.fixture(scope="module")
def runs(machine, table_rows):
    """Runs that end in every way: how each ended, and what the spies saw of it."""
    profile = ("run", "retrain", "-p", str(machine.given / "profile.yaml"))
    found = {"released": watched(machine, lambda: machine.deployed("retrain"))}
    dear = ("--set", "training.epsilon=2.9")
    found["refused"] = watched(machine, lambda: machine.dpmix(*profile, *dear))
    for fault, act in {
        "parsing": lambda: machine.register("broken"),
        "kill": lambda: machine.deployed("retrain"),
        "reading": lambda: machine.dpmix(*profile),
        "training": lambda: machine.deployed("retrain"),
    }.items():
        with machine.fault(fault):
            found[fault] = watched(machine, act)
    for command in (("ledger", "status"), ("ledger", "history", "--json"), ("dataset", "list")):
        assert machine.dpmix(*command).returncode == 0
    exported = machine.dpmix("ledger", "export", str(machine.outputs / "export.jsonl"))
    assert exported.returncode == 0, exported.stderr
    return found


@pytest.fixture(scope="module")
def findings(machine, table_rows, runs):
    """What is found outside of the trust zone once everything has ended, the services too."""
    machine.down()
    return search([machine.searched], needles_of(machine, table_rows), exempt=exempt(machine))


def watched(machine, act):
    before = len(machine.records()) if machine.spied.joinpath("records.jsonl").exists() else 0
    done = act()
    return done, machine.records()[before:]


def exempt(machine):
    """The trust zone, and nothing else: sealed seeds are searched like everything."""
    return [machine.home / "private"]


def count(records, kind):
    return sum(r["kind"] == kind for r in records)


class TestTheRuns:
    """Each of them got as far as it should, and the spies saw it: what is not found was there."""

    def test_one_is_released_and_every_secret_of_it_is_known(self, runs, machine):
        done, seen = runs["released"]
        assert done.returncode == 0, done.stdout
        assert count(seen, "seed") > ARMS
        assert count(seen, "batch") == 2 * STEPS
        assert count(seen, "read") == 5  # two arms, the evaluation, both sides of the member audit
        assert all(r["rows"] > r["units"] > 0 for r in seen if r["kind"] == "read")
        assert count(seen, "matrix") == ARMS
        (members,) = (r["result"] for r in seen if r["kind"] == "members")
        assert len(list(exact_figures(members))) > 3
        summaries = [json.loads(p.read_text()) for p in machine.runs.glob("*/summary.json")]
        assert [s["released"] for s in summaries].count(True) == 1
        assert list((machine.home / "sealed").glob("*/*.json"))

    def test_one_is_refused_over_its_budget_and_reads_nothing(self, runs):
        done, seen = runs["refused"]
        assert done.returncode == 3, done.stderr
        assert "cannot pay" in done.stderr
        assert count(seen, "read") == 0

    @pytest.mark.parametrize(("fault", "code"), [("parsing", 2), ("reading", 2), ("training", 1)])
    def test_one_fails_in_the_midst_of_private_rows(self, runs, fault, code):
        done, seen = runs[fault]
        assert done.returncode == code, done.stdout + done.stderr
        assert [r["name"] for r in seen if r["kind"] == "fault"] == [fault]

    def test_what_a_failure_said_is_kept_in_the_trust_zone(self, runs, machine):
        told = [p.read_text() for p in machine.home.glob("private/films/restricted/*-error.txt")]
        assert len(told) == 2
        assert all(machine.markers.word in text for text in told)

    def test_one_is_killed_in_training(self, runs):
        done, seen = runs["kill"]
        assert done.returncode == 1, done.stdout
        (killed,) = (r for r in seen if r["kind"] == "fault")
        assert killed["name"] == "kill"
        # The worker goes on, and tells the server; the killed process did nothing any more.
        assert [r for r in seen if r["pid"] == killed["pid"]][-1] == killed
        assert 0 < count(seen, "batch") < STEPS

    def test_what_started_stays_charged_and_the_rest_is_given_back(self, runs, machine):
        rows = json.loads(machine.dpmix("ledger", "history", "--json").stdout)
        states = [row["state"] for row in rows]
        assert states.count("STARTED") == 3  # read in vain, failed in training, killed
        assert "RESERVED" not in states


def test_nothing_of_it_is_found_outside_of_the_trust_zone(findings):
    assert findings == []


def test_the_trust_zone_is_its_owner_s_alone(machine, findings):
    (zone,) = exempt(machine)
    assert stat.S_IMODE(zone.stat().st_mode) == 0o700
    restricted = zone / "films" / "restricted"
    assert stat.S_IMODE(restricted.stat().st_mode) == 0o700
    assert {stat.S_IMODE(p.stat().st_mode) for p in files(restricted)} == {0o600}


def test_a_leak_that_is_planted_is_found_wherever_it_goes(machine, table_rows, findings):
    machine.up()
    with machine.fault("leak"):
        done = machine.deployed("retrain")
    assert done.returncode == 0, done.stdout
    machine.down()
    found = search([machine.searched], needles_of(machine, table_rows), exempt=exempt(machine))
    places = {
        needle: {Path(f.where.split(":")[0]).name for f in found if f.needle == needle}
        for needle in {f.needle for f in found}
    }
    assert "worker-cpu.log" in places["word of a row"] & places["seed"] & places["batch size"]
    assert "prefect.db" in places["exact utility"] & places["exact confusion matrix"]
    assert any(name.startswith("rows-") for name in places["rows read"])
