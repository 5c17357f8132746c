"""The export: the whole journal, line by line, closed by a signature."""

from __future__ import annotations

import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from storage.chain import canonical
from storage.ledger.export import write_export


@pytest.fixture
def exported(ledger, reserve, tmp_path):
    ledger.commit(ledger.start(reserve()), head="ab" * 32)
    ledger.retire("reviews/2030")
    path = tmp_path / "made" / "ledger.jsonl"
    closing = write_export(ledger, path, Ed25519PrivateKey.generate())
    return path.read_text(encoding="utf-8").splitlines(), closing


def test_holds_every_link_in_canonical_form(ledger, exported):
    lines, _closing = exported
    assert lines[:-1] == [canonical(link) for link in ledger.journal()]


def test_is_closed_by_a_signature_over_head_and_length(ledger, exported):
    lines, closing = exported
    last = json.loads(lines[-1])
    assert last == closing
    signature = base64.b64decode(last.pop("signature"))
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(last["public_key"]))
    key.verify(signature, canonical(last).encode())
    assert (last["head"], last["entries"]) == (ledger.head().hash, len(lines) - 1)


def test_holds_days_and_no_secret(exported):
    lines, _closing = exported
    for line in lines:
        assert len(json.loads(line)["at"]) == len("2030-01-01")
        assert "token" not in line
        assert "deadline" not in line
