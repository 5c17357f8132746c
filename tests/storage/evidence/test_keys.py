"""Keys: made once, for their owner alone, and read as a stranger would give them."""

from __future__ import annotations

import pytest

from storage.evidence import EvidenceError, public_key, signing_key
from storage.evidence.keys import auditor_key, new_auditor_key, read_public_key


class TestSigningKey:
    def test_is_made_once_for_its_owner_alone(self, tmp_path):
        path = tmp_path / "keys" / "evidence.pem"
        key = signing_key(path)
        assert path.stat().st_mode & 0o777 == 0o600
        assert public_key(signing_key(path)) == public_key(key)
        assert [p.name for p in path.parent.iterdir()] == ["evidence.pem"]

    def test_two_installations_have_two(self, tmp_path):
        assert public_key(signing_key(tmp_path / "a")) != public_key(signing_key(tmp_path / "b"))

    def test_another_kind_of_key_is_refused(self, tmp_path):
        new_auditor_key(tmp_path / "auditor.pem")
        with pytest.raises(EvidenceError, match="no Ed25519 key"):
            signing_key(tmp_path / "auditor.pem")


class TestAuditorKey:
    def test_is_for_its_owner_alone_and_read_back(self, tmp_path):
        path = tmp_path / "auditor" / "auditor.pem"
        key = new_auditor_key(path)
        assert path.stat().st_mode & 0o777 == 0o600
        assert public_key(auditor_key(path)) == public_key(key)

    def test_is_never_overwritten(self, tmp_path):
        path = tmp_path / "auditor.pem"
        before = public_key(new_auditor_key(path))
        with pytest.raises(EvidenceError, match="never overwritten"):
            new_auditor_key(path)
        assert public_key(auditor_key(path)) == before

    @pytest.mark.parametrize("content", [None, b"", b"no key at all"])
    def test_a_file_without_one_is_refused(self, tmp_path, content):
        path = tmp_path / "auditor.pem"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(EvidenceError, match="no X25519 key"):
            auditor_key(path)


class TestGivenPublicKey:
    def test_may_be_digits_or_a_file(self, tmp_path):
        path = tmp_path / "evidence.pub"
        path.write_text("ab" * 32 + "\n")
        assert read_public_key("ab" * 32) == read_public_key(str(path)) == "ab" * 32

    @pytest.mark.parametrize("given", ["", "zz", "ab" * 31, "AB" * 32, "no/such/file", "."])
    def test_anything_else_is_refused(self, given):
        with pytest.raises(EvidenceError, match="64 hex digits"):
            read_public_key(given)
