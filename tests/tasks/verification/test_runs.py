"""A run's evidence, verified: its figures follow from its plan, and what does not is located."""

from __future__ import annotations

import pytest

from storage.evidence.keys import public_key
from tasks.verification import verify_files


@pytest.fixture
def outcome(installation):
    """Verifies the first run as it stands now."""

    def check(**keywords):
        return verify_files([installation.write(0)], installation.public, **keywords)

    return check


def find(installation, kind, /, **wanted):
    return next(
        b for k, b in installation.runs[0] if k == kind and wanted.items() <= {**b, "": 0}.items()
    )


class TestHonestRun:
    def test_is_valid_with_its_epsilon_recomputed(self, outcome, plan):
        found = outcome()
        assert found.result == "VALID", found.lines
        assert found.exit_code == 0
        assert any(f"ε={plan.pld_epsilon:.6g} at" in line for line in found.lines)
        assert found.lines[-1] == "VALID"

    def test_its_audit_digests_and_blocks_of_steps_are_shown(self, outcome):
        text = "\n".join(outcome().lines)
        assert "audit of the mechanism: pass" in text
        assert f"digest of its code: {'aa' * 32}" in text
        assert "2 blocks of steps" in text

    def test_the_key_may_be_given_as_the_file_beside_it(self, installation):
        path = installation.write(0)
        assert verify_files([path], str(path.with_name("evidence.pub"))).result == "VALID"

    def test_is_plain_values_too(self, outcome):
        value = outcome().to_json()
        assert value["result"] == "VALID"
        assert value["files"][0]["settled"] == [1, 2]

    @pytest.mark.parametrize("kept", range(1, 13))
    def test_a_cut_tail_is_incomplete_without_and_invalid_with_the_head(
        self, installation, outcome, kept
    ):
        head = outcome().to_json()["files"][0]["head"]
        del installation.runs[0][kept:]
        assert outcome().result == "INCOMPLETE"
        assert outcome().exit_code == 1
        assert outcome(head=head).result == "INVALID"

    def test_an_open_run_is_valid_at_its_head(self, installation, outcome):
        del installation.runs[0][9:]
        head = outcome().to_json()["files"][0]["head"]
        assert outcome(head=head).result == "VALID"

    def test_a_sealed_seed_is_disclosed(self, installation, outcome):
        find(installation, "start", arm="mixed")["sealed_to"] = "ab" * 32
        assert "not private against the holder of the auditor's key" in "\n".join(outcome().lines)

    def test_what_epsilon_speaks_of_is_said_where_it_is_not_the_unit(self, installation, outcome):
        terms = {"unit": "person", "claim": "(person, period)"}
        find(installation, "reservation")["blocks"] = {"p/2026-11": terms}
        assert "block p/2026-11: every ε is for each (person, period)" in "\n".join(outcome().lines)

    def test_nothing_is_opened_or_made(self, installation, tmp_path, monkeypatch):
        path = installation.write(0)
        before = sorted(path.parent.iterdir())
        monkeypatch.setenv("DPMIX_HOME", str(tmp_path / "nowhere"))
        monkeypatch.setenv("DPMIX_RUNS", str(tmp_path / "nowhere"))
        assert verify_files([path], installation.public).result == "VALID"
        assert not (tmp_path / "nowhere").exists()
        assert sorted(path.parent.iterdir()) == before


