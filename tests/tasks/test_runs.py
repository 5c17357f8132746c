"""A run that ends without a release gives back what it never started, whoever says that it ended."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from flows.commands import dataset
from storage.ledger import Charge
from tasks.installation import Installation
from tasks.runs import close_refused


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("DPMIX_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("DPMIX_RUNS", str(tmp_path / "runs"))
    (tmp_path / "rows.csv").write_text("body,kind\none,a\n")
    dataset.register(
        "letters", tmp_path / "rows.csv", text_column="body", label_column="kind",
        classes=["a", "b"], records=1000,
    )  # fmt: skip
    return Installation.open().ledger


@pytest.fixture
def rows(ledger):
    """A run's rows, the first of which has started."""
    (block,) = ledger.blocks("letters")
    charges = [
        Charge(purpose=purpose, mechanism={}, epsilon=0.1, delta=1e-5, steps=1,
               costs={block.name: (1,) * len(block.caps)})
        for purpose in ("first", "second")
    ]  # fmt: skip
    reserved = ledger.reserve(charges, flow_run_id="some-run", run_count=1)
    ledger.start(reserved[0])
    return reserved


@pytest.mark.parametrize(
    "call",
    [
        lambda run: close_refused(None, run, None),
        lambda run: close_refused(flow=None, flow_run=run, state=None),
    ],
    ids=["its own process", "a worker"],
)
def test_what_never_started_is_given_back_and_what_started_stays(ledger, rows, call):
    call(SimpleNamespace(id="some-run"))
    assert [e.state for e in ledger.history()] == ["STARTED", "RELEASED"]
