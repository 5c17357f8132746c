"""The database itself: its tables, and that nothing in them can be changed."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from storage.ledger import Ledger, schema


@pytest.fixture
def filled(ledger, reserve):
    """One row in every table."""
    ledger.count(ledger.start(reserve()), 1)
    ledger.retire("reviews/2030")


@pytest.fixture
def connection(url, ledger):
    engine = sa.create_engine(url)
    with engine.connect() as opened:
        yield opened
    engine.dispose()


class TestMigrations:
    def test_make_exactly_the_tables_of_the_metadata(self, connection):
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []

    def test_run_once(self, url, ledger, block):
        Ledger(url)
        assert Ledger(url).blocks("reviews") == [block]

    def test_every_table_is_append_only(self):
        assert set(schema.APPEND_ONLY) == set(schema.metadata.tables)


class TestAppendOnly:
    @pytest.mark.parametrize("table", schema.APPEND_ONLY)
    def test_a_row_cannot_be_changed(self, filled, connection, table):
        column = next(iter(schema.metadata.tables[table].columns)).name
        with pytest.raises(sa.exc.DBAPIError, match="append-only"):
            connection.exec_driver_sql(f'UPDATE "{table}" SET "{column}" = "{column}"')

    @pytest.mark.parametrize("table", schema.APPEND_ONLY)
    def test_a_row_cannot_be_deleted(self, filled, connection, table):
        with pytest.raises(sa.exc.DBAPIError, match="append-only"):
            connection.exec_driver_sql(f'DELETE FROM "{table}"')

    @pytest.mark.parametrize("table", schema.APPEND_ONLY)
    def test_history_cannot_be_wiped_past_the_row_triggers(self, filled, connection, table):
        # REPLACE deletes, and TRUNCATE empties, without firing a trigger on rows.
        statement = {
            "sqlite": f'REPLACE INTO "{table}" SELECT * FROM "{table}"',
            "postgresql": f'TRUNCATE "{table}" CASCADE',
        }[connection.dialect.name]
        with pytest.raises(sa.exc.DBAPIError, match="append-only"):
            connection.exec_driver_sql(statement)
