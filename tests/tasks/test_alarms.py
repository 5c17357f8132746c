"""Alarms: every threshold that a reservation crosses is told, and no failure to tell ends a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from privacy.accounting import GaussianFilter, RenyiFilter
from storage.ledger import Balance, Block
from tasks import alarms
from tasks.balances import passed

GATE = RenyiFilter(1.0, 1e-5)


def balance(share):
    block = Block(
        name="b", dataset="d", role="train", unit="record", claim="record", relation="add/remove",
        filter="renyi", orders=GATE.orders, epsilon_cap=1.0, delta=1e-5, caps=GATE.caps(),
        declared_units=1000,
    )  # fmt: skip
    zero = (0,) * len(block.caps)
    empty = Balance(block=block, spent=zero, reserved=zero, opened_cap=1.0)
    if not share:
        return empty
    low, high = 0.0, 1.0
    for _ in range(50):  # the part of each cap whose ε is the share asked for
        part = (low + high) / 2
        used = tuple(max(1, int(c * part)) for c in block.caps)
        low, high = (part, high) if GATE.epsilon_of(used) < share else (low, part)
    return replace(empty, reserved=tuple(max(1, int(c * high)) for c in block.caps))


@pytest.mark.parametrize(
    ("share", "code"), [(0.0, 0), (0.4999, 0), (0.5, 50), (0.8, 80), (0.95, 95), (1.2, 95)]
)
def test_a_share_has_passed_the_highest_threshold_below_it(share, code):
    assert passed(share) == code


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (0, 0.45, []),
        (0.45, 0.6, [50]),
        (0.45, 0.97, [50, 80, 95]),
        (0.6, 0.7, []),
        (0.9, 0.97, [95]),
    ],
)
def test_each_threshold_is_told_when_it_is_crossed_and_not_again(before, after, told):
    assert alarms.crossed(balance(before), balance(after)) == told


def test_many_small_releases_are_told_of_before_their_leak_is_used_up():
    gate = GaussianFilter(8.0, 1e-5)
    _, leak = gate.caps()
    block = replace(balance(0).block, filter="agdp", orders=(), epsilon_cap=8.0, caps=gate.caps())
    told = []
    for part in range(25):
        before, after = (
            Balance(block=block, spent=(k, k * leak // 25), reserved=(0, 0), opened_cap=8.0)
            for k in (part, part + 1)
        )
        told += alarms.crossed(before, after)
    assert told == [50, 80, 95]


def test_an_event_names_the_block_and_ledger_figures_only(monkeypatch):
    sent = []
    monkeypatch.setattr(alarms, "emit_event", lambda name, **more: sent.append((name, more)))
    alarms.sound([balance(0.45)], [balance(0.6)])
    ((name, more),) = sent
    assert name == "dpmix.budget.50"
    assert more["resource"] == {"prefect.resource.id": "dpmix.block.b"}
    assert set(more["payload"]) == {"cap", "spent", "reserved", "remaining", "shows"}


def test_an_event_that_cannot_be_sent_fails_nothing(monkeypatch, caplog):
    def broken(*_args, **_more):
        raise OSError("no server")

    monkeypatch.setattr(alarms, "emit_event", broken)
    alarms.sound([balance(0.45)], [balance(0.6)])
    assert "could not be sent" in caplog.text
