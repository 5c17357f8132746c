"""A restored ledger backup is refused, and reconciled with what the evidence shows to have started."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from flows.commands import dataset, ledger
from privacy import accounting
from storage.errors import LedgerError, PrivateDataError
from storage.evidence import EvidenceError
from storage.ledger import Charge, Ledger
from storage.runs import RunFolder
from tasks.balances import gate_of
from tasks.installation import Installation
from tasks.reconciling import reconcile

ROOT = Path(__file__).parents[2]
BLOCK = "letters/all"
MIXED, EVALUATION = "mixed model", "evaluation"


@pytest.fixture
def register(tmp_path, monkeypatch):
    """Registers a period of ``letters``, of rows of its own."""
    monkeypatch.setenv("DPMIX_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("DPMIX_RUNS", str(tmp_path / "runs"))

    def make(period="", **terms):
        file = tmp_path / f"letters{period}.csv"
        rows = "".join(f"letter {k} of {period},{'ab'[k % 2]}\n" for k in range(40))
        file.write_text("body,kind\n" + rows)
        values = {"text_column": "body", "label_column": "kind", "classes": ["a", "b"]}
        dataset.register("letters", file, period=period, **{"records": 1000, **values, **terms})

    return make


@pytest.fixture
def installation(register):
    register()
    return Installation.open()


def run(installation, name, *, blocks=(BLOCK,), attempt=1, stated=True, upto="read", also=""):
    """A run that reserves, starts and reads, with the evidence it leaves; returns its rows.

    It ends behind `upto`: reserve, start (of a row in the ledger), told (of it), or read.
    """
    folder = RunFolder(installation.settings.runs / f"{name}-{attempt}")
    known = {b.name: b for b in installation.ledger.blocks("letters")}
    event = accounting.dpsgd_event(noise_multiplier=3.0, sample_rate=0.1, steps=50)
    charges = [
        Charge(
            purpose=purpose,
            mechanism={"event": accounting.event_to_json(event), "plan_digest": "ab" * 32},
            epsilon=0.3, delta=1e-5, steps=50,
            costs={b: gate_of(known[b]).costs(event) for b in blocks},
        )
        for purpose in (MIXED, also) if purpose
    ]  # fmt: skip
    rows = installation.ledger.reserve(charges, flow_run_id=name, run_count=attempt)
    folder.write(
        "plan", {"dataset": "letters", "key": [name, attempt], "plans": {"mixed": {"steps": 50}}}
    )
    shown = [
        {
            "row": row, "purpose": c.purpose, "kind": "charged", "epsilon": 0.3, "delta": 1e-5,
            "mechanism": dict(c.mechanism), "costs": {b: list(u) for b, u in c.costs.items()},
        }
        for row, c in zip(rows, charges, strict=True)
    ]  # fmt: skip
    terms = {"blocks": {b: asdict(known[b]) for b in blocks}} if stated else {}
    evidence = installation.evidence(folder)
    evidence.append("plan", {"plans": {}, "blocks": list(blocks)})
    evidence.append("quote", {"rows": []})
    evidence.append("reservation", {"ledger": installation.ledger.id, "rows": shown, **terms})
    evidence.append("audit", {"verdict": "pass"})
    for row in rows if upto != "reserve" else []:
        grant = installation.ledger.start(row)
        if upto != "start":
            evidence.append("start", {"row": row, "epoch": grant.epoch, "arm": "mixed"})
        if upto == "read":
            for block in blocks:
                installation.store.read(grant, block)
    return rows


def spent():
    return {b.block.name: b.spent for b in Installation.open().ledger.balances("letters")}


def charged():
    """How often each (purpose, blocks) is charged."""
    entries = Installation.open().ledger.history("letters")
    return Counter(
        (e.purpose, e.blocks) for e in entries if e.state in ("STARTED", "COMMITTED", "SPENT")
    )


def is_refused():
    with pytest.raises(PrivateDataError, match="dpmix ledger reconcile letters"):
        Installation.open().store.dataset("letters")


def reads_again(*blocks):
    """A new run reads: what the ledger and the dataset know of each other fits again."""
    installation = Installation.open()
    assert installation.store.dataset("letters").name == "letters"
    run(installation, "afterwards", blocks=blocks or (BLOCK,))
    installation.ledger.verify()


def database(installation):
    return installation.settings.home / "ledger.db"


def back_up(installation, to):
    """As `sqlite3 ledger.db ".backup copy.db"` does."""
    with closing(sqlite3.connect(database(installation))) as source, closing(
        sqlite3.connect(to)
    ) as target:  # fmt: skip
        source.backup(target)


def restore(installation, backup):
    installation.ledger._database._engine.dispose()
    for path in installation.settings.home.glob("ledger.db*"):
        path.unlink()
    shutil.copy(backup, database(installation))


class TestRestored:
    def test_a_backup_is_refused_until_what_started_since_is_booked_again(
        self, installation, tmp_path
    ):
        run(installation, "first")
        back_up(installation, tmp_path / "copy.db")
        before = spent()
        run(installation, "second")
        truth = spent()
        restore(installation, tmp_path / "copy.db")

        assert spent() == before != truth
        is_refused()
        said = reconcile("letters")
        assert "booked again, was row 2" in said[0]
        assert spent() == truth
        reads_again()

    def test_every_run_on_every_block_in_every_attempt_is_booked_once(
        self, register, installation, tmp_path
    ):
        for period in ("2030-01", "2030-02"):
            register(period, holdout_records=1000)
        both, holdout = ("letters/2030-01", "letters/2030-02"), "letters/2030-02/holdout"
        run(installation, "early", blocks=both)
        back_up(installation, tmp_path / "copy.db")
        run(installation, "late", blocks=both, also="private-only arm")
        run(installation, "late", blocks=both, attempt=2)
        run(installation, "late", blocks=(BLOCK, both[0]), attempt=3)
        run(installation, "held out", blocks=(holdout,))
        truth, rows = spent(), charged()
        restore(installation, tmp_path / "copy.db")

        is_refused()
        said = reconcile("letters")
        assert sum("booked again" in line for line in said) == 5
        assert (spent(), charged()) == (truth, rows)
        assert len(reconcile("letters")) == 1
        assert (spent(), charged()) == (truth, rows)
        reads_again(*both)

    def test_what_never_started_is_not_booked(self, installation, tmp_path):
        back_up(installation, tmp_path / "copy.db")
        run(installation, "waiting", upto="reserve")
        run(installation, "second")
        restore(installation, tmp_path / "copy.db")
        reconcile("letters")
        assert charged() == {(MIXED, (BLOCK,)): 1}

    def test_the_same_backup_may_be_restored_twice(self, installation, tmp_path):
        back_up(installation, tmp_path / "copy.db")
        run(installation, "first")
        restore(installation, tmp_path / "copy.db")
        reconcile("letters")
        run(Installation.open(), "second")
        truth = spent()
        restore(Installation.open(), tmp_path / "copy.db")
        is_refused()
        reconcile("letters")
        assert spent() == truth
        reads_again()

    def test_a_backup_of_a_reconciled_ledger_is_one(self, installation, tmp_path):
        back_up(installation, tmp_path / "old.db")
        run(installation, "first")
        restore(installation, tmp_path / "old.db")
        reconcile("letters")
        back_up(installation, tmp_path / "new.db")
        run(Installation.open(), "second")
        truth = spent()
        restore(Installation.open(), tmp_path / "new.db")
        reconcile("letters")
        assert spent() == truth


class TestReserved:
    @pytest.fixture
    def copy(self, installation, tmp_path):
        """A backup that was made between a run's reservation and its start."""
        reserve = Ledger.reserve

        def reserve_and_back_up(self, *arguments, **keywords):
            rows = reserve(self, *arguments, **keywords)
            back_up(installation, tmp_path / "copy.db")
            return rows

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ledger, "reserve", reserve_and_back_up)
            run(installation, "first")
        return tmp_path / "copy.db"

    def test_a_reservation_that_the_backup_still_holds_open_is_spent(self, installation, copy):
        truth = spent()
        restore(installation, copy)
        assert not any(spent()[BLOCK])
        assert "was RESERVED here, is spent" in reconcile("letters")[0]
        assert (spent(), charged()) == (truth, {(MIXED, (BLOCK,)): 1})
        assert len(reconcile("letters")) == 1

    def test_one_that_has_expired_meanwhile_is_booked_again(self, installation, copy, monkeypatch):
        truth = spent()
        restore(installation, copy)
        later = datetime.now(UTC) + timedelta(days=30)
        monkeypatch.setattr("tasks.installation.Ledger", partial(Ledger, now=lambda: later))
        assert "booked again, was row 1" in reconcile("letters")[0]
        assert (spent(), charged()) == (truth, {(MIXED, (BLOCK,)): 1})
        assert len(reconcile("letters")) == 1

    def test_one_that_was_released_here_is_booked_again(self, installation, copy):
        truth = spent()
        restore(installation, copy)
        Installation.open().ledger.release(1)
        assert "booked again, was row 1" in reconcile("letters")[0]
        assert (spent(), charged()) == (truth, {(MIXED, (BLOCK,)): 1})
        assert len(reconcile("letters")) == 1


