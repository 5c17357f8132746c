"""Blocks that retire, caps that are raised by a signed statement, and the filter of every component."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from storage.chain import canonical
from storage.errors import BlockRetired, BudgetRefused, LedgerError
from storage.evidence import public_key


@pytest.fixture
def signed(ledger, block):
    """Arguments of a raise from 2 to 3; keywords change what is stated."""
    key = Ed25519PrivateKey.generate()

    def make(to=3.0, caps=(150, 90), **changes):
        statement = {
            "ledger": ledger.id,
            "block": block.name,
            "from": 2.0,
            "to": to,
            "reason": "decided by the board",
            "day": "2030-01-01",
            **changes,
        }
        return {
            "epsilon_cap": to,
            "caps": caps,
            "statement": statement,
            "public_key": public_key(key),
            "signature": base64.b64encode(key.sign(canonical(statement).encode())).decode(),
        }

    return make


class TestRetire:
    def test_a_retired_block_admits_nothing(self, ledger, block, reserve):
        ledger.retire(block.name)
        with pytest.raises(BlockRetired) as refused:
            reserve()
        assert refused.value.block == block.name

    def test_twice_is_once(self, ledger, block):
        ledger.retire(block.name, note="left the window")
        ledger.retire(block.name)
        (policy,) = ledger.policies()
        assert (policy.action, policy.note, policy.day) == (
            "retire",
            "left the window",
            "2030-01-01",
        )
        assert ledger.balances()[0].retired

    def test_what_was_reserved_before_still_runs(self, ledger, block, reserve):
        row = reserve()
        ledger.retire(block.name)
        ledger.commit(ledger.start(row))
        ledger.verify()

    def test_an_unknown_block_is_refused(self, ledger):
        with pytest.raises(LedgerError, match="not open"):
            ledger.retire("reviews/1900")


class TestRaiseCap:
    def test_the_balance_shows_the_new_cap_and_discloses_the_raise(self, ledger, block, signed):
        ledger.raise_cap(block.name, **signed())
        (balance,) = ledger.balances()
        assert (balance.block.epsilon_cap, balance.block.caps) == (3.0, (150, 90))
        assert balance.opened_cap == 2.0
        assert [p.note for p in balance.raised] == ["decided by the board"]
        ledger.verify()

    def test_admits_up_to_the_new_cap(self, ledger, block, reserve, signed):
        with pytest.raises(BudgetRefused):
            reserve(costs=(150, 90))
        ledger.raise_cap(block.name, **signed())
        reserve(costs=(150, 90))
        with pytest.raises(BudgetRefused):
            reserve(costs=(1, 1))

    @pytest.mark.parametrize(
        "changes",
        [
            {"to": 2.0},
            {"to": 1.0},
            {"caps": (99, 90)},
            {"caps": (150,)},
            {"ledger": "another"},
            {"block": "reviews/2031"},
            {"from": 1.0},
        ],
    )
    def test_anything_else_than_stated_or_higher_is_refused(self, ledger, block, signed, changes):
        with pytest.raises(LedgerError):
            ledger.raise_cap(block.name, **signed(**changes))
        assert ledger.policies() == []

    @pytest.mark.parametrize("signature", ["", "AAAA", base64.b64encode(bytes(64)).decode()])
    def test_without_its_signature_is_refused(self, ledger, block, signed, signature):
        with pytest.raises(LedgerError, match="signature"):
            ledger.raise_cap(block.name, **{**signed(), "signature": signature})

    def test_on_a_retired_block_is_refused(self, ledger, block, signed):
        ledger.retire(block.name)
        with pytest.raises(LedgerError, match="retired"):
            ledger.raise_cap(block.name, **signed())


class TestEveryComponent:
    @pytest.fixture
    def block(self, ledger, make_block):
        opened = make_block(filter="agdp", orders=())
        ledger.open_block(opened)
        return opened

    @pytest.mark.parametrize("costs", [(101, 1), (1, 61)])
    def test_one_that_does_not_fit_refuses(self, reserve, costs):
        with pytest.raises(BudgetRefused):
            reserve(costs=costs)

    def test_all_fit_up_to_the_caps(self, reserve):
        reserve(costs=(100, 60))

    def test_an_exact_gaussian_costs_no_delta(self, ledger, reserve):
        reserve(costs=(100, 0))
        assert ledger.balances()[0].reserved == (100, 0)

    def test_a_charge_without_mu_is_refused(self, reserve):
        with pytest.raises(LedgerError, match=">= 1 and >= 0"):
            reserve(costs=(0, 1))

    def test_restricted_rows_cost_nothing(self, ledger, reserve):
        row = reserve(costs=(0, 0), kind="restricted")
        ledger.commit(ledger.start(row, kind="restricted"))
        assert ledger.balances()[0].spent == (0, 0)
        ledger.verify()

    def test_orders_are_refused(self, ledger, make_block):
        with pytest.raises(LedgerError, match="orders"):
            ledger.open_block(make_block("reviews/2031", filter="agdp"))


class TestOperator:
    def test_spend_ends_a_started_row_at_full_charge(self, ledger, reserve):
        row = reserve()
        ledger.start(row)
        ledger.spend(row, note="the machine burnt")
        assert ledger.history()[0].state == "SPENT"
        assert ledger.balances()[0].spent == (10, 10)

    def test_only_a_started_row_can_be_spent(self, ledger, reserve):
        with pytest.raises(LedgerError, match="RESERVED"):
            ledger.spend(reserve(), note="gone")

    def test_what_a_lost_ledger_spent_is_booked_over_the_cap(self, ledger, block, make_charge):
        order = {"flow_run_id": "lost", "run_count": 1, "note": "restored backup"}
        rows = ledger.record_spent([make_charge(costs=(500, 500))], **order)
        assert ledger.record_spent([make_charge(costs=(500, 500))], **order) == rows
        assert ledger.balances()[0].spent == (500, 500)
        ledger.verify()
