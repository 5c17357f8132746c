"""A failed attempt: the evidence ends with a refusal that quotes declared figures and nothing else."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privacy.errors import StepRefused
from storage.errors import FencedOut
from storage.evidence import Evidence, public_key, verify
from storage.ledger import ReadGrant
from storage.runs import RunFolder
from tasks.attempts import told

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
GRANT = ReadGrant(row=7, epoch=1, kind="charged", blocks=("a",), token="t")


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run")


@pytest.fixture
def evidence(run):
    """A file whose row 7 has started."""
    made = Evidence(run.path / "evidence.jsonl", KEY)
    row = {"row": 7, "purpose": "p", "kind": "charged", "epsilon": 1.0, "delta": 1e-5,
           "mechanism": {}, "costs": {"a": [1]}}  # fmt: skip
    made.append("plan", {"plans": {}, "blocks": []})
    made.append("quote", {"rows": []})
    made.append("reservation", {"ledger": "l", "rows": [row]})
    made.append("audit", {"verdict": "pass"})
    made.append("start", {"row": 7, "epoch": 1, "arm": "mixed"})
    return made


def told_of(evidence, run, error):
    with pytest.raises(type(error)), told(evidence, GRANT, run):
        raise error
    return verify(run.path / "evidence.jsonl", public_key(KEY)).bodies[5:]


def test_a_refused_step_is_told_in_its_declared_figures(evidence, run):
    refusal, closed = told_of(evidence, run, StepRefused("sample_rate is 0.2, the plan says 0.1"))
    assert refusal[1]["reason"] == "sample_rate is 0.2, the plan says 0.1"
    assert closed == ("closed", {"released": False})


def test_the_text_of_another_error_is_not_told(evidence, run):
    told_of(evidence, run, ValueError("row 17 says: my secret diary"))
    assert b"diary" not in (run.path / "evidence.jsonl").read_bytes()


def test_whoever_was_fenced_out_tells_nothing(evidence, run):
    assert told_of(evidence, run, FencedOut("epoch 2 holds the row")) == ()


def test_a_zombie_cannot_end_the_run_of_its_successor(evidence, run):
    evidence.append("start", {"row": 7, "epoch": 2, "arm": "mixed"})
    bodies = told_of(evidence, run, ValueError("late"))
    assert [kind for kind, _ in bodies] == ["start"]
