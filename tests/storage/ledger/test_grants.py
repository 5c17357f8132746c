"""Who may write and read: fencing by epoch, grants, and the counter of steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.errors import FencedOut, GrantRefused, LedgerError
from storage.ledger import Ledger


def position(ledger):
    (balance,) = ledger.balances()
    return balance.spent, balance.reserved


class TestFencing:
    def test_a_resume_fences_the_former_holder_out(self, ledger, block, reserve):
        row = reserve()
        old = ledger.start(row)
        new = ledger.resume(row)
        assert new.epoch > old.epoch
        for use in (
            lambda: ledger.count(old, 1),
            lambda: ledger.commit(old),
            lambda: ledger.check_grant(old, block.name),
        ):
            with pytest.raises(FencedOut, match="epoch 2; this process holds epoch 1"):
                use()
        ledger.count(new, 1)
        ledger.commit(new)

    def test_nothing_is_written_after_the_end(self, ledger, reserve):
        grant = ledger.start(reserve())
        ledger.commit(grant)
        for use in (lambda: ledger.count(grant, 1), lambda: ledger.commit(grant)):
            with pytest.raises(FencedOut, match="COMMITTED"):
                use()

    def test_a_resume_costs_nothing_more(self, ledger, reserve):
        row = reserve()
        ledger.start(row)
        ledger.resume(row)
        assert position(ledger) == ((10, 10), (0, 0))


class TestGrants:
    def test_opens_the_rows_own_blocks(self, ledger, block, reserve):
        grant = ledger.start(reserve())
        assert grant.blocks == (block.name,)
        ledger.check_grant(grant, block.name)

    def test_of_another_block_is_refused(self, ledger, make_block, reserve):
        ledger.open_block(make_block("reviews/2031"))
        grant = ledger.start(reserve())
        for forged in (grant, replace(grant, blocks=("reviews/2031",))):
            with pytest.raises(GrantRefused, match="no access to block reviews/2031"):
                ledger.check_grant(forged, "reviews/2031")

    def test_of_another_row_is_refused(self, ledger, block, reserve):
        mine, other = ledger.start(reserve()), ledger.start(reserve())
        with pytest.raises(GrantRefused, match="not the one handed out"):
            ledger.check_grant(replace(mine, row=other.row), block.name)

    @pytest.mark.parametrize("token", ["", "0" * 64])
    def test_with_another_token_is_refused(self, ledger, block, reserve, token):
        grant = replace(ledger.start(reserve()), token=token)
        for use in (
            lambda: ledger.check_grant(grant, block.name),
            lambda: ledger.count(grant, 1),
            lambda: ledger.commit(grant),
        ):
            with pytest.raises(GrantRefused):
                use()

    def test_of_a_reservation_that_never_started_is_refused(self, ledger, block, reserve):
        row = reserve()
        grant = replace(ledger.start(reserve()), row=row, epoch=0, token="")
        with pytest.raises(FencedOut, match="RESERVED"):
            ledger.check_grant(grant, block.name)

    def test_of_another_ledger_is_refused(self, ledger, block, reserve, new_url, clock):
        grant = ledger.start(reserve())
        with pytest.raises(LedgerError):
            Ledger(new_url(), now=clock).check_grant(grant, block.name)

    def test_the_database_does_not_hold_the_token(self, url, ledger, reserve, tmp_path):
        grant = ledger.start(reserve())
        if url.startswith("sqlite"):
            stored = b"".join(p.read_bytes() for p in tmp_path.iterdir())
            assert grant.token.encode() not in stored


class TestCounter:
    def test_shows_in_the_history(self, ledger, reserve):
        row = reserve()
        grant = ledger.start(row)
        for steps in (10, 20, 100):
            ledger.count(grant, steps)
        assert ledger.history()[0].steps_counted == 100

    def test_never_exceeds_what_was_paid_for(self, ledger, reserve):
        grant = ledger.start(reserve(steps=100))
        with pytest.raises(LedgerError, match="100"):
            ledger.count(grant, 101)

    @pytest.mark.parametrize("steps", [-1, 10, 5])
    def test_only_rises(self, ledger, reserve, steps):
        grant = ledger.start(reserve())
        ledger.count(grant, 10)
        with pytest.raises(LedgerError):
            ledger.count(grant, steps)

    def test_does_not_fall_back_when_a_run_is_resumed(self, ledger, reserve):
        row = reserve()
        ledger.count(ledger.start(row), 50)
        with pytest.raises(LedgerError):
            ledger.count(ledger.resume(row), 40)
