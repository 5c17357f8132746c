"""A ledger on each kind of database, a clock that is set by hand, and small charges.

SQLite always; PostgreSQL as well where it is installed (`tests/postgresql.py`). A test marked
``only_on("postgresql")`` runs on that kind alone.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta

import pytest

from storage.ledger import Block, Charge, Ledger

CAPS = (100, 60)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.time = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.time

    def advance(self, **amount):
        self.time += timedelta(**amount)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def new_url(database_kind, tmp_path, request):
    """Makes the URL of an empty database of each kind in turn."""
    if database_kind == "postgresql":
        return request.getfixturevalue("new_postgresql_url")
    return lambda: f"sqlite:///{tmp_path / secrets.token_hex(4)}.db"


@pytest.fixture
def url(new_url):
    return new_url()


@pytest.fixture
def ledger(url, clock):
    return Ledger(url, now=clock)


@pytest.fixture(scope="session")
def make_block():
    def make(name="reviews/2030", **changes):
        values = {
            "name": name,
            "dataset": "reviews",
            "role": "train",
            "unit": "record",
            "claim": "record",
            "relation": "add/remove",
            "filter": "renyi",
            "orders": (2, 8),
            "epsilon_cap": 2.0,
            "delta": 1e-5,
            "caps": CAPS,
            "declared_units": 4000,
        }
        return Block(**{**values, **changes})

    return make


@pytest.fixture(scope="session")
def make_charge():
    def make(*blocks, costs=(10, 10), **changes):
        values = {
            "purpose": "model",
            "mechanism": {"kind": "gaussian", "noise_multiplier": 1.0},
            "epsilon": 1.0,
            "delta": 1e-5,
            "steps": 100,
            "costs": dict.fromkeys(blocks or ("reviews/2030",), costs),
        }
        return Charge(**{**values, **changes})

    return make


@pytest.fixture
def block(ledger, make_block):
    opened = make_block()
    ledger.open_block(opened)
    return opened


@pytest.fixture
def reserve(ledger, block, make_charge):
    """Reserves one charge under a key of its own; returns its row."""

    def make(*blocks, costs=(10, 10), run=None, ttl=timedelta(hours=1), **changes):
        (row,) = ledger.reserve(
            [make_charge(*blocks, costs=costs, **changes)],
            flow_run_id=run or secrets.token_hex(4),
            run_count=1,
            ttl=ttl,
        )
        return row

    return make
