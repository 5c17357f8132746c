"""A ledger of the first revision, with a history in it, becomes one of the newest: nothing is lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

import storage.ledger
from storage.errors import LedgerError
from storage.ledger import Ledger, schema

START = datetime(2029, 5, 1, tzinfo=UTC)
# (row, kind, states with epochs, steps counted by epoch)
ROWS = [
    (1, "charged", [("RESERVED", 0), ("STARTED", 1), ("COMMITTED", 1)], [(1, 50), (1, 100)]),
    (2, "charged", [("RESERVED", 0), ("RELEASED", 0)], []),
    (
        3,
        "charged",
        [("RESERVED", 0), ("STARTED", 1), ("STARTED", 2), ("SPENT", 2)],
        [(1, 10), (2, 60)],
    ),
    (4, "restricted", [("RESERVED", 0), ("STARTED", 1), ("COMMITTED", 1)], []),
    (5, "charged", [("RESERVED", 0)], []),
    (6, "charged", [("RESERVED", 0), ("STARTED", 1)], []),
]


def migrations(connection):
    config = Config()
    folder = Path(storage.ledger.__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder))
    config.attributes["connection"] = connection
    return config


@pytest.fixture(params=["forwards", "backwards"])
def old_url(request, url):
    """A database at revision 0001 whose clock ran forwards, or backwards from line to line."""
    engine = sa.create_engine(url)
    ticks = [START]

    def tick():
        ticks.append(ticks[-1] + timedelta(minutes=1 if request.param == "forwards" else -1))
        return ticks[-1]

    with engine.begin() as connection:
        command.upgrade(migrations(connection), "0001")
        fill(connection, tick)
        if connection.dialect.name == "postgresql":
            # The rows above brought their numbers; the first revision drew them from here.
            connection.exec_driver_sql(f"SELECT setval('reservations_row_seq', {len(ROWS)})")
    engine.dispose()
    return url


def fill(connection, tick):
    def insert(table, **values):
        known = schema.metadata.tables[table]
        columns = [sa.column(n, known.c[n].type) for n in values]
        connection.execute(sa.table(table, *columns).insert().values(**values))

    far = datetime(2031, 1, 1, tzinfo=UTC)
    insert("ledger", id="ab" * 16, created_at=tick())
    for name in ("reviews/a", "reviews/b"):
        insert(
            "blocks", name=name, dataset="reviews", role="train", unit="record", claim="record",
            relation="add/remove", filter="renyi", orders=[2, 8], epsilon_cap=2.0, delta=1e-5,
            caps=[1000, 1000], declared_units=4000, opened_at=tick(),
        )  # fmt: skip
    for row, kind, states, counted in ROWS:
        insert(
            "reservations", row=row, flow_run_id=f"run-{row}", run_count=1, purpose="model", kind=kind,
            mechanism={"kind": "gaussian", "noise_multiplier": 1.5}, epsilon=0.1, delta=1e-5,
            steps=100, created_at=tick(), expires_at=far,
        )  # fmt: skip
        for name in ("reviews/a", "reviews/b")[: 1 + row % 2]:
            cost = [7 * row, 5 * row] if kind == "charged" else [0, 0]
            insert("debits", row=row, block=name, costs=cost)
        for sequence, (state, epoch) in enumerate(states, start=1):
            insert(
                "transitions", row=row, sequence=sequence, state=state, epoch=epoch, token_hash="",
                deadline=far, note="", at=tick(),
            )  # fmt: skip
        for epoch, steps in counted:
            insert("counters", row=row, epoch=epoch, steps=steps, at=tick())


def test_a_first_ledger_is_told_again_whole(old_url, clock):
    ledger = Ledger(old_url, now=clock)
    head = ledger.verify()
    assert head == ledger.head()
    spent = {b.block.name: b.spent for b in ledger.balances()}
    reserved = {b.block.name: b.reserved for b in ledger.balances()}
    # Spent: rows 1, 3 and 6. Reserved: row 5. Odd rows debit both blocks.
    assert spent == {"reviews/a": (70, 50), "reviews/b": (28, 20)}
    assert reserved == {"reviews/a": (35, 25), "reviews/b": (35, 25)}
    assert [e.state for e in ledger.history()] == [states[-1][0] for _, _, states, _ in ROWS]
    assert [e.steps_counted for e in ledger.history()] == [100, 0, 60, 0, 0, 0]


def test_it_goes_on_from_there(old_url, clock, make_charge):
    ledger = Ledger(old_url, now=clock)
    ledger.commit(ledger.start(5))
    (row,) = ledger.reserve([make_charge("reviews/a")], flow_run_id="next", run_count=1)
    ledger.count(ledger.start(row), 10)
    assert ledger.verify().sequence > 20
    with pytest.raises(LedgerError, match="reserved already"):
        ledger.reserve([make_charge("reviews/a")], flow_run_id="run-1", run_count=1)


def test_there_is_no_way_back(url, ledger):
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        back = migrations(connection)
        with pytest.raises(RuntimeError, match="append-only"):
            command.downgrade(back, "0001")
    engine.dispose()
