"""Sealing: only the holder of the key opens a box, and only for what it was made."""

from __future__ import annotations

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from storage.evidence import EvidenceError, public_key
from storage.evidence.sealing import SealedStore, seal, unseal

KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))
SECRET = bytes(range(100, 164))


def test_its_holder_opens_it():
    assert unseal(KEY, seal(public_key(KEY), SECRET, purpose="a"), purpose="a") == SECRET


def test_two_boxes_of_one_secret_share_nothing():
    first, second = (seal(public_key(KEY), SECRET, purpose="a") for _ in range(2))
    assert all(first[n] != second[n] for n in ("ephemeral", "nonce", "box"))


def test_another_key_does_not_open_it():
    box = seal(public_key(KEY), SECRET, purpose="a")
    with pytest.raises(EvidenceError, match="does not open"):
        unseal(X25519PrivateKey.generate(), box, purpose="a")


def test_it_does_not_open_for_another_purpose():
    box = seal(public_key(KEY), SECRET, purpose="run a, ledger row 1")
    with pytest.raises(EvidenceError, match="ledger row 2"):
        unseal(KEY, box, purpose="run a, ledger row 2")


@pytest.mark.parametrize("name", ["ephemeral", "nonce", "box"])
def test_a_changed_digit_is_found(name):
    box = seal(public_key(KEY), SECRET, purpose="a")
    box[name] = ("1" if box[name][0] == "0" else "0") + box[name][1:]
    with pytest.raises(EvidenceError, match="does not open"):
        unseal(KEY, box, purpose="a")


@pytest.mark.parametrize("key", ["", "zz" * 32, "ab" * 31, "00" * 32])
def test_a_recipient_that_is_no_key_is_refused(key):
    with pytest.raises(EvidenceError, match="replay_key"):
        seal(key, SECRET, purpose="a")


class TestStore:
    def test_keeps_every_attempt_for_its_owner_alone(self, tmp_path):
        store = SealedStore(tmp_path / "sealed")
        store.put("a-run", 3, public_key(KEY), SECRET)
        store.put("a-run", 3, public_key(KEY), SECRET[::-1])
        store.put("a-run", 33, public_key(KEY), bytes(64))
        assert set(store.open("a-run", 3, KEY)) == {SECRET, SECRET[::-1]}
        assert (tmp_path / "sealed").stat().st_mode & 0o777 == 0o700
        assert all(p.stat().st_mode & 0o077 == 0 for p in (tmp_path / "sealed").rglob("*"))

    def test_a_box_moved_to_another_row_does_not_open(self, tmp_path):
        store = SealedStore(tmp_path)
        store.put("a-run", 3, public_key(KEY), SECRET)
        (box,) = (tmp_path / "a-run").iterdir()
        box.rename(box.with_name("4-0.json"))
        with pytest.raises(EvidenceError, match="does not open"):
            list(store.open("a-run", 4, KEY))

    def test_a_run_that_sealed_nothing_is_named(self, tmp_path):
        with pytest.raises(EvidenceError, match="no sealed seed of row 3"):
            list(SealedStore(tmp_path / "none").open("a-run", 3, KEY))

    def test_holds_no_part_of_the_secret(self, tmp_path):
        store = SealedStore(tmp_path)
        store.put("a-run", 3, public_key(KEY), SECRET)
        content = next((tmp_path / "a-run").iterdir()).read_text()
        assert not any(SECRET[k : k + 8].hex() in content for k in range(56))
        assert json.loads(content)["sealed_to"] == public_key(KEY)
