"""A ledger on each kind of database, a clock that is set by hand, and small charges.

SQLite always; PostgreSQL as well where DPMIX_TEST_POSTGRESQL holds the URL of a server on which this
user may create databases.
"""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from storage.ledger import Block, Charge, Ledger

SERVER = os.environ.get("DPMIX_TEST_POSTGRESQL", "")
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


@pytest.fixture(params=["sqlite", *(["postgresql"] if SERVER else [])])
def new_url(request, tmp_path):
    """Makes the URL of an empty database."""
    if request.param == "sqlite":
        yield lambda: f"sqlite:///{tmp_path / secrets.token_hex(4)}.db"
        return
    server = sa.create_engine(SERVER, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    made = []

    def make():
        made.append(f"ledger_{secrets.token_hex(8)}")
        with server.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {made[-1]}")
        url = sa.engine.make_url(SERVER).set(database=made[-1])
        return url.render_as_string(hide_password=False)

    yield make
    with server.connect() as connection:
        for name in made:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


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
