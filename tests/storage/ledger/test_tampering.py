"""Whoever gets past the triggers is named by `verify`, or shown by a head that was kept elsewhere."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from storage.errors import LedgerError


@pytest.fixture
def change(url):
    """Runs a statement with the triggers out of the way."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)

    def run(statement):
        with engine.begin() as connection:
            if engine.dialect.name == "sqlite":
                named = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
                for (trigger,) in connection.exec_driver_sql(named).all():
                    connection.exec_driver_sql(f"DROP TRIGGER {trigger}")
            else:
                connection.exec_driver_sql("SET session_replication_role = replica")
            connection.exec_driver_sql(statement)

    return run


@pytest.fixture
def history(ledger, block, reserve):
    grant = ledger.start(reserve())
    ledger.count(grant, 50)
    ledger.commit(grant)
    ledger.retire(block.name)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE ledger SET id = 'another'", "table ledger"),
        ("UPDATE blocks SET epsilon_cap = 20", "table blocks"),
        ("UPDATE reservations SET epsilon = 0.1", "table reservations"),
        ("UPDATE debits SET costs = '[1, 1]'", "table debits"),
        ("UPDATE transitions SET state = 'RELEASED' WHERE sequence = 3", "table transitions"),
        ("UPDATE counters SET steps = 10", "table counters"),
        ("UPDATE policies SET note = 'no reason'", "table policies"),
        ("UPDATE positions SET spent = '[0, 0]'", "table positions"),
        ("DELETE FROM positions", "table positions lacks"),
        ("DELETE FROM counters", "table counters lacks"),
        ("DELETE FROM policies", "table policies lacks"),
        ("UPDATE journal SET body = '{}' WHERE sequence = 3", "journal link 3 was changed"),
        ("UPDATE journal SET day = '2031-01-01' WHERE sequence = 3", "journal link 3 was changed"),
        ("DELETE FROM journal WHERE sequence = 3", "journal link 4 does not follow link 2"),
    ],
)
def test_verify_names_what_was_changed(ledger, history, change, statement, named):
    ledger.verify()
    change(statement)
    with pytest.raises(LedgerError, match=named):
        ledger.verify()


def test_a_tail_that_was_cut_off_is_shown_by_a_head_kept_elsewhere(ledger, history, change):
    head = ledger.head()
    change("PRAGMA foreign_keys = OFF" if "sqlite" in ledger.url else "SELECT 1")
    change("DELETE FROM policies")
    change(f"DELETE FROM journal WHERE sequence = {head.sequence}")
    ledger.verify()
    assert not ledger.contains(head)
