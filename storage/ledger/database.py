"""The ledger's database: engine, migrations, transactions that lock before they read.

SQLite transactions begin IMMEDIATE, so two writers never both pass a check; PostgreSQL takes one
advisory lock per transaction, which a role that may only insert and select can do as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from storage.errors import LedgerError

_ADVISORY_LOCK = 0x64706D6978  # "dpmix"
_MIGRATIONS = Path(__file__).parent / "migrations"


class Database:
    """One engine at a SQLAlchemy URL, migrated to the newest revision."""

    def __init__(self, url: str) -> None:
        if url.startswith("sqlite:///"):
            Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        try:
            self._engine = sa.create_engine(url)
        except sa.exc.ArgumentError as error:
            raise LedgerError(f"the ledger's URL is no database URL: {error}.") from None
        if self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "connect", _configure_sqlite)
            sa.event.listen(self._engine, "begin", _begin_immediate)
        try:
            with self.transaction() as connection:
                config = Config()
                config.set_main_option("script_location", str(_MIGRATIONS))
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except sa.exc.DatabaseError as error:
            raise LedgerError(
                f"the ledger at {self._engine.url.render_as_string()} cannot be opened: {error.orig}. "
                "Check DPMIX_LEDGER_URL and the rights on the file."
            ) from None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """A transaction that holds the ledger's write lock from its first statement."""
        with self._engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
            yield connection


def _configure_sqlite(connection: Any, _record: object) -> None:
    # The driver's own BEGIN is deferred; it is switched off so that ours, IMMEDIATE, is the only one.
    connection.isolation_level = None
    for pragma in ("busy_timeout = 30000", "foreign_keys = ON", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_immediate(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
