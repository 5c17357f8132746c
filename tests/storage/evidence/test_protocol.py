"""The order of entries: what may not stand is refused before it is written, and found when verified."""

from __future__ import annotations

import base64
import json
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.chain import GENESIS, canonical, make_link
from storage.evidence import Evidence, EvidenceError, public_key, verify

REFUSED = {"at": "step", "reason": "sample_rate is 0.2, the plan says 0.1"}


def forge(path, signer, entries):
    """Sign entries in any order, as someone who holds the key could."""
    previous, lines = GENESIS, []
    for sequence, (kind, body) in enumerate(entries):
        link = make_link(
            sequence=sequence, kind=kind, day=date(2030, 1, 1), previous=previous, body=body
        )
        previous = link["hash"]
        signature = base64.b64encode(signer.sign(bytes.fromhex(previous))).decode()
        lines.append(canonical({**link, "signature": signature}) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


@pytest.fixture
def refused(tmp_path, signer, write):
    """Checks that entry `number` may neither be written nor stand, for the reason given."""

    def check(entries, number, reason):
        written = tmp_path / "evidence.jsonl"
        write(written, entries[:number])
        before = written.read_bytes() if number else None
        with pytest.raises(EvidenceError, match=reason) as caught:
            Evidence(written, signer).append(*entries[number])
        assert caught.value.entry == number
        assert (written.read_bytes() if number else None) == before
        forged = tmp_path / "forged.jsonl"
        forge(forged, signer, entries)
        with pytest.raises(EvidenceError, match=reason) as found:
            verify(forged, public_key(signer))
        assert found.value.entry == number

    return check


class TestOrder:
    @pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 7])
    def test_an_entry_left_out_is_missed_by_the_next(self, entries, refused, number):
        del entries[number]
        refused(entries, number, "follows|never reserved|not settled|is reserved")

    @pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 8])
    def test_two_entries_that_changed_places_are_refused(self, entries, refused, number):
        entries[number - 1], entries[number] = entries[number], entries[number - 1]
        refused(entries, number - 1, "follow|never reserved|not settled|is reserved|in epoch")

    def test_blocks_of_steps_that_changed_places_are_refused(self, entries, refused):
        entries[5], entries[6] = entries[6], entries[5]
        refused(entries, 6, "do not follow step 4")

    def test_steps_behind_the_settlement_are_refused(self, entries, refused):
        entries[6], entries[7] = entries[7], entries[6]
        refused(entries, 7, "the row is settled")

    @pytest.mark.parametrize("number", [0, 1, 2, 4, 7, 8])
    def test_an_entry_that_is_repeated_is_refused(self, entries, refused, number):
        entries.insert(number + 1, entries[number])
        refused(entries, number + 1, "follows|was there before|is settled")

    def test_an_unknown_kind_is_refused(self, entries, refused):
        entries[1] = ("commitment", {"commitment": "ab" * 32})
        refused(entries, 1, "no kind of entry")

    @given(data=st.data())
    def test_a_field_of_another_type_is_refused(self, ten, tmp_path, signer, data):
        number = data.draw(st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8]))
        kind, body = ten[number]
        name = data.draw(st.sampled_from(sorted(set(body) & {
            "plans", "blocks", "rows", "ledger", "verdict", "row", "epoch", "arm", "first", "root",
        })))  # fmt: skip
        wrong = {**body, name: data.draw(st.sampled_from([None, True, 1.5]))}
        path = tmp_path / "forged.jsonl"
        forge(path, signer, [*ten[:number], (kind, wrong)])
        with pytest.raises(EvidenceError, match=rf"entry {number} .*{name} of {kind}"):
            verify(path, public_key(signer))


