"""The whole pipeline on a few real rows: what a user relies on, and what must turn it red."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from flows.commands import dataset, evidence, ledger
from flows.commands.run import call
from flows.parameters import parameters_of
from privacy.errors import PlanError
from privacy.mixing import PublicWhitening
from privacy.mixing import base as mixing
from privacy.training import PlanOptimizer
from storage.corpus import CorpusError
from storage.errors import BudgetRefused, PrivateDataError
from storage.private import PrivateStore
from tasks.auditing import ReleaseRefused
from tasks.installation import Installation
from tasks.prediction import Predictor
from tasks.reconciling import reconcile


def retrain(profile, **training):
    changed = {**profile, "training": {**profile["training"], **training}}
    return call("retrain", parameters_of(changed, "retrain"))


def register(home, name, *, table="reviews", **changed):
    values = {"classes": ["negative", "positive"], "records": 1000, **changed}
    dataset.register(
        name, home / f"{table}.csv", text_column="review", label_column="sentiment", **values
    )


@pytest.fixture(scope="module")
def released(installed, profile):
    """The summary of one released run."""
    page = Path(retrain(profile))
    assert page.is_file()
    return json.loads((page.parent / "summary.json").read_text())


def test_a_second_refresh_embeds_nothing(installed, profile):
    assert call("refresh_public", parameters_of(profile, "refresh_public"))["embedded"] == 0


def test_a_run_is_released_with_its_figures(released):
    assert released["released"]
    assert released["audit"]["verdict"] == "pass"
    assert released["epsilon"] <= 0.5
    assert set(released["utility"]["arms"]) == {"mixed", "dp_private_only", "public_only"}
    cleaning = released["cleaning"]
    assert cleaning["seen"] == cleaning["kept"] + sum(cleaning["dropped"].values())


def test_both_private_arms_and_the_evaluation_are_charged(released):
    purposes = {c["purpose"]: c["state"] for c in released["charges"]}
    assert set(purposes) == {"mixed model", "private-only arm", "evaluation"}
    assert set(purposes.values()) == {"COMMITTED"}


def test_the_evidence_verifies_and_its_epsilon_is_recomputed(released):
    kept = released["evidence"]
    found = evidence.verify_command(
        [Path(kept["path"])], public_key=kept["public_key"], head=kept["head"]
    )
    assert found.result == "VALID", found.lines
    assert sum("reserved" in line for line in found.lines) == 3


def test_a_released_model_predicts(released):
    first, empty = Predictor(released["model"])(["A wonderful, moving film.", ""])
    assert first.label in ("negative", "positive")
    assert empty.label == ""


def test_the_member_audit_stays_in_the_trust_zone(released, installed):
    assert list((installed / "var/private/reviews/restricted").glob("*.json"))
    assert "auc" not in json.dumps(released)


def test_a_planted_fault_is_refused_before_any_private_read(
    released, installed, profile, monkeypatch
):
    honest = PlanOptimizer.add_noise

    def weak(self):
        source, self.source = self.source, WeakSource(self.source)
        honest(self)
        self.source = source

    class WeakSource:
        def __init__(self, source):
            self._source = source

        def normal(self, count):
            return self._source.normal(count) * 0.01

    reads = []
    read = PrivateStore.read
    monkeypatch.setattr(PrivateStore, "read", lambda *a, **k: reads.append(a) or read(*a, **k))
    monkeypatch.setattr(PlanOptimizer, "add_noise", weak)
    models = set((installed / "var/models/reviews").iterdir())
    known = {e.row for e in Installation.open().ledger.history()}
    with pytest.raises(ReleaseRefused, match="audit shows at least"):
        retrain(profile, epsilon=0.2)
    assert not reads
    assert set((installed / "var/models/reviews").iterdir()) == models
    states = {e.state for e in Installation.open().ledger.history() if e.row not in known}
    assert states == {"RELEASED"}
    newest = max((installed / "runs").glob("*/summary.json"), key=lambda p: p.stat().st_mtime)
    assert json.loads(newest.read_text())["released"] is False


def test_an_exhausted_block_is_refused_before_any_private_read(
    released, installed, profile, monkeypatch
):
    monkeypatch.setattr(PrivateStore, "read", lambda *_: pytest.fail("private rows were read"))
    with pytest.raises(BudgetRefused) as refusal:
        retrain(profile, epsilon=1.1)
    for part in (
        "reviews/all",
        "cap ε=1.2",
        "spent",
        "reserved",
        "asked",
        "short by",
        "would still fit",
    ):
        assert part in str(refusal.value)
    newest = max((installed / "runs").glob("*/summary.json"), key=lambda p: p.stat().st_mtime)
    summary = json.loads(newest.read_text())
    assert (summary["released"], summary["refusal"]) == (False, str(refusal.value))
    assert any("lower training.epsilon" in what for what in summary["advice"])
    assert any(str(installed / "var/models/reviews") in what for what in summary["advice"])
    last = [json.loads(x) for x in (newest.parent / "evidence.jsonl").read_text().splitlines()][-2:]
    assert [e["kind"] for e in last] == ["refusal", "closed"]
    assert last[0]["body"] == {"at": "reservation", "reason": str(refusal.value)}


def test_an_exhausted_holdout_names_the_epsilon_that_would_fit(released, installed, profile):
    changed = {**profile, "evaluation": {"epsilon": 7.0}}
    changed["training"] = {**profile["training"], "epsilon": 0.05}
    with pytest.raises(BudgetRefused) as refusal:
        call("retrain", parameters_of(changed, "retrain"))
    assert "reviews/all/holdout" in str(refusal.value)
    assert "evaluation.epsilon that would still fit" in str(refusal.value)


def test_a_quote_covers_the_holdout_and_agrees_with_what_is_charged(installed, home, profile):
    register(home, "quoted", table="quoted", holdout_records=400)
    changed = {**profile, "dataset": {"name": "quoted"}}
    quoted = {
        r["block"]: r["filter_after"] for r in ledger.quote(parameters_of(changed, "retrain"))
    }
    call("retrain", parameters_of(changed, "retrain"))
    assert quoted == {r["block"]: r["spent"] for r in ledger.status("quoted")}


def test_a_head_that_is_not_attacked_does_not_pass(
    released, installed, profile, monkeypatch, tmp_path
):
    (tmp_path / "tests_deep_head.py").write_text(
        "from torch import nn\n"
        "def make(d, k):\n"
        "    return nn.Sequential(nn.Linear(d, 4), nn.Tanh(), nn.Linear(4, k))\n"
    )
    with pytest.raises(ReleaseRefused, match="head is not linear"):
        retrain(profile, epsilon=0.05, head="tests_deep_head:make")


def test_an_epsilon_above_the_cap_is_refused_when_planned(installed, profile):
    with pytest.raises(PlanError, match="at most the blocks' cap"):
        retrain(profile, epsilon=5.0)


def test_a_backup_from_before_a_run_and_its_blocks_is_reconciled_with_the_runs_evidence(
    installed, home, profile, tmp_path, monkeypatch
):
    shutil.copytree(home / "var", tmp_path / "var")
    monkeypatch.setenv("DPMIX_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("DPMIX_RUNS", str(tmp_path / "runs"))
    kept, copy = tmp_path / "var" / "ledger.db", tmp_path / "copy.db"
    with closing(sqlite3.connect(kept)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    register(home, "restored", table="restored", holdout_records=400)
    changed = {**profile, "dataset": {"name": "restored"}}
    call("retrain", parameters_of(changed, "retrain"))
    blocks, truth = Installation.open().ledger.blocks("restored"), ledger.status("restored")
    for path in kept.parent.glob("ledger.db*"):
        path.unlink()
    copy.rename(kept)

    with pytest.raises(PrivateDataError, match="dpmix ledger reconcile restored"):
        call("retrain", parameters_of(changed, "retrain"))
    reconcile("restored")
    assert Installation.open().ledger.blocks("restored") == blocks
    assert ledger.status("restored") == truth
    small = {**changed, "training": {**profile["training"], "epsilon": 0.1}}
    small["evaluation"] = {"epsilon": 0.5}
    page = Path(call("retrain", parameters_of(small, "retrain")))
    ledger.export(tmp_path / "ledger.jsonl")
    found = evidence.verify_command(
        sorted((tmp_path / "runs").glob("*/evidence.jsonl")),
        public_key=str(page.parent / "evidence.pub"),
        ledger=tmp_path / "ledger.jsonl",
    )
    assert not found.data["failures"], found.lines


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no public document survived"),
        (b"\x7fELF\x00\xff\xfe not json\n" * 5, "JSON"),
        (
            b'{"text": "Caf\xe9, a fine film of the old school and of the new.", "source": "s"}\n',
            "",
        ),
    ],
    ids=["empty", "binary", "invalid-utf-8"],
)
def test_a_bad_public_shard_ends_in_a_clear_error_or_is_repaired(
    installed, profile, tmp_path, content, message
):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "shard.jsonl").write_bytes(content)
    corpus = {"name": "bad", "raw": str(tmp_path / "raw")}
    parameters = parameters_of({**profile, "corpus": corpus}, "refresh_public")
    if not message:
        assert call("refresh_public", parameters)["kept"] == 1
        return
    with pytest.raises(CorpusError, match=message):
        call("refresh_public", parameters)


def test_an_unregistered_dataset_is_named(installed, profile):
    with pytest.raises(PrivateDataError, match="'nobody' is not registered"):
        call("retrain", parameters_of({**profile, "dataset": {"name": "nobody"}}, "retrain"))


def test_a_batchnorm_head_is_refused_before_the_reservation(released, installed, profile):
    before = len(Installation.open().ledger.history())
    with pytest.raises(PlanError, match="BatchNorm"):
        retrain(profile, head="tests_batchnorm_head:make")
    assert len(Installation.open().ledger.history()) == before


@pytest.fixture(autouse=True)
def _batchnorm_head(tmp_path, monkeypatch):
    (tmp_path / "tests_batchnorm_head.py").write_text(
        "from torch import nn\n"
        "def make(d, k):\n"
        "    return nn.Sequential(nn.BatchNorm1d(d), nn.Linear(d, k))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize("records", [999, 1])
def test_too_few_declared_records_are_refused_with_advice(installed, home, records):
    with pytest.raises(PlanError, match="Instead"):
        register(home, "few", records=records)


def test_public_labels_that_are_no_declared_class_are_named(installed, home, profile):
    register(home, "moods", table="moods", classes=["sad", "glad"], holdout_records=0)
    with pytest.raises(
        PlanError, match=r"warm_start needs .*declared class \(sad, glad\).*has 0\."
    ):
        retrain({**profile, "dataset": {"name": "moods"}})


def test_two_fits_of_the_feature_map_are_refused_before_the_reservation(
    released, installed, profile, monkeypatch
):
    class Second(PublicWhitening):
        name = "second"

    monkeypatch.setitem(mixing._REGISTRY, "second", Second)
    before = len(Installation.open().ledger.history())
    both = {"strategies": ["public_whitening", "second"]}
    with pytest.raises(PlanError, match="each fit the feature map"):
        retrain({**profile, "mixing": both})
    assert len(Installation.open().ledger.history()) == before


def test_a_delta_of_one_over_n_is_refused(installed, home):
    with pytest.raises((PlanError, PrivateDataError), match="delta"):
        register(home, "coarse", delta=1e-3)
