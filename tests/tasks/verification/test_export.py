"""The ledger's export beside the runs: ε of every block is recomputed, and what is left out is named."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privacy.accounting import RenyiFilter
from storage.chain import canonical
from storage.evidence import public_key, verify
from tasks import rebooking
from tasks.verification import verify_files

BLOCK, HOLDOUT, LEDGER = "reviews/2030", "reviews/2030/holdout", "1f" * 16


@pytest.fixture
def outcome(installation):
    """Verifies every run and the export as they stand now."""

    def check(files=None):
        return verify_files(
            installation.files() if files is None else files,
            installation.public,
            export=installation.export(),
        )

    return check


@pytest.fixture
def located(installation, outcome):
    """Checks that the export is INVALID at the link whose body this is, for the reason given."""

    def check(body, why):
        report = outcome()
        failure = report.data["failures"][0]
        assert report.result == "INVALID"
        assert failure["entry"] == next(
            i for i, (_, b) in enumerate(installation.journal.links) if b is body
        )
        assert why in failure["why"]

    return check


def raise_cap(installation, to, *, signer=None, **changed):
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    statement = {"ledger": LEDGER, "block": BLOCK, "from": 60.0, "to": to, "reason": "a new law",
                 "day": "2030-02-01", **changed}  # fmt: skip
    signature = (signer or key).sign(canonical(statement).encode())
    installation.journal.add(
        "policy", block=BLOCK, action="raise_cap", epsilon_cap=to,
        caps=list(RenyiFilter(to, 1e-5).caps()), statement=statement, public_key=public_key(key),
        signature=base64.b64encode(signature).decode(), note="",
    )  # fmt: skip
    return installation.journal.links[-1][1]


class TestHonestLedger:
    def test_every_block_reaches_the_epsilon_that_was_spent(self, outcome, plan):
        report = outcome()
        assert report.result == "VALID", report.lines
        gate = RenyiFilter(60.0, 1e-5)
        spent = {b["block"]: b["spent"] for b in report.data["blocks"]}
        assert spent[BLOCK] == gate.epsilon_of([2 * c for c in gate.costs(plan.event)])
        assert any(line.startswith(f"block {BLOCK}: spent ε=") for line in report.lines)

    def test_the_export_alone_names_the_runs_that_are_missing(self, outcome):
        report = outcome([])
        assert report.result == "INCOMPLETE"
        assert [m["row"] for m in report.data["missing"]] == [1, 2, 4, 5]

    def test_a_raised_cap_is_verified_and_disclosed(self, installation, outcome):
        raise_cap(installation, 80.0)
        report = outcome()
        assert report.result == "VALID", report.lines
        assert "cap raised from ε=60 to ε=80 on 2030-02-01" in "\n".join(report.lines)
        assert report.data["blocks"][0]["opened_cap"] == 60.0

    def test_a_retired_block_is_disclosed(self, installation, outcome):
        installation.journal.add("policy", block=BLOCK, action="retire", epsilon_cap=0, caps=[],
                                 statement={}, public_key="", signature="", note="old")  # fmt: skip
        report = outcome()
        assert report.result == "VALID"
        assert report.data["blocks"][0]["retired"]

    def test_a_killed_run_keeps_its_charge_and_stays_incomplete(self, installation, outcome):
        del installation.runs[1][6:]
        links = installation.journal.links
        row = next(i for i, (k, b) in enumerate(links) if k == "transition" and b["row"] == 4
                   and b["state"] == "COMMITTED")  # fmt: skip
        links[row][1].update(state="SPENT", head="")
        for number in (5, 6):
            links[:] = [e for e in links if not (e[0] == "transition" and e[1]["row"] == number
                                                 and e[1]["sequence"] > 1)]  # fmt: skip
        report = outcome()
        assert report.result == "INCOMPLETE"
        assert not report.data["missing"]
        assert report.data["blocks"][0]["spent"] > 0


class TestRestoredLedger:
    @pytest.fixture
    def restored(self, installation):
        """The second run was forgotten, and booked again under other numbers."""
        links = installation.journal.links
        del links[next(i for i, (_, b) in enumerate(links) if b.get("row") == 4) :]
        found = verify(installation.write(1), installation.public)
        entries = zip(found.bodies, found.hashes, strict=True)
        starts = {body["row"]: hash_ for (kind, body), hash_ in entries if kind == "start"}
        rows = {r["row"]: r for r in installation.runs[1][2][1]["rows"]}
        for number, row in ((4, rows[5]), (5, rows[4])):
            said = rebooking.note(row=row["row"], run="a-run", entry=starts[row["row"]])
            installation.journal.add(
                "reservation", flow_run_id=f"again:{number}", run_count=1, steps=0,
                **{**row, "row": number},
            )  # fmt: skip
            installation.journal.add(
                "transition", row=number, sequence=1, state="SPENT", epoch=0, note=said, head=""
            )

    def test_rows_that_were_booked_again_are_found_by_their_start(self, restored, outcome, plan):
        report = outcome()
        assert report.result == "VALID", report.lines
        said = "\n".join(report.lines)
        assert "row 4 of evidence.jsonl was booked again at a reconciliation, as row 5" in said
        assert said.count("evidence.jsonl cost nothing") == said.count("row 6 of") == 1
        gate = RenyiFilter(60.0, 1e-5)
        spent = {b["block"]: b["spent"] for b in report.data["blocks"]}
        assert spent[BLOCK] == gate.epsilon_of([2 * c for c in gate.costs(plan.event)])

    def test_a_charge_that_was_not_booked_again_is_missed(self, restored, installation, outcome):
        links = installation.journal.links
        del links[next(i for i, (_, b) in enumerate(links) if b.get("row") == 5) :]
        report = outcome()
        assert report.result == "INVALID"
        assert "row 4 of evidence.jsonl has purpose" in report.data["failures"][0]["why"]

    def test_one_that_was_booked_as_another_is_a_contradiction(
        self, restored, installation, outcome
    ):
        installation.journal.find("reservation", row=5)["purpose"] = "something else"
        assert outcome().result == "INVALID"


class TestOmissions:
    @pytest.mark.parametrize("omitted", [0, 1])
    def test_an_omitted_run_is_named(self, installation, outcome, omitted):
        files = installation.files()
        del files[omitted]
        report = outcome(files)
        assert report.result == "INCOMPLETE"
        assert {m["run"] for m in report.data["missing"]} == {f"flow-{omitted}, attempt 1"}

    @pytest.mark.parametrize("kept", range(3, 10))
    def test_a_cut_tail_is_named(self, installation, outcome, kept):
        del installation.runs[1][kept:]
        report = outcome()
        assert report.result == "INCOMPLETE"
        assert report.data["missing"][-1]["row"] == 5

    def test_an_export_from_before_the_run_is_incomplete(self, installation, outcome):
        links = installation.journal.links
        del links[next(i for i, (k, b) in enumerate(links) if b.get("row") == 4) :]
        report = outcome()
        assert report.result == "INCOMPLETE"
        assert any("the export ends before row 4" in line for line in report.lines)


class TestContradictions:
    def test_a_settlement_that_is_not_the_anchored_one(self, installation, outcome):
        installation.runs[1][7][1]["weights_digest"] = "00" * 32
        report = outcome()
        assert report.result == "INVALID"
        assert report.data["failures"][0]["entry"] == 7

    def test_a_charge_below_its_mechanism(self, installation, located):
        body = installation.journal.find("reservation", row=1)
        body["costs"][BLOCK][0] -= 1
        located(body, "its mechanism costs")

    def test_a_row_that_differs_from_the_run(self, installation, outcome):
        body = installation.journal.find("reservation", row=1)
        body["purpose"] = "something else"
        report = outcome()
        assert report.result == "INVALID"
        assert "row 1 of evidence.jsonl has purpose" in report.data["failures"][0]["why"]

    def test_caps_that_do_not_follow(self, installation, located):
        body = installation.journal.find("block", name=BLOCK)
        body["caps"][3] += 1
        located(body, "do not follow from its ε and δ")

    def test_a_row_over_the_cap(self, installation, located):
        body = installation.journal.find("block", name=BLOCK)
        body |= {"epsilon_cap": 3.6, "caps": list(RenyiFilter(3.6, 1e-5).caps())}
        second = next(
            b for k, b in installation.journal.links if k == "transition" and b["row"] == 4
        )
        located(second, "over the cap")

    @pytest.mark.parametrize(
        ("sequence", "change", "why"),
        [
            (2, {"state": "COMMITTED"}, "from RESERVED to COMMITTED"),
            (3, {"state": "RELEASED"}, "from STARTED to RELEASED"),
            (3, {"sequence": 5}, "goes from STARTED"),
            (2, {"epoch": 2}, "goes to epoch 2"),
            (2, {"head": "ab" * 32}, "anchors a head"),
        ],
    )
    def test_a_state_that_cannot_follow(self, installation, located, sequence, change, why):
        body = installation.journal.find("transition", row=1, sequence=sequence)
        body.update(change)
        located(body, why)

    @pytest.mark.parametrize("change", [{"steps": 5}, {"epoch": 2}])
    def test_a_counter_out_of_range(self, installation, located, change):
        body = installation.journal.find("count", row=1)
        body.update(change)
        located(body, "counts")

    @pytest.mark.parametrize("changed", [{"ledger": "0"}, {"from": 1.0}, {"block": HOLDOUT}])
    def test_a_raise_that_its_statement_does_not_name(self, installation, located, changed):
        located(raise_cap(installation, 80.0, **changed), "does not name this raise")

    def test_a_raise_signed_by_another_key(self, installation, located):
        body = raise_cap(installation, 80.0, signer=Ed25519PrivateKey.generate())
        located(body, "not signed by the key it names")

    def test_a_cap_that_is_lowered(self, installation, located):
        located(raise_cap(installation, 50.0), "may only be raised")

    def test_a_run_of_another_ledger(self, installation, outcome):
        installation.runs[0][2][1]["ledger"] = "00" * 16
        assert outcome().result == "INVALID"


class TestTampering:
    @pytest.fixture
    def content(self, installation):
        return installation.export().read_bytes()

    @pytest.fixture
    def verify_bytes(self, installation):
        def check(content):
            path = installation.folder / "changed.jsonl"
            path.write_bytes(content)
            return verify_files([], installation.public, export=path)

        return check

    def test_a_changed_byte_is_located(self, content, verify_bytes):
        for index in range(0, len(content) - 1, 97):
            changed = content[:index] + bytes([content[index] ^ 1]) + content[index + 1 :]
            report = verify_bytes(changed)
            assert report.result == "INVALID"
            assert report.data["failures"][0]["entry"] == content[:index].count(b"\n")

    @pytest.mark.parametrize("dropped", [0, 1, 5, 20])
    def test_a_dropped_link_is_located(self, content, verify_bytes, dropped):
        lines = content.splitlines(keepends=True)
        del lines[dropped]
        report = verify_bytes(b"".join(lines))
        assert report.data["failures"][0]["entry"] == dropped

    def test_a_cut_end_is_found(self, content, verify_bytes):
        lines = content.splitlines(keepends=True)
        assert "cut off" in verify_bytes(b"".join(lines[:-1])).data["failures"][0]["why"]

    def test_an_end_signed_by_another_key_is_found(self, installation):
        path = installation.folder / "forged.jsonl"
        installation.journal.write(path, key=Ed25519PrivateKey.generate())
        report = verify_files([], installation.public, export=path)
        assert "not signed by this key" in report.data["failures"][0]["why"]

    def test_a_missing_export_is_invalid(self, installation):
        missing = installation.folder / "none.jsonl"
        assert verify_files([], installation.public, export=missing).result == "INVALID"
