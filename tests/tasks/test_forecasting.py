"""Forecasts: runs left in whole units, what binds, and the day a schedule runs dry."""

from __future__ import annotations

from datetime import date

import pytest

from storage.ledger import Balance, Block
from tasks.forecasting import Outlook, outlook, runs_dry


def balance(caps, spent, *, orders=(), retired=False):
    block = Block(
        name="b", dataset="d", role="train", unit="record", claim="record", relation="add/remove",
        filter="renyi" if orders else "agdp", orders=orders, epsilon_cap=1.0, delta=1e-5,
        caps=caps, declared_units=1000,
    )  # fmt: skip
    zero = (0,) * len(caps)
    return Balance(block=block, spent=spent, reserved=zero, opened_cap=1.0, retired=retired)


def test_every_component_of_the_gaussian_filter_must_last():
    assert outlook(balance((100, 50), (10, 0)), (10, 25)) == Outlook(2, "δ₀")
    assert outlook(balance((100, 50), (10, 0)), (30, 0)) == Outlook(3, "μ²")


def test_the_longest_lasting_order_of_the_renyi_filter_counts():
    assert outlook(balance((100, 50), (10, 0), orders=(2, 4)), (10, 25)) == Outlook(9, "order 2")


def test_an_overdrawn_block_has_no_run_left():
    assert outlook(balance((10, 10), (12, 12), orders=(2, 4)), (1, 1)).runs == 0


def test_a_retired_block_has_no_run_left():
    assert outlook(balance((100, 50), (0, 0), retired=True), (1, 1)) == Outlook(0, "retired")


def test_what_costs_nothing_never_ends():
    assert outlook(balance((100, 50), (0, 0)), (0, 0)).runs is None


@pytest.mark.parametrize(
    ("every", "runs", "day"),
    [
        ("month", 1, date(2027, 2, 28)),
        ("month", 14, date(2028, 3, 31)),
        ("week", 2, date(2027, 2, 14)),
        ("10", 3, date(2027, 3, 2)),
        ("10 days", 0, date(2027, 1, 31)),
        ("month", 10**6, date.max),
        ("week", 10**7, date.max),
    ],
)
def test_the_first_run_that_does_not_fit_has_a_day(every, runs, day):
    assert runs_dry(date(2027, 1, 31), every, runs) == day


@pytest.mark.parametrize("every", ["", "0", "-3", "1.5", "year", "9999"])
def test_no_interval_is_refused(every):
    with pytest.raises(ValueError, match="--every must be"):
        runs_dry(date(2027, 1, 1), every, 1)
