"""The gate: caps, single-use starts, what stays charged, fencing, grants."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest

from storage.errors import (
    BudgetRefused,
    FencedOut,
    LedgerError,
    ReservationExpired,
)
from storage.ledger import Ledger

HOUR = timedelta(hours=1)


def state(ledger, row):
    return {e.row: e for e in ledger.history()}[row].state


def position(ledger, name="reviews/2030"):
    (balance,) = [b for b in ledger.balances() if b.block.name == name]
    return balance.spent, balance.reserved


class TestIdentity:
    def test_a_ledger_keeps_its_id(self, url, ledger):
        assert Ledger(url).id == ledger.id

    def test_two_ledgers_have_two_ids(self, new_url):
        assert Ledger(new_url()).id != Ledger(new_url()).id

    @pytest.mark.parametrize("wrong", ["nonsense", "", "://"])
    def test_a_url_that_is_none_is_refused(self, wrong):
        with pytest.raises(LedgerError, match="no database URL"):
            Ledger(wrong)

    def test_a_file_that_is_no_database_is_refused(self, tmp_path):
        path = tmp_path / "ledger.db"
        path.write_bytes(b"these are not the tables you are looking for" * 100)
        with pytest.raises(LedgerError, match="DPMIX_LEDGER_URL"):
            Ledger(f"sqlite:///{path}")


class TestBlocks:
    def test_a_block_reads_as_it_was_opened(self, ledger, block):
        assert ledger.blocks("reviews") == [block]

    def test_opening_it_again_changes_nothing(self, ledger, block):
        ledger.open_block(block)
        assert ledger.blocks("reviews") == [block]

    @pytest.mark.parametrize(
        ("name", "value"),
        [("epsilon_cap", 3.0), ("caps", (10**9, 10**9)), ("delta", 1e-4), ("declared_units", 1)],
    )
    def test_its_terms_are_frozen(self, ledger, block, name, value):
        with pytest.raises(LedgerError, match="terms are frozen"):
            ledger.open_block(replace(block, **{name: value}))

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("caps", (math.inf, math.inf)),
            ("caps", (100.5, 60)),
            ("caps", (100,)),
            ("epsilon_cap", math.nan),
            ("epsilon_cap", math.inf),
            ("epsilon_cap", -1.0),
            ("delta", math.nan),
        ],
    )
    def test_terms_that_are_no_numbers_are_refused(self, ledger, make_block, name, value):
        with pytest.raises(LedgerError):
            ledger.open_block(make_block(**{name: value}))

    def test_blocks_of_another_dataset_are_not_listed(self, ledger, block, make_block):
        ledger.open_block(make_block("letters/all", dataset="letters"))
        assert [b.name for b in ledger.blocks("letters")] == ["letters/all"]


class TestReserve:
    def test_holds_the_cost_back(self, ledger, reserve):
        reserve(costs=(10, 20))
        assert position(ledger) == ((0, 0), (10, 20))

    def test_a_request_may_use_a_block_up_exactly(self, ledger, reserve):
        reserve(costs=(100, 10**9))
        assert position(ledger)[1] == (100, 10**9)

    def test_one_unit_more_is_refused_with_the_position(self, ledger, reserve):
        ledger.start(reserve(costs=(30, 30)))
        reserve(costs=(40, 20))
        with pytest.raises(BudgetRefused) as refused:
            reserve(costs=(31, 11))
        assert refused.value.block == "reviews/2030"
        assert refused.value.spent == (30, 30)
        assert refused.value.reserved == (40, 20)
        assert refused.value.used == (70, 50)
        assert refused.value.asked == (31, 11)

    def test_one_order_within_its_cap_is_enough(self, reserve):
        reserve(costs=(1000, 60))

    def test_the_cap_must_hold_at_one_order_for_everything_together(self, reserve):
        reserve(costs=(100, 50))
        with pytest.raises(BudgetRefused):
            reserve(costs=(1, 11))

    def test_charges_of_one_request_are_added_up(self, ledger, block, make_charge):
        charges = [make_charge(purpose=p, costs=(51, 31)) for p in ("mixed", "private only")]
        with pytest.raises(BudgetRefused) as refused:
            ledger.reserve(charges, flow_run_id="a", run_count=1)
        assert refused.value.asked == (102, 62)
        assert ledger.history() == []

    def test_is_all_or_nothing_over_blocks(self, ledger, block, make_block, make_charge):
        ledger.open_block(make_block("reviews/2031", caps=(5, 5)))
        with pytest.raises(BudgetRefused) as refused:
            ledger.reserve(
                [make_charge("reviews/2030", "reviews/2031")], flow_run_id="a", run_count=1
            )
        assert refused.value.block == "reviews/2031"
        assert ledger.history() == []
        assert position(ledger) == ((0, 0), (0, 0))

    def test_charges_every_block_that_it_names(self, ledger, make_block, reserve):
        ledger.open_block(make_block("reviews/2031"))
        reserve("reviews/2030", "reviews/2031", costs=(7, 8))
        assert position(ledger) == position(ledger, "reviews/2031") == ((0, 0), (7, 8))

    def test_a_refused_run_may_ask_again_under_its_key(self, reserve):
        with pytest.raises(BudgetRefused):
            reserve(costs=(101, 61), run="a")
        reserve(run="a")

    def test_the_same_run_key_twice_is_refused(self, reserve, ledger):
        reserve(run="a")
        with pytest.raises(LedgerError, match=r"\(a, 1\) has reserved already"):
            reserve(run="a")
        assert len(ledger.history()) == 1

    def test_the_same_run_key_for_another_purpose_is_refused(self, reserve, ledger):
        reserve(run="a")
        with pytest.raises(LedgerError, match="reserved already"):
            reserve(run="a", purpose="second helping")

    def test_an_unknown_block_is_refused(self, reserve):
        with pytest.raises(LedgerError, match="block letters/all is not open"):
            reserve("letters/all")

    @pytest.mark.parametrize(
        "costs",
        [
            (0, 1),
            (-5, 10),
            (1.5, 2),
            (math.nan, 1),
            (math.inf, 1),
            (True, 1),
            (1,),
            (1, 2, 3),
            (),
            (5e-324, 1),
        ],
    )
    def test_costs_that_are_no_whole_units_are_refused(self, reserve, ledger, costs):
        with pytest.raises(LedgerError, match="whole units"):
            reserve(costs=costs)
        assert ledger.history() == []

    def test_a_charge_that_names_no_block_is_refused(self, ledger, block, make_charge):
        with pytest.raises(LedgerError, match="name a block"):
            ledger.reserve([replace(make_charge(), costs={})], flow_run_id="a", run_count=1)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("epsilon", math.nan), ("epsilon", math.inf), ("delta", math.nan), ("steps", -1)],
    )
    def test_a_charge_with_a_number_out_of_range_is_refused_as_such(self, reserve, name, value):
        with pytest.raises(LedgerError, match=name):
            reserve(**{name: value})

    def test_a_restricted_read_costs_nothing_and_must_say_so(self, ledger, reserve):
        reserve(kind="restricted", costs=(0, 0))
        assert position(ledger) == ((0, 0), (0, 0))
        with pytest.raises(LedgerError, match="0 if restricted"):
            reserve(kind="restricted", costs=(1, 1))

    def test_a_row_of_another_kind_is_not_started(self, ledger, reserve):
        row = reserve(kind="restricted", costs=(0, 0))
        with pytest.raises(
            LedgerError, match=r"is restricted, and a charged read.*publish nothing"
        ):
            ledger.start(row)
        assert ledger.start(row, kind="restricted").kind == "restricted"

    def test_a_request_for_nothing_is_refused(self, ledger):
        with pytest.raises(LedgerError, match="at least one charge"):
            ledger.reserve([], flow_run_id="f", run_count=1)

    @pytest.mark.parametrize("value", [math.nan, math.inf, object()])
    def test_a_mechanism_that_json_cannot_say_is_refused(self, reserve, value):
        with pytest.raises(LedgerError, match="mechanism of charge"):
            reserve(mechanism={"noise": value})

    def test_integers_beyond_floating_point_are_exact(self, ledger, make_block, reserve):
        cap = 2**60 + 1
        ledger.open_block(make_block("reviews/big", caps=(cap, cap)))
        reserve("reviews/big", costs=(2**60, 2**60))
        reserve("reviews/big", costs=(1, 1))
        with pytest.raises(BudgetRefused):
            reserve("reviews/big", costs=(1, 1))


class TestStart:
    def test_charges_before_anything_is_read(self, ledger, reserve):
        ledger.start(reserve())
        assert position(ledger) == ((10, 10), (0, 0))

    def test_is_single_use(self, ledger, reserve):
        row = reserve()
        ledger.start(row)
        with pytest.raises(LedgerError, match="is STARTED: it can be started once"):
            ledger.start(row)

    def test_an_expired_reservation_is_refused_and_given_back(self, ledger, reserve, clock):
        row = reserve(costs=(100, 60))
        clock.advance(hours=1)
        with pytest.raises(ReservationExpired, match=rf"reservation {row} expired.*Start the run"):
            ledger.start(row)
        assert state(ledger, row) == "RELEASED"
        reserve(costs=(100, 60))

    def test_a_reservation_that_expires_while_it_is_being_started_is_refused(
        self, url, ledger, reserve, clock
    ):
        row = reserve()

        def ticking():
            clock.advance(minutes=40)
            return clock()

        # 40 minutes at the first look at the clock, 80 at the second: the hour is over by then.
        with pytest.raises(ReservationExpired):
            Ledger(url, now=ticking).start(row)

    def test_an_unknown_row_is_refused(self, ledger, block):
        with pytest.raises(LedgerError, match="no reservation 99"):
            ledger.start(99)

    @pytest.mark.parametrize("end", ["release", "commit"])
    def test_a_row_that_has_ended_is_refused(self, ledger, reserve, end):
        row = reserve()
        if end == "commit":
            ledger.commit(ledger.start(row))
        else:
            ledger.release(row)
        with pytest.raises(LedgerError, match="Reserve again"):
            ledger.start(row)


class TestWhatStaysCharged:
    def test_a_started_row_past_its_deadline_reads_spent_and_stays_charged(
        self, ledger, reserve, clock
    ):
        row = reserve()
        ledger.start(row, ttl=HOUR)
        clock.advance(hours=2)
        assert position(ledger) == ((10, 10), (0, 0))
        assert state(ledger, row) == "SPENT"

    def test_another_process_sees_it_too(self, url, ledger, reserve, clock):
        row = reserve()
        ledger.start(row, ttl=HOUR)
        clock.advance(hours=2)
        assert state(Ledger(url, now=clock), row) == "SPENT"

    def test_a_commit_keeps_the_full_charge(self, ledger, reserve):
        row = reserve()
        grant = ledger.start(row)
        ledger.count(grant, 1)
        ledger.commit(grant)
        assert state(ledger, row) == "COMMITTED"
        assert position(ledger) == ((10, 10), (0, 0))

    def test_only_a_reservation_can_be_released(self, ledger, reserve, clock):
        started, committed, released = reserve(), reserve(), reserve()
        ledger.start(started)
        ledger.commit(ledger.start(committed))
        ledger.release(released)
        for row in (started, committed, released):
            with pytest.raises(LedgerError, match="only RESERVED can be released"):
                ledger.release(row)
        clock.advance(days=2)
        with pytest.raises(LedgerError, match=r"is .*only RESERVED"):
            ledger.release(started)

    def test_a_release_gives_everything_back(self, ledger, reserve):
        ledger.release(reserve(costs=(100, 60)))
        assert position(ledger) == ((0, 0), (0, 0))

    def test_a_spent_row_cannot_be_taken_up_again(self, ledger, reserve, clock):
        row = reserve()
        ledger.start(row, ttl=HOUR)
        clock.advance(hours=2)
        with pytest.raises(LedgerError, match="only STARTED can be resumed"):
            ledger.resume(row)

    def test_nothing_is_written_for_a_row_past_its_deadline(self, ledger, reserve, clock):
        # Nobody else has looked at the ledger in between.
        grant = ledger.start(reserve(), ttl=HOUR)
        clock.advance(hours=2)
        for write in (lambda: ledger.count(grant, 1), lambda: ledger.commit(grant)):
            with pytest.raises(FencedOut):
                write()

    def test_nothing_is_read_for_a_row_past_its_deadline(self, ledger, block, reserve, clock):
        grant = ledger.start(reserve(), ttl=HOUR)
        clock.advance(hours=2)
        with pytest.raises(FencedOut):
            ledger.check_grant(grant, block.name)


class TestHistory:
    def test_keeps_the_mechanism_of_every_row(self, ledger, reserve):
        row = reserve(mechanism={"kind": "gaussian", "noise_multiplier": 0.7, "unit": "record"})
        (entry,) = ledger.history("reviews")
        assert entry.row == row
        assert entry.mechanism["noise_multiplier"] == 0.7
        assert (entry.epsilon, entry.delta) == (1.0, 1e-5)

    def test_of_another_dataset_is_apart(self, ledger, reserve):
        reserve()
        assert ledger.history("letters") == []

    def test_times_carry_their_zone(self, ledger, reserve, clock):
        reserve()
        assert ledger.history()[0].created_at == clock()