class TestEndings:
    def test_closing_again_changes_nothing(self, entries, tmp_path, signer, write):
        path = tmp_path / "evidence.jsonl"
        head = write(path, entries)
        assert Evidence(path, signer).append(*entries[-1]) == head
        assert verify(path, public_key(signer)).entries == 10

    def test_closing_with_another_body_is_refused(self, entries, refused):
        refused([*entries, ("closed", {"released": False})], 10, "follows closed")

    @pytest.mark.parametrize("kind", ["plan", "start", "steps", "release"])
    def test_nothing_stands_behind_closed(self, entries, refused, kind):
        refused([*entries, next(e for e in entries if e[0] == kind)], 10, "follows closed")

    @pytest.mark.parametrize(("kept", "at"), [(2, "reservation"), (4, "audit"), (5, "step")])
    def test_a_refusal_ends_a_run(self, entries, tmp_path, signer, write, refused, kept, at):
        ended = [*entries[:kept], ("refusal", {**REFUSED, "at": at}), entries[-1]]
        write(tmp_path / "whole.jsonl", ended)
        assert verify(tmp_path / "whole.jsonl", public_key(signer)).complete
        refused([*ended[:-1], entries[kept]], kept + 1, "follows a refusal")

    def test_a_repeated_refusal_changes_nothing(self, entries, tmp_path, write):
        path = tmp_path / "evidence.jsonl"
        ended = [*entries[:5], ("refusal", REFUSED)]
        assert write(path, ended) == write(path, ended[-1:])

    @pytest.mark.parametrize(
        ("kept", "at"), [(1, "reservation"), (3, "audit"), (4, "step"), (5, "somewhere")]
    )
    def test_a_refusal_stands_where_something_can_be_refused(self, entries, refused, kept, at):
        refused([*entries[:kept], ("refusal", {**REFUSED, "at": at})], kept, "follow|no row|known:")

    def test_a_plan_may_be_audited_alone(self, entries, tmp_path, signer, write):
        path = tmp_path / "evidence.jsonl"
        write(path, [entries[0], entries[3], ("closed", {"released": False})])
        assert verify(path, public_key(signer)).complete

    @pytest.mark.parametrize(
        "verdict", [{"verdict": "fail"}, {"verdict": "fail", "strict": False}, {"verdict": "blind"}]
    )
    def test_an_audit_that_did_not_pass_allows_no_start(self, entries, refused, verdict):
        entries[3] = ("audit", verdict)
        refused(entries, 4, "audit did not pass")

    def test_an_inconclusive_audit_allows_a_start_where_it_is_disclosed(
        self, entries, tmp_path, write
    ):
        entries[3] = ("audit", {"verdict": "inconclusive", "strict": False})
        assert write(tmp_path / "evidence.jsonl", entries)


class TestRows:
    def test_a_row_that_was_not_reserved_is_refused(self, entries, refused):
        entries[4][1]["row"] = 8
        refused(entries, 4, "row 8 was never reserved")

    @pytest.mark.parametrize(("first", "last"), [(2, 4), (4, 4), (3, 2), (0, 4)])
    def test_blocks_of_steps_have_no_gap_and_no_overlap(self, entries, refused, first, last):
        entries[6][1].update(first=first, last=last)
        refused(entries, 6, "do not follow step 2")

    def test_a_root_is_a_digest(self, entries, refused):
        entries[5][1]["root"] = "xy"
        refused(entries, 5, "not 64 hex digits")

    @pytest.mark.parametrize("number", [5, 7])
    def test_what_an_earlier_epoch_writes_is_refused(self, entries, refused, number):
        taken_over = ("start", {**entries[4][1], "epoch": 2})
        refused([*entries[:number], taken_over, entries[number]], number + 1, "in epoch 2")

    def test_a_row_that_was_taken_over_goes_on_behind_what_was_counted(
        self, entries, tmp_path, write
    ):
        taken_over = ("start", {**entries[4][1], "epoch": 2})
        rest = [(k, {**b, "epoch": 2}) for k, b in entries[6:8]]
        assert write(tmp_path / "evidence.jsonl", [*entries[:6], taken_over, *rest, *entries[8:]])

    def test_a_settled_row_that_was_never_committed_may_be_taken_over(
        self, entries, tmp_path, write
    ):
        taken_over = ("start", {**entries[4][1], "epoch": 2})
        settled = ("settlement", {**entries[7][1], "epoch": 2})
        assert write(tmp_path / "evidence.jsonl", [*entries[:8], taken_over, settled])

    @pytest.mark.parametrize("number", [5, 7])
    def test_a_restricted_row_publishes_nothing(self, entries, refused, number):
        entries[2][1]["rows"][0]["kind"] = "restricted"
        refused([*entries[:5], entries[number]], 5, "restricted and publishes nothing")

    def test_only_a_restricted_row_is_started_behind_the_release(self, entries, tmp_path, write,
                                                                 refused):  # fmt: skip
        rows = entries[2][1]["rows"]
        rows += [{**rows[0], "row": 8}, {**rows[0], "row": 9, "kind": "restricted"}]
        members = ("start", {"row": 9, "epoch": 1, "arm": "members"})
        assert write(tmp_path / "whole.jsonl", [*entries[:9], members, entries[9]])
        refused([*entries[:9], ("start", {**entries[4][1], "row": 8})], 9, "behind the release")

    @pytest.mark.parametrize("change", [{"kind": "free"}, {"costs": None}, {"delta": "small"}])
    def test_a_reserved_row_says_what_it_is(self, entries, refused, change):
        entries[2][1]["rows"][0].update(change)
        refused(entries, 2, "row of the reservation|neither charged nor restricted")

    def test_a_row_reserved_twice_is_refused(self, entries, refused):
        entries[2][1]["rows"] *= 2
        refused(entries, 2, "reserved twice")


def test_what_is_written_is_what_is_read(entries, tmp_path, signer, write):
    path = tmp_path / "evidence.jsonl"
    write(path, entries)
    kept = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(e["kind"], e["body"]) for e in kept] == entries
