"""A role that may look and add: it does the whole protocol, and the server refuses it anything else."""

from __future__ import annotations

import secrets

import pytest
import sqlalchemy as sa
from scenarios import BLOCKS, Actor, snapshot

from storage.errors import LedgerError
from storage.ledger import Ledger
from storage.ledger.roles import grants, migrate
from storage.ledger.schema import APPEND_ONLY

pytestmark = pytest.mark.only_on("postgresql")


@pytest.fixture
def role(postgresql):
    """(name, password) of a login role with no rights of its own."""
    name, password = f"writer_{secrets.token_hex(4)}", secrets.token_hex(16)
    postgresql.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
    return name, password


@pytest.fixture
def role_url(url, role, postgresql):
    """A migrated ledger, as the role reaches it."""
    migrate(url)
    database = sa.make_url(url).database
    for statement in grants(role[0]):
        postgresql.execute(statement, database=database)
    return postgresql.url(database, user=role[0], password=role[1])


@pytest.fixture
def execute(role_url):
    engine = sa.create_engine(role_url, poolclass=sa.NullPool)

    def run(statement):
        with engine.begin() as connection:
            connection.exec_driver_sql(statement)

    return run


class TestTheRole:
    @pytest.mark.parametrize("scenario", ["training", "refusal", "deadlines", "audit", "policies"])
    def test_does_the_whole_protocol(self, role_url, tmp_path, scenario):
        actor = Actor(role_url, tmp_path)
        actor.run("opening")
        actor.run(scenario)
        actor.close()
        names = {name for name, _spent, _reserved in snapshot(role_url, tmp_path)["balances"]}
        assert names >= set(BLOCKS)

    def test_cannot_make_the_tables(self, url, role, postgresql):
        database = sa.make_url(url).database
        with pytest.raises(LedgerError, match="migrate"):
            Ledger(postgresql.url(database, user=role[0], password=role[1]))

    def test_needs_its_password(self, role_url):
        wrong = sa.make_url(role_url).set(password="wrong")
        with pytest.raises(LedgerError, match="password") as refused:
            Ledger(wrong.render_as_string(hide_password=False))
        assert sa.make_url(role_url).password not in str(refused.value)

    @pytest.mark.parametrize(
        "statement",
        [
            'UPDATE "{0}" SET "{1}" = "{1}"',
            'DELETE FROM "{0}"',
            'TRUNCATE "{0}" CASCADE',
            'DROP TABLE "{0}" CASCADE',
            'ALTER TABLE "{0}" DISABLE TRIGGER ALL',
        ],
    )
    def test_changes_nothing(self, execute, url, statement):
        inspector = sa.inspect(sa.create_engine(url, poolclass=sa.NullPool))
        for table in (*APPEND_ONLY, "alembic_version"):
            column = inspector.get_columns(table)[0]["name"]
            with pytest.raises(sa.exc.ProgrammingError, match=r"permission denied|must be owner"):
                execute(statement.format(table, column))

    def test_drops_no_trigger(self, execute):
        for table in APPEND_ONLY:
            with pytest.raises(sa.exc.ProgrammingError, match="must be owner"):
                execute(f'DROP TRIGGER "{table}_append_only" ON "{table}"')