class TestEvidence:
    @pytest.fixture
    def lost(self, installation, tmp_path):
        """Evidence of a run that the restored ledger has forgotten, and what it had spent."""
        back_up(installation, tmp_path / "copy.db")
        run(installation, "first", also="private-only arm")
        truth = spent()
        restore(installation, tmp_path / "copy.db")
        return installation.settings.runs / "first-1" / "evidence.jsonl", truth

    @pytest.mark.parametrize("tail", [b'{"at":"2030-01-01","bo', b"\x00" * 300, b"{"])
    def test_whose_last_line_was_cut_off_counts_up_to_there_and_is_said_to(self, lost, tail):
        path, truth = lost
        path.write_bytes(content := path.read_bytes() + tail)
        for _ in range(2):
            said = reconcile("letters")
            assert "run first-1: its last line was cut off; the 6 entries before it count" in said
            assert spent() == truth
        assert path.read_bytes() == content

    def test_with_half_a_start_shows_none(self, lost):
        path, _ = lost
        path.write_bytes(path.read_bytes()[:-40])
        said = reconcile("letters")
        assert "the 5 entries before it count" in said[0]
        assert charged() == {(MIXED, (BLOCK,)): 1}

    def test_that_was_changed_lets_nothing_be_read(self, lost):
        path, truth = lost
        honest = path.read_bytes()
        path.write_bytes(honest.replace(b'"epsilon":0.3', b'"epsilon":0.2', 1))
        with pytest.raises(EvidenceError, match=r"run first-1: entry 2 of .* nothing is read"):
            reconcile("letters")
        is_refused()
        path.write_bytes(honest)
        reconcile("letters")
        assert spent() == truth

    def test_without_its_plan_lets_nothing_be_read(self, lost):
        path, truth = lost
        (path.parent / "plan.json").rename(path.parent / "away")
        with pytest.raises(EvidenceError, match=r"first-1 charged the dataset and has lost plan"):
            reconcile("letters")
        is_refused()
        (path.parent / "away").rename(path.parent / "plan.json")
        reconcile("letters")
        assert spent() == truth

    def test_of_another_dataset_is_not_looked_at(self, lost):
        path, truth = lost
        other = path.parent.with_name("other")
        shutil.copytree(path.parent, other)
        (other / "plan.json").write_text(json.dumps({"dataset": "others"}))
        (other / "evidence.jsonl").write_text("nothing that verifies\n")
        reconcile("letters")
        assert spent() == truth

    def test_of_a_folder_that_was_copied_is_booked_once(self, lost):
        path, truth = lost
        shutil.copytree(path.parent, path.parent.with_name("a copy"))
        assert sum("booked again" in line for line in reconcile("letters")) == 2
        assert spent() == truth


