"""Three years of monthly retraining over the last twelve months: no block overspends, nothing stops."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from privacy import accounting
from storage.errors import BlockRetired
from storage.ledger import Block, Charge, Ledger

MONTHS, WINDOW, CAP, DELTA = 48, 12, 2.0, 1e-5
GATE = accounting.make_filter("agdp", epsilon=CAP, delta=DELTA)


def month(k):
    return f"{2030 + k // 12}-{k % 12 + 1:02d}"


@pytest.fixture(scope="module")
def event():
    # Twelve runs of ε = 0.5 alone come to just under 2 together.
    return accounting.dpsgd_event(noise_multiplier=4.2, sample_rate=0.05, steps=120)


def simulate(url, event):
    """(ledger, [(month, {block: ε spent})]) of 36 runs, the first when twelve months are there."""
    now = [datetime(2030, 1, 1, tzinfo=UTC)]
    ledger, costs, seen = Ledger(url, now=lambda: now[0]), GATE.costs(event), []
    for k in range(MONTHS):
        now[0] = datetime(2030 + k // 12, k % 12 + 1, 1, tzinfo=UTC)
        ledger.open_block(
            Block(
                name=f"reviews/{month(k)}", dataset="reviews", role="train", unit="record",
                claim="record", relation="add/remove", filter="agdp", orders=(), epsilon_cap=CAP,
                delta=DELTA, caps=GATE.caps(), declared_units=5000,
            )
        )  # fmt: skip
        window = [f"reviews/{month(j)}" for j in range(max(0, k - WINDOW + 1), k + 1)]
        if k < WINDOW:
            continue
        charge = Charge(
            purpose="model", mechanism={"event": accounting.event_to_json(event)},
            epsilon=0.5, delta=DELTA, steps=120, costs=dict.fromkeys(window, costs),
        )  # fmt: skip
        (row,) = ledger.reserve([charge], flow_run_id=f"run-{k}", run_count=1)
        ledger.commit(ledger.start(row))
        ledger.retire(f"reviews/{month(k - WINDOW + 1)}", note="left the window")
        spent = {b.block.name: GATE.epsilon_of(b.spent) for b in ledger.balances()}
        seen.append((month(k), spent))
    return ledger, seen


def test_three_years_of_it(url, event):
    ledger, seen = simulate(url, event)
    assert len(seen) == 36
    for _month, spent in seen:
        assert max(spent.values()) <= CAP
    # A block that went through the whole window has paid for twelve runs, and is nearly used up.
    assert 0.9 * CAP < max(seen[-1][1].values()) <= CAP
    retired = [b for b in ledger.balances() if b.retired]
    assert len(retired) == 36
    charge = Charge(
        purpose="model", mechanism={"event": json.loads("{}")}, epsilon=0.5, delta=DELTA,
        steps=1, costs={retired[0].block.name: GATE.costs(event)},
    )  # fmt: skip
    with pytest.raises(BlockRetired):
        ledger.reserve([charge], flow_run_id="late", run_count=1)
    ledger.verify()


def test_a_thirteenth_run_on_a_full_block_does_not_fit(event):
    used = tuple(12 * c for c in GATE.costs(event))
    assert GATE.admits((0, 0), used)
    assert not GATE.admits(used, GATE.costs(event))
