"""64 processes race for a block that can pay for exactly k of them: exactly k are admitted.

In every second round the request debits three blocks, and half of the racers name them in the opposite
order: none waits for another for ever, and each block is debited k times or the request not at all.
"""

from __future__ import annotations

import random

import pytest
from scenarios import block

from storage.ledger import Ledger

RACERS = 64
COST = 7


@pytest.fixture
def race(new_url, helper):
    """Runs rounds between processes that stay up."""
    url = new_url()
    ledger = Ledger(url)
    with helper("racers.py", url, RACERS) as racers:

        def run(number, *, k, **terms):
            names = [f"round-{number}/{part}" for part in range(3 if number % 2 else 1)]
            tight = number % len(names)
            for index, name in enumerate(names):
                ledger.open_block(block(name, **caps(k + (0 if index == tight else 9), **terms)))
            asked = [[name, [COST, 1]] for name in names]
            said = racers.ask({"round": f"r{number}", "charges": [asked, asked[::-1]]})
            found = {b.block.name: b for b in ledger.balances()}
            return said, [found[name] for name in names]

        yield run


def caps(k, *, filter):  # noqa: A002 - the field's own name
    """Terms that pay for `k` charges of (COST, 1)."""
    if filter == "renyi":  # the larger order alone decides
        return {"caps": (COST * k + COST - 1, -5)}
    return {"filter": "agdp", "orders": (), "caps": (COST * k + COST - 1, 1000)}


def check(race, rounds):
    chance = random.Random(20300101)
    for number in range(rounds):
        k = chance.randint(1, RACERS - 1)
        said, balances = race(number, k=k, filter=("renyi", "agdp", "agdp", "renyi")[number % 4])
        assert sorted(said) == ["admitted"] * k + ["refused"] * (RACERS - k)
        for balance in balances:
            assert (balance.spent, balance.reserved) == ((COST * k, k), (0, 0))


def test_exactly_k_are_admitted(race):
    check(race, 2)


@pytest.mark.exhaustive
def test_exactly_k_are_admitted_in_200_rounds(race):
    check(race, 200)


def test_a_racer_that_fails_shows(new_url, helper):
    url = new_url()
    with helper("racers.py", url, 2) as racers:
        said = racers.ask({"round": "r", "charges": [[["nowhere", [1, 1]]], "no charge"]})
    assert "nowhere" in said[0] or said[0] == "ready"
    assert said[1].endswith("died")
