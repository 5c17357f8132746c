"""A restored ledger backup is refused, and reconciled with what the evidence shows to have started."""

from __future__ import annotations

import shutil

import pytest

from flows.commands import dataset
from privacy import accounting
from storage.errors import PrivateDataError
from storage.ledger import Charge
from storage.runs import RunFolder
from tasks.balances import gate_of
from tasks.installation import Installation
from tasks.reconciling import reconcile

BLOCK = "letters/all"


@pytest.fixture
def installation(tmp_path, monkeypatch):
    monkeypatch.setenv("DPMIX_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("DPMIX_RUNS", str(tmp_path / "runs"))
    file = tmp_path / "letters.csv"
    file.write_text("body,kind\n" + "".join(f"letter {k},{'ab'[k % 2]}\n" for k in range(40)))
    dataset.register(
        "letters", file, text_column="body", label_column="kind", classes=["a", "b"], records=1000
    )
    return Installation.open()


def run(installation, name):
    """A run that reserves, starts and reads, with the evidence it leaves; returns its row."""
    ledger, folder = installation.ledger, RunFolder(installation.settings.runs / name)
    (block,) = ledger.blocks("letters")
    event = accounting.dpsgd_event(noise_multiplier=3.0, sample_rate=0.1, steps=50)
    charge = Charge(
        purpose="mixed model",
        mechanism={"event": accounting.event_to_json(event), "plan_digest": "ab" * 32},
        epsilon=0.3, delta=1e-5, steps=50, costs={BLOCK: gate_of(block).costs(event)},
    )  # fmt: skip
    (row,) = ledger.reserve([charge], flow_run_id=name, run_count=1)
    folder.write(
        "plan", {"dataset": "letters", "key": [name, 1], "plans": {"mixed": {"steps": 50}}}
    )
    evidence = installation.evidence(folder)
    shown = {
        "row": row, "purpose": charge.purpose, "kind": "charged", "epsilon": 0.3, "delta": 1e-5,
        "mechanism": dict(charge.mechanism), "costs": {BLOCK: list(charge.costs[BLOCK])},
    }  # fmt: skip
    evidence.append("plan", {"plans": {}, "blocks": [BLOCK]})
    evidence.append("quote", {"rows": []})
    evidence.append("reservation", {"ledger": ledger.id, "rows": [shown]})
    evidence.append("audit", {"verdict": "pass"})
    grant = ledger.start(row)
    evidence.append("start", {"row": row, "epoch": grant.epoch, "arm": "mixed"})
    installation.store.read(grant, BLOCK)
    return row


def spent():
    (balance,) = Installation.open().ledger.balances("letters")
    return balance.spent


def back_up(installation, to):
    to.mkdir()
    for path in installation.settings.home.glob("ledger.db*"):
        shutil.copy(path, to / path.name)


def restore(installation, backup):
    installation.ledger._database._engine.dispose()
    for path in installation.settings.home.glob("ledger.db*"):
        path.unlink()
    for path in backup.iterdir():
        shutil.copy(path, installation.settings.home / path.name)


def test_a_backup_is_refused_until_what_started_since_is_booked_again(installation, tmp_path):
    run(installation, "first")
    back_up(installation, tmp_path / "backup")
    before = spent()
    run(installation, "second")
    truth = spent()
    restore(installation, tmp_path / "backup")

    assert spent() == before
    with pytest.raises(PrivateDataError, match="dpmix ledger reconcile letters"):
        Installation.open().store.dataset("letters")
    said = reconcile("letters")
    assert "booked again, was row 2" in said[0]
    assert spent() == truth
    assert Installation.open().store.dataset("letters").name == "letters"
    Installation.open().ledger.verify()


def test_a_reservation_that_the_backup_still_holds_open_is_spent(installation, tmp_path):
    ledger, reserve = installation.ledger, type(installation.ledger).reserve

    def reserve_and_back_up(self, *arguments, **keywords):
        rows = reserve(self, *arguments, **keywords)
        back_up(installation, tmp_path / "backup")
        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(ledger), "reserve", reserve_and_back_up)
        run(installation, "first")
    truth = spent()
    restore(installation, tmp_path / "backup")
    assert not any(spent())
    assert "was RESERVED here, is spent" in reconcile("letters")[0]
    assert spent() == truth


def test_reconciling_again_books_nothing_more(installation):
    run(installation, "first")
    before = spent()
    assert reconcile("letters") == reconcile("letters")
    assert spent() == before


def test_the_head_never_moves_back(installation, tmp_path):
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
