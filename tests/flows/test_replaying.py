"""A run whose seeds were sealed is repeated by the auditor, bit for bit; without the key it is not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flows.commands import dataset
from flows.commands.evidence import keygen_command, replay_command, verify_command
from flows.commands.run import call
from flows.parameters import parameters_of
from storage.evidence import EvidenceError
from storage.evidence.keys import auditor_key, public_key
from storage.ledger.export import write_export
from tasks.installation import Installation


@pytest.fixture(scope="module")
def auditor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("auditor")
    keygen_command(folder)
    return folder / "auditor.pem"


@pytest.fixture(scope="module")
def sealed(installed, home, profile, auditor):
    """Folder of a run that asked for a replay."""
    dataset.register(
        "replayed", home / "replayed.csv", text_column="review", label_column="sentiment",
        classes=["negative", "positive"], records=1000, holdout_records=400,
    )  # fmt: skip
    changed = {**profile, "dataset": {"name": "replayed"}, "evaluation": {"private_only": False}}
    changed["audit"] = {**profile["audit"], "replay_key": public_key(auditor_key(auditor))}
    return Path(call("retrain", parameters_of(changed, "retrain"))).parent


def test_the_model_is_equal_bit_for_bit(sealed, auditor):
    before = Installation.open().ledger.balances("replayed")
    lines = replay_command(sealed, auditor_key=auditor)
    assert lines[0] == "not private against the holder of the auditor's key"
    assert any("mixed: EQUAL bit for bit" in line for line in lines), lines
    newest = Installation.open().ledger.history("replayed")[-1]
    assert (newest.purpose, newest.kind, newest.state) == ("replay", "restricted", "COMMITTED")
    assert [b.spent for b in Installation.open().ledger.balances("replayed")] == [
        b.spent for b in before
    ]


def test_the_run_discloses_it(sealed):
    assert "holder of the auditor's key" in json.loads((sealed / "notice.json").read_text())["text"]
    found = verify_command([sealed / "evidence.jsonl"], public_key=str(sealed / "evidence.pub"))
    assert found.result == "VALID", found.lines
    assert "not private against the holder" in "\n".join(found.lines)


def test_a_stranger_reaches_the_ledgers_epsilon(sealed, tmp_path):
    from flows.commands import ledger

    installation = Installation.open()
    write_export(installation.ledger, tmp_path / "ledger.jsonl", installation.key)
    runs = sorted(sealed.parent.glob("*/evidence.jsonl"))
    found = verify_command(
        runs, public_key=str(sealed / "evidence.pub"), ledger=tmp_path / "ledger.jsonl"
    )
    assert not found.data["failures"], found.lines
    shown = {r["block"]: r["spent"] for r in ledger.status(None)}
    assert {b["block"]: b["spent"] for b in found.data["blocks"]} == shown


def test_the_seed_is_nowhere_but_in_the_box(sealed, auditor):
    store = Installation.open().settings.sealed
    from storage.evidence.sealing import SealedStore

    row = json.loads((sealed / "reservation.json").read_text())["rows"]["mixed model"]
    (secret,) = SealedStore(store).open(sealed.name, row, auditor_key(auditor))
    for path in [*sealed.rglob("*"), *store.rglob("*")]:
        if path.is_file():
            content = path.read_bytes()
            for start in range(64 - 8):
                part = secret[start : start + 8]
                assert part not in content
                assert part.hex().encode() not in content


def test_another_auditor_cannot_replay(sealed, tmp_path):
    keygen_command(tmp_path)
    with pytest.raises(EvidenceError, match="sealed no seed to this key"):
        replay_command(sealed, auditor_key=tmp_path / "auditor.pem")


def test_weights_that_differ_are_said_to(sealed, auditor, monkeypatch):
    from tasks import replaying

    honest = replaying.train_on_private

    def shifted(*args, **keywords):
        trained = honest(*args, **keywords)
        for parameter in trained.head.parameters():
            parameter.data += 1.0
        return type(trained)(trained.head, trained.commitment, trained.is_private, "00" * 32)

    monkeypatch.setattr(replaying, "train_on_private", shifted)
    text = "\n".join(replay_command(sealed, auditor_key=auditor))
    assert re.search(r"DIFFERENT, digest 0+ instead of .* more than the tolerance", text)


def test_a_box_of_another_seed_is_found(sealed, auditor):
    from storage.evidence.sealing import SealedStore

    store = Installation.open().settings.sealed
    row = json.loads((sealed / "reservation.json").read_text())["rows"]["mixed model"]
    (box,) = (store / sealed.name).glob(f"{row}-*.json")
    kept = box.read_bytes()
    box.unlink()
    try:
        SealedStore(store).put(sealed.name, row, public_key(auditor_key(auditor)), bytes(64))
        with pytest.raises(EvidenceError, match="committed to"):
            replay_command(sealed, auditor_key=auditor)
    finally:
        for other in (store / sealed.name).glob(f"{row}-*.json"):
            other.unlink()
        box.write_bytes(kept)