class TestContradictions:
    """The installation's own key signed these: consistency is what a stranger can check."""

    @pytest.fixture
    def found(self, installation, outcome):
        def check(kind, change, why, **wanted):
            body = find(installation, kind, **wanted)
            change(body)
            number = next(i for i, (_, b) in enumerate(installation.runs[0]) if b is body)
            report = outcome()
            assert report.result == "INVALID"
            assert report.data["failures"][0]["entry"] == number
            assert why in report.data["failures"][0]["why"]

        return check

    @pytest.mark.parametrize(
        ("name", "value"),
        [("noise_multiplier", 2.0), ("steps", 3), ("sample_rate", 0.05), ("divisor", 50.0)],
    )
    def test_an_edited_plan(self, found, name, value):
        found("plan", lambda b: b["plans"]["mixed"].update({name: value}), "edited")

    def test_a_claim_below_the_price(self, found, plan):
        def change(body):
            body["rows"][0]["epsilon"] = plan.pld_epsilon / 2

        found("reservation", change, "is claimed")

    def test_an_evaluation_below_its_price(self, found):
        found("reservation", lambda b: b["rows"][1].update(epsilon=0.1), "ε=0.1 is claimed")

    def test_another_reservation_than_was_quoted(self, found):
        found("reservation", lambda b: b["rows"][0].update(epsilon=49.0), "was quoted")

    def test_another_mechanism_than_the_plan(self, found):
        def change(body):
            event = body["rows"][0]["mechanism"]["event"]
            body["rows"][0]["mechanism"]["event"] = {**event, "count": 3}

        found("reservation", change, "another mechanism than its plan")

    def test_a_plan_that_is_not_there(self, found):
        def change(body):
            body["rows"][0]["mechanism"]["plan_digest"] = "00" * 32

        found("reservation", change, "not in the file")

    def test_a_charge_of_nothing(self, found):
        def change(body):
            body["rows"][0]["costs"] = {}

        found("reservation", change, "costs a block nothing")

    def test_a_charge_on_a_restricted_row(self, found):
        found("reservation", lambda b: b["rows"][2].update(epsilon=1.0), "is restricted")

    def test_a_start_without_a_commitment(self, found):
        found("start", lambda b: b.pop("noise_commitment"), "without a commitment", arm="mixed")

    def test_steps_beyond_the_plan(self, found):
        found("steps", lambda b: b.update(last=5), "beyond the plan", first=3)

    @pytest.mark.parametrize("name", ["steps", "noise_multiplier", "max_grad_norm", "divisor"])
    def test_a_settlement_with_other_constants(self, found, name):
        found("settlement", lambda b: b.update({name: 7}), f"settles with {name} 7", row=1)

    def test_a_settlement_of_another_plan(self, found):
        found("settlement", lambda b: b.update(plan_digest="00" * 32), "and reserved", row=1)

    def test_a_settlement_before_the_last_step(self, installation, outcome):
        del installation.runs[0][6]
        failure = outcome().data["failures"][0]
        assert failure["entry"] == 6
        assert "cover steps 1 to 2 of 4" in failure["why"]

    def test_a_settlement_without_its_blocks_of_steps(self, installation, outcome):
        del installation.runs[0][5:7]
        assert outcome().data["failures"][0]["entry"] == 5

    def test_noise_below_what_was_reserved(self, found):
        found("settlement", lambda b: b.update(sigma=1.0), "its mechanism says 10", row=2)

    def test_more_matrices_than_were_paid_for(self, found):
        def change(body):
            body["confusion"] |= {str(k): [[1, 2], [3, 4]] for k in range(3)}

        found("settlement", change, "5 matrices", row=2)

    def test_a_closing_that_denies_the_release(self, found):
        found("closed", lambda b: b.update(released=False), "another thing about the release")


class TestFiles:
    def test_a_refused_run_says_why_and_is_valid(self, installation, outcome):
        refusal = ("refusal", {"at": "audit", "reason": "at least ε=9"})
        installation.runs[0][4:] = [refusal, ("closed", {"released": False})]
        report = outcome()
        assert report.result == "VALID"
        assert "  refused at audit: at least ε=9" in report.lines

    def test_a_changed_byte_is_located(self, installation):
        path = installation.write(0)
        lines = path.read_bytes().splitlines(keepends=True)
        lines[6] = lines[6].replace(b'"last":4', b'"last":3')
        path.write_bytes(b"".join(lines))
        report = verify_files([path], installation.public)
        assert report.result == "INVALID"
        assert report.data["failures"][0]["entry"] == 6

    def test_one_wrong_file_does_not_hide_the_others(self, installation):
        first, second = installation.files()
        first.write_bytes(first.read_bytes().replace(b"a-run", b"b-run"))
        report = verify_files([first, second], installation.public)
        assert report.result == "INVALID"
        assert [f["file"] for f in report.data["files"]] == [str(second)]

    @pytest.mark.parametrize("key", ["", "ab" * 31])
    def test_a_key_that_is_none_is_invalid(self, installation, key):
        assert verify_files([installation.write(0)], key).result == "INVALID"

    def test_another_key_is_invalid(self, installation):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        other = public_key(Ed25519PrivateKey.generate())
        assert verify_files([installation.write(0)], other).result == "INVALID"

    def test_a_head_goes_with_one_file(self, installation):
        report = verify_files(installation.files(), installation.public, head="ab" * 32)
        assert report.result == "INVALID"