class TestBlocks:
    @pytest.fixture
    def lose(self, register, installation, tmp_path):
        """Restores a backup from before a period was registered, behind a run on it."""

        def make(*, stated=True):
            back_up(installation, tmp_path / "copy.db")
            register("2030-02", epsilon_cap=1.5, records=2000)
            run(installation, "first", blocks=(BLOCK, "letters/2030-02"), stated=stated)
            truth = spent(), Installation.open().ledger.blocks("letters")
            restore(installation, tmp_path / "copy.db")
            is_refused()
            return truth

        return make

    def test_that_the_backup_lacks_are_opened_as_they_were(self, lose):
        truth, blocks = lose()
        said = reconcile("letters")
        assert said[0] == "block letters/2030-02: opened again with cap ε=1.5"
        assert spent() == truth
        assert Installation.open().ledger.blocks("letters") == blocks
        reads_again("letters/2030-02")

    def test_whose_terms_are_not_known_are_asked_for_with_the_command(self, lose):
        truth, blocks = lose(stated=False)
        with pytest.raises(
            LedgerError, match=r"`dpmix ledger open letters --period 2030-02 --records 1000 .*`"
        ):
            reconcile("letters")
        is_refused()
        ledger.open_period(
            "letters", period="2030-02", records=2000, holdout_records=None, epsilon_cap=1.5,
            holdout_epsilon_cap=None, delta=None,
        )  # fmt: skip
        reconcile("letters")
        assert spent() == truth
        assert Installation.open().ledger.blocks("letters") == blocks
        reads_again("letters/2030-02")

    def test_that_were_opened_with_other_terms_are_refused(self, lose):
        lose()
        ledger.open_period(
            "letters", period="2030-02", records=2000, holdout_records=None, epsilon_cap=3.0,
            holdout_epsilon_cap=None, delta=None,
        )  # fmt: skip
        with pytest.raises(LedgerError, match=r"2030-02 was opened with other terms .*first-1"):
            reconcile("letters")
        is_refused()


