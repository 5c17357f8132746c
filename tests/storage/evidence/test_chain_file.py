"""Evidence: whatever is done to a file is found, and its writer survives a kill."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import assume, given
from hypothesis import strategies as st

from storage.chain import GENESIS, canonical, digest
from storage.evidence import CLOSED, Evidence, EvidenceError, public_key, verify, verify_prefix

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
PUBLIC = public_key(KEY)


@pytest.fixture(scope="module")
def honest(tmp_path_factory, ten, write):
    """Bytes of a closed file, its head, and a path to write variants to."""
    path = tmp_path_factory.mktemp("evidence") / "evidence.jsonl"
    head = write(path, ten)
    return path.read_bytes(), head, path


def check(honest, content, **keywords):
    path = honest[2].with_name("variant.jsonl")
    path.write_bytes(content)
    return verify(path, PUBLIC, **keywords)


class TestHonestFile:
    def test_verifies_with_all_its_entries(self, honest, ten):
        content, head, _ = honest
        seen = check(honest, content)
        assert (seen.entries, seen.head, seen.complete) == (10, head, True)
        assert seen.bodies == tuple(ten)
        assert seen.hashes[-1] == head

    def test_verifies_against_its_head(self, honest):
        assert check(honest, honest[0], head=honest[1]).complete

    @pytest.mark.parametrize("written", range(10))
    def test_is_continued_by_another_process_at_any_point(self, tmp_path, ten, write, written):
        path = tmp_path / "evidence.jsonl"
        write(path, ten[:written])
        write(path, ten[written:])
        assert verify(path, PUBLIC).complete

    def test_its_public_key_lies_beside_it(self, honest):
        assert honest[2].with_name("evidence.pub").read_text() == f"{PUBLIC}\n"
        assert verify(honest[2], str(honest[2].with_name("evidence.pub"))).complete

    def test_an_entry_holds_its_day_and_no_time(self, honest):
        for line in honest[0].splitlines():
            assert date.fromisoformat(json.loads(line)["at"])

    def test_two_writers_make_one_chain(self, tmp_path, ten, write):
        path = tmp_path / "evidence.jsonl"
        write(path, ten[:3])
        writers = [Evidence(path, KEY) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda w: [w.append(*ten[3]) for _ in range(10)], writers))
        assert verify(path, PUBLIC).entries == 43

    def test_holds_the_previous_hash_inside_what_is_hashed(self, honest):
        lines = [json.loads(line) for line in honest[0].splitlines()]
        assert [line["previous"] for line in lines[1:]] == [line["hash"] for line in lines[:-1]]

    def test_refuses_what_json_cannot_say(self, tmp_path, ten):
        path = tmp_path / "evidence.jsonl"
        evidence = Evidence(path, KEY)
        with pytest.raises(ValueError, match=r"[Nn]a[Nn]|JSON"):
            evidence.append("plan", {"plans": {}, "blocks": [float("nan")]})
        evidence.append(*ten[0])
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

    def test_a_changed_byte_is_found_at_every_position(self, honest):
        content, missed = honest[0], []
        for index, byte in enumerate(content):
            changed = content[:index] + bytes([byte ^ (1 + index % 255)]) + content[index + 1 :]
            try:
                check(honest, changed)
            except EvidenceError as error:
                if error.entry == content[:index].count(b"\n"):
                    continue
            missed.append(index)
        assert not missed

    def test_an_appended_forgery_is_found(self, honest, ten):
        line = honest[0].splitlines(keepends=True)[-1]
        with pytest.raises(EvidenceError, match=r"entry 10 of .* does not follow"):
            check(honest, honest[0] + line)

    @pytest.mark.parametrize("number", range(10))
    def test_a_forgery_hashed_anew_without_the_key_is_found(self, honest, number):
        """Every hash behind the change is made again, and the signatures that stood there are kept."""
        entries = [json.loads(line) for line in honest[0].splitlines()]
        entries[number]["body"]["forged"] = True
        previous, lines = GENESIS, []
        for entry in entries:
            entry["previous"] = previous
            entry["hash"] = previous = digest(entry)
            lines.append(canonical(entry).encode() + b"\n")
        with pytest.raises(EvidenceError, match=rf"entry {number} of .*not signed by this key"):
            check(honest, b"".join(lines))

    def test_a_forgery_signed_with_another_key_is_found(self, honest, ten, tmp_path):
        forged = Evidence(tmp_path / "evidence.jsonl", Ed25519PrivateKey.generate())
        for kind, body in ten:
            forged.append(kind, body)
        with pytest.raises(EvidenceError, match=r"entry 0 of .*not signed by this key"):
            verify(tmp_path / "evidence.jsonl", PUBLIC)

    @pytest.mark.parametrize("dropped", range(9))
    def test_a_dropped_entry_is_found_where_it_was(self, honest, dropped):
        lines = honest[0].splitlines(keepends=True)
        del lines[dropped]
        with pytest.raises(EvidenceError, match=rf"entry {dropped} of .* does not follow"):
            check(honest, b"".join(lines))

    @pytest.mark.parametrize("first", range(9))
    def test_swapped_entries_are_found(self, honest, first):
        lines = honest[0].splitlines(keepends=True)
        lines[first], lines[first + 1] = lines[first + 1], lines[first]
        with pytest.raises(EvidenceError, match=rf"entry {first} of .* does not follow"):
            check(honest, b"".join(lines))

    def test_a_repeated_entry_is_found(self, honest):
        lines = honest[0].splitlines(keepends=True)
        with pytest.raises(EvidenceError, match="entry 2 of"):
            check(honest, b"".join([*lines[:2], *lines[1:]]))

    def test_an_entry_of_another_file_is_found(self, honest, entries, write, tmp_path):
        other = tmp_path / "other.jsonl"
        entries[0][1]["blocks"] = ["others"]
        write(other, entries[:2])
        lines = honest[0].splitlines(keepends=True)
        lines[1] = other.read_bytes().splitlines(keepends=True)[1]
        with pytest.raises(EvidenceError, match="entry 1 of"):
            check(honest, b"".join(lines))

    @pytest.mark.parametrize("number", [b"1e345", b"NaN", b"Infinity", b'"\\ud800"'])
    def test_a_value_that_no_writer_writes_is_found_and_named(self, honest, number):
        with pytest.raises(EvidenceError, match="entry 0 of"):
            check(honest, honest[0].replace(b'"steps":4', b'"steps":' + number, 1))

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (b'"steps":4', b'"steps": 4'),
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
        doubled = honest[0].replace(b'"steps":4', b'"steps":1,"steps":4', 1)
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
    @pytest.mark.parametrize("kept", range(10))
    def test_a_prefix_is_incomplete(self, honest, kept):
        prefix = b"".join(honest[0].splitlines(keepends=True)[:kept])
        seen = check(honest, prefix)
        assert (seen.entries, seen.complete) == (kept, False)

    @pytest.mark.parametrize("kept", range(10))
    def test_a_prefix_does_not_end_at_the_head(self, honest, kept):
        prefix = b"".join(honest[0].splitlines(keepends=True)[:kept])
        with pytest.raises(EvidenceError, match="not at the head"):
            check(honest, prefix, head=honest[1])

    def test_an_open_file_is_complete_at_its_head(self, tmp_path, ten, write):
        path = tmp_path / "evidence.jsonl"
        head = write(path, ten[:-1])
        assert not verify(path, PUBLIC).complete
        assert verify(path, PUBLIC, head=head).complete


class TestKilledWhileWriting:
    """A SIGKILL leaves the last line cut off anywhere, its newline included."""

    @pytest.mark.parametrize("cut", [1, 2, 40, 200])
    def test_its_writer_goes_on_after_the_last_whole_entry(self, tmp_path, ten, write, cut):
        path = tmp_path / "evidence.jsonl"
        write(path, ten[:3])
        path.write_bytes(path.read_bytes()[:-cut])
        Evidence(path, KEY).append(CLOSED, {})
        seen = verify(path, PUBLIC)
        assert seen.complete
        assert [kind for kind, _ in seen.bodies][:2] == ["plan", "quote"]

    @pytest.mark.parametrize("cut", [2, 40, 200])
    def test_the_cut_off_line_is_never_accepted(self, tmp_path, ten, write, cut):
        path = tmp_path / "evidence.jsonl"
        write(path, ten[:3])
        path.write_bytes(path.read_bytes()[:-cut])
        try:
            seen = verify(path, PUBLIC)
        except EvidenceError as error:
            assert "entry 2" in str(error)  # noqa: PT017 - either answer is right
        else:
            assert (seen.entries, seen.complete) == (2, False)

    @pytest.mark.parametrize("cut", [0, 1, 2, 40, 200])
    def test_what_stands_before_it_verifies_without_changing_the_file(
        self, tmp_path, ten, write, cut
    ):
        path = tmp_path / "evidence.jsonl"
        write(path, ten[:3])
        content = path.read_bytes()[: -cut or None]
        path.write_bytes(content)
        seen = verify_prefix(path, PUBLIC)
        assert (seen.entries, seen.cut_off) == ((3, False) if cut < 2 else (2, True))
        assert path.read_bytes() == content

    def test_nothing_but_half_a_line_is_no_entry(self, tmp_path):
        path = tmp_path / "evidence.jsonl"
        path.write_bytes(b'{"at":"2030')
        seen = verify_prefix(path, PUBLIC)
        assert (seen.entries, seen.cut_off) == (0, True)

    def test_a_whole_line_that_is_wrong_is_no_cut(self, honest):
        lines = honest[0].splitlines(keepends=True)
        honest[2].write_bytes(b"".join(lines[:2]) + lines[2].replace(b'"at":"2', b'"at":"3'))
        with pytest.raises(EvidenceError, match="entry 2 of"):
            verify_prefix(honest[2], PUBLIC)
