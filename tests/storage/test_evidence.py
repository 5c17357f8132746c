"""Evidence: whatever is done to a file is found, and its writer survives a kill."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import assume, given
from hypothesis import strategies as st

from storage.evidence import CLOSED, Evidence, EvidenceError, public_key, signing_key, verify

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
PUBLIC = public_key(KEY)


def write(path, *, close=True):
    evidence = Evidence(path, KEY)
    evidence.append("plan", {"steps": 12345, "noise": 1.5, "names": ["größer", "kleiner"]})
    evidence.append("reservation", {"row": 7, "blocks": {"reviews/2030": [10, 10]}})
    evidence.append("commitment", {"commitment": "ab" * 32})
    if close:
        evidence.append(CLOSED, {})
    return evidence.head


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """Bytes of a closed file, its head, and a path to write variants to."""
    path = tmp_path_factory.mktemp("evidence") / "evidence.jsonl"
    head = write(path)
    return path.read_bytes(), head, path


def check(honest, content, **keywords):
    path = honest[2].with_name("variant.jsonl")
    path.write_bytes(content)
    return verify(path, PUBLIC, **keywords)


class TestHonestFile:
    def test_verifies_with_all_its_entries(self, honest):
        content, head, _ = honest
        seen = check(honest, content)
        assert (seen.entries, seen.head, seen.complete) == (4, head, True)
        assert [kind for kind, _ in seen.bodies] == ["plan", "reservation", "commitment", CLOSED]
        assert seen.bodies[1][1]["row"] == 7

    def test_verifies_against_its_head(self, honest):
        assert check(honest, honest[0], head=honest[1]).complete

    def test_is_continued_by_its_writer(self, tmp_path):
        path = tmp_path / "evidence.jsonl"
        write(path, close=False)
        Evidence(path, KEY).append(CLOSED, {})
        assert verify(path, PUBLIC).entries == 4

    def test_an_entry_holds_its_day_and_no_time(self, honest):
        for line in honest[0].splitlines():
            assert date.fromisoformat(json.loads(line)["at"])

    def test_two_writers_make_one_chain(self, tmp_path):
        path = tmp_path / "evidence.jsonl"
        writers = [Evidence(path, KEY) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda w: [w.append("note", {"k": k}) for k in range(10)], writers))
        assert verify(path, PUBLIC).entries == 40

    def test_holds_the_previous_hash_inside_what_is_hashed(self, honest):
        lines = [json.loads(line) for line in honest[0].splitlines()]
        assert [line["previous"] for line in lines[1:]] == [line["hash"] for line in lines[:-1]]

    def test_refuses_what_json_cannot_say(self, tmp_path):
        path = tmp_path / "evidence.jsonl"
        evidence = Evidence(path, KEY)
        with pytest.raises(ValueError, match=r"[Nn]a[Nn]|JSON"):
            evidence.append("plan", {"epsilon": float("nan")})
        evidence.append(CLOSED, {})
        assert verify(path, PUBLIC).entries == 1


class TestTampering:
    @given(data=st.data())
    def test_a_changed_byte_is_found_and_its_entry_named(self, honest, data):
        content = honest[0]
        index = data.draw(st.integers(0, len(content) - 1))
        value = data.draw(st.integers(0, 255))
        assume(content[index] != value)
        entry = content[:index].count(b"\n")
        with pytest.raises(EvidenceError, match=rf"entry {entry} of"):
            check(honest, content[:index] + bytes([value]) + content[index + 1 :])

    @given(data=st.data())
    def test_an_inserted_byte_is_found(self, honest, data):
        content = honest[0]
        index = data.draw(st.integers(0, len(content)))
        value = data.draw(st.sampled_from(b' \n\t\r{}"0aA,\xff'))
        with pytest.raises(EvidenceError):
            check(honest, content[:index] + bytes([value]) + content[index:])

    @given(data=st.data())
    def test_a_dropped_byte_is_found(self, honest, data):
        content = honest[0]
        index = data.draw(st.integers(0, len(content) - 2))
        with pytest.raises(EvidenceError):
            check(honest, content[:index] + content[index + 1 :])

    @pytest.mark.parametrize("dropped", [0, 1, 2])
    def test_a_dropped_entry_is_found_where_it_was(self, honest, dropped):
        lines = honest[0].splitlines(keepends=True)
        del lines[dropped]
        with pytest.raises(EvidenceError, match=rf"entry {dropped} of .* does not follow"):
            check(honest, b"".join(lines))

    @pytest.mark.parametrize("first", [0, 1, 2])
    def test_swapped_entries_are_found(self, honest, first):
        lines = honest[0].splitlines(keepends=True)
        lines[first], lines[first + 1] = lines[first + 1], lines[first]
        with pytest.raises(EvidenceError, match=rf"entry {first} of .* does not follow"):
            check(honest, b"".join(lines))

    def test_a_repeated_entry_is_found(self, honest):
        lines = honest[0].splitlines(keepends=True)
        with pytest.raises(EvidenceError, match="entry 2 of"):
            check(honest, b"".join([*lines[:2], *lines[1:]]))

    def test_an_entry_of_another_file_is_found(self, honest, tmp_path):
        other = tmp_path / "other.jsonl"
        evidence = Evidence(other, KEY)
        evidence.append("plan", {"steps": 1})
        evidence.append("reservation", {"row": 1})
        lines = honest[0].splitlines(keepends=True)
        lines[1] = other.read_bytes().splitlines(keepends=True)[1]
        with pytest.raises(EvidenceError, match="entry 1 of"):
            check(honest, b"".join(lines))

    @pytest.mark.parametrize("number", [b"1e345", b"NaN", b"Infinity", b'"\\ud800"'])
    def test_a_value_that_no_writer_writes_is_found_and_named(self, honest, number):
        with pytest.raises(EvidenceError, match="entry 0 of"):
            check(honest, honest[0].replace(b"12345", number))

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (b'"row":7', b'"row": 7'),
            (b"plan", b"pl\\u0061n"),
            (b'=="}', b'=!="}'),
            (b"\n", b" \n"),
            (b"{", b"\xef\xbb\xbf{"),
        ],
    )
    def test_another_spelling_of_the_same_entry_is_found(self, honest, old, new):
        changed = honest[0].replace(old, new, 1)
        assert changed != honest[0]
        with pytest.raises(EvidenceError, match=r"entry [01] of"):
            check(honest, changed)

    def test_unused_bits_of_a_signature_are_no_room_for_changes(self, honest):
        line, rest = honest[0].split(b"\n", 1)
        entry = json.loads(line)
        last = entry["signature"][-3]
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        other = alphabet[alphabet.index(last) ^ 1]  # the lowest bit belongs to no byte
        changed = line.replace(f'{last}=="'.encode(), f'{other}=="'.encode())
        assert changed != line
        with pytest.raises(EvidenceError, match="entry 0 of"):
            check(honest, changed + b"\n" + rest)

    def test_a_key_given_twice_is_found(self, honest):
        doubled = honest[0].replace(b'"steps":12345', b'"steps":1,"steps":12345', 1)
        assert doubled != honest[0]
        with pytest.raises(EvidenceError, match="entry 0 of"):
            check(honest, doubled)

    def test_another_key_is_found(self, honest):
        other = public_key(Ed25519PrivateKey.generate())
        with pytest.raises(EvidenceError, match=r"entry 0 .*not signed by this key"):
            verify(honest[2], other)

    @pytest.mark.parametrize("key", ["", "zz", "ab" * 31])
    def test_a_key_that_is_none_is_refused(self, honest, key):
        with pytest.raises(EvidenceError, match="64 hex digits"):
            verify(honest[2], key)

    def test_a_missing_file_is_refused(self, tmp_path):
        with pytest.raises(EvidenceError, match="does not exist"):
            verify(tmp_path / "nothing", PUBLIC)


class TestCompleteness:
    @pytest.mark.parametrize("kept", [0, 1, 2, 3])
    def test_a_prefix_is_incomplete(self, honest, kept):
        prefix = b"".join(honest[0].splitlines(keepends=True)[:kept])
        seen = check(honest, prefix)
        assert (seen.entries, seen.complete) == (kept, False)

    @pytest.mark.parametrize("kept", [0, 1, 2, 3])
    def test_a_prefix_does_not_end_at_the_head(self, honest, kept):
        prefix = b"".join(honest[0].splitlines(keepends=True)[:kept])
        with pytest.raises(EvidenceError, match="not at the head"):
            check(honest, prefix, head=honest[1])

    def test_an_open_file_is_complete_at_its_head(self, tmp_path):
        path = tmp_path / "evidence.jsonl"
        head = write(path, close=False)
        assert not verify(path, PUBLIC).complete
        assert verify(path, PUBLIC, head=head).complete


class TestKilledWhileWriting:
    """A SIGKILL leaves the last line cut off anywhere, its newline included."""

    @pytest.mark.parametrize("cut", [1, 2, 40, 200])
    def test_its_writer_goes_on_after_the_last_whole_entry(self, tmp_path, cut):
        path = tmp_path / "evidence.jsonl"
        write(path, close=False)
        path.write_bytes(path.read_bytes()[:-cut])
        Evidence(path, KEY).append(CLOSED, {})
        seen = verify(path, PUBLIC)
        assert seen.complete
        assert [kind for kind, _ in seen.bodies][:2] == ["plan", "reservation"]

    @pytest.mark.parametrize("cut", [2, 40, 200])
    def test_the_cut_off_line_is_never_accepted(self, tmp_path, cut):
        path = tmp_path / "evidence.jsonl"
        write(path, close=False)
        path.write_bytes(path.read_bytes()[:-cut])
        try:
            seen = verify(path, PUBLIC)
        except EvidenceError as error:
            assert "entry 2" in str(error)  # noqa: PT017 - either answer is right
        else:
            assert (seen.entries, seen.complete) == (2, False)


class TestSigningKey:
    def test_is_made_once_for_its_owner_alone(self, tmp_path):
        path = tmp_path / "keys" / "evidence.pem"
        key = signing_key(path)
        assert path.stat().st_mode & 0o777 == 0o600
        assert public_key(signing_key(path)) == public_key(key)
        assert [p.name for p in path.parent.iterdir()] == ["evidence.pem"]

    def test_two_installations_have_two(self, tmp_path):
        assert public_key(signing_key(tmp_path / "a")) != public_key(signing_key(tmp_path / "b"))