@pytest.fixture(scope="module")
def children():
    """Runs reconciliations in real processes that start together; gives their exits."""
    with subprocess.Popen(
        [sys.executable, Path(__file__).with_name("reconcilers.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    ) as process:

        def run(*orders):
            process.stdin.write(json.dumps(orders) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield run
        process.stdin.close()


class TestProcesses:
    @pytest.fixture
    def forgotten(self, register, installation, tmp_path):
        """A home whose ledger lacks a block, a reservation that had started, and two whole runs."""
        run(installation, "early")
        run(installation, "waiting", upto="reserve")
        back_up(installation, tmp_path / "copy.db")
        evidence = installation.evidence(RunFolder(installation.settings.runs / "waiting-1"))
        grant = installation.ledger.start(2)
        evidence.append("start", {"row": 2, "epoch": grant.epoch, "arm": "mixed"})
        register("2030-02")
        run(installation, "first", blocks=(BLOCK, "letters/2030-02"))
        run(installation, "second", also="private-only arm")
        truth = spent(), charged()
        restore(installation, tmp_path / "copy.db")
        shutil.copytree(installation.settings.home, tmp_path / "forgotten")
        return truth

    @staticmethod
    def order(tmp_path, number=0, **more):
        names = ("DPMIX_HOME", "DPMIX_RUNS")
        return {
            "environment": {name: os.environ[name] for name in names},
            "dataset": "letters",
            "said": str(tmp_path / f"said-{number}.json"),
            **more,
        }

    def test_killed_at_any_point_it_is_finished_by_the_next_one(
        self, children, forgotten, installation, tmp_path
    ):
        home, left = installation.settings.home, []
        for point in count(1):
            shutil.rmtree(home)
            shutil.copytree(tmp_path / "forgotten", home)
            (status,) = children(self.order(tmp_path, kill_at=point))
            if status == 0:
                break
            assert status == signal.SIGKILL, point
            left.append(sum(charged().values()))
            reconcile("letters")
            assert (spent(), charged()) == forgotten, point
            Installation.open().ledger.verify()
        # Killed with nothing booked, with everything, and in between.
        assert set(left) == {1, 2, 3, 4, 5}
        assert (spent(), charged()) == forgotten

    def test_until_it_is_through_nothing_is_read(self, children, forgotten, tmp_path):
        (status,) = children(self.order(tmp_path, kill_at=11))
        assert status == signal.SIGKILL
        is_refused()
        reconcile("letters")
        reads_again()

    def test_two_at_once_book_everything_once(self, children, forgotten, installation, tmp_path):
        home = installation.settings.home
        for _ in range(3):
            shutil.rmtree(home)
            shutil.copytree(tmp_path / "forgotten", home)
            assert children(*(self.order(tmp_path, n) for n in range(3))) == [0, 0, 0]
            assert (spent(), charged()) == forgotten
            said = [json.loads((tmp_path / f"said-{n}.json").read_text()) for n in range(3)]
            assert sorted(map(len, said)) == [1, 1, 6]


def test_reconciling_again_books_nothing_more(installation):
    run(installation, "first")
    before = spent()
    assert reconcile("letters") == reconcile("letters")
    assert spent() == before


def test_a_run_that_is_under_way_is_not_booked_twice(installation):
    for upto in ("reserve", "start", "told", "read"):
        run(installation, f"live {upto}", upto=upto)
    before = spent(), charged()
    assert len(reconcile("letters")) == 1
    assert (spent(), charged()) == before


def test_the_head_never_moves_back(installation):
    run(installation, "first")
    seen = (installation.settings.private / "letters" / "ledger-head.json").read_text()
    installation.store.dataset("letters")
    assert (installation.settings.private / "letters" / "ledger-head.json").read_text() == seen


def test_a_lost_head_is_no_way_around(installation):
    run(installation, "first")
    (installation.settings.private / "letters" / "ledger-head.json").unlink()
    with pytest.raises(PrivateDataError, match=r"has lost ledger-head\.json"):
        installation.store.dataset("letters")
    reconcile("letters")
    assert installation.store.dataset("letters").name == "letters"
