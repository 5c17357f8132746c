"""The ledger's database: engine, migrations, writes one at a time, and what happens when it goes away.

Writes hold one lock from their first statement on. SQLite: a queue before the file (`<file>.lock`; its
own busy handler polls, and starves writers), then BEGIN IMMEDIATE, write-ahead log, synchronous=FULL.
PostgreSQL: one advisory lock a transaction, which a role that may only insert and select can take.

PostgreSQL transactions commit without waiting for the disk while they hold the lock, and every call
waits for the disk afterwards, before it returns. Nothing is lost by that: what another transaction saw
lies before it in the write-ahead log, so it never survives alone; and what a crash takes back belongs
to a call that has not returned, hence to a run that holds no grant. Many callers then share one flush.
Its BEGIN travels with the lock and its COMMIT with the flush: two messages a transaction, not six. Plans
are made once a connection: planning a row's standing anew costs more than reading it.

A lost connection is tried again, since `work` says by itself whether its first try had arrived: it is
told that this is another try. A read sees one snapshot and takes no lock.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from storage.errors import LedgerError, LedgerUnreachable
from storage.files import one_at_a_time

T = TypeVar("T")

_KEY = 0x64706D6978
_FLUSH = "SELECT pg_logical_emit_message(true, 'dpmix', '')"
_BEGIN = {
    "sqlite": "BEGIN IMMEDIATE",
    # The lock is a statement of its own, so the first read behind it sees what its last holder wrote.
    "postgresql": "BEGIN; SELECT set_config('synchronous_commit', 'off', true), "
    "set_config('plan_cache_mode', 'force_generic_plan', true), "
    f"pg_advisory_xact_lock({_KEY})",
}
_BEGIN_READING = {"sqlite": "BEGIN", "postgresql": "BEGIN ISOLATION LEVEL REPEATABLE READ"}
_END = {"sqlite": "COMMIT", "postgresql": f"COMMIT; {_FLUSH}"}
_MIGRATIONS = Path(__file__).parent / "migrations"
_TRIES = 9
# Ends of a connection attempt that no second try mends; libpq gives words for them, and no code.
_IN_VAIN = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "is not permitted to log in",
    "permission denied for database",
)


class Database:
    """One engine at a SQLAlchemy URL, migrated to the newest revision."""

    def __init__(self, url: str) -> None:
        try:
            parsed = sa.engine.make_url(url)
            if parsed.get_backend_name() not in _BEGIN:
                raise LedgerError(
                    f"the ledger's URL must name sqlite or postgresql; got {parsed.drivername!r}. Set "
                    "DPMIX_LEDGER_URL."
                )
            # The driver's own BEGIN and COMMIT are switched off: ours are the only ones.
            self._engine = sa.create_engine(parsed, isolation_level="AUTOCOMMIT")
        except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError) as error:
            raise LedgerError(f"the ledger's URL is no database URL: {error}.") from None
        self._shown = parsed.render_as_string()
        self._queue: Path | None = None
        if self._engine.dialect.name == "sqlite":
            if parsed.database and parsed.database != ":memory:":
                file = Path(parsed.database)
                file.parent.mkdir(parents=True, exist_ok=True)
                self._queue = file.with_name(f"{file.name}.lock")
            sa.event.listen(self._engine, "connect", _configure_sqlite)
        self._migrate()

    def write(self, work: Callable[[sa.Connection, bool], T]) -> T:
        """Run `work` in a transaction of its own under the write lock; durable when this returns.

        Args:
            work: Gets the connection, and whether an earlier try may have arrived unseen.

        Raises:
            LedgerUnreachable: The database did not answer in any of the tries.
        """
        return self._again(lambda again: self._write_once(work, again=again))

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Run `work`, which only reads, on one snapshot.

        Raises:
            LedgerUnreachable: As for `write`.
        """

        def once(_again: bool) -> T:  # noqa: FBT001 - as `write` calls it
            with self._transaction(_BEGIN_READING) as connection:
                return work(connection)

        return self._again(once)

    def flush(self) -> None:
        """Return once everything that can be seen now is on the disk."""
        if self._is_postgresql:
            self._again(lambda _again: self._flush_once())

    @property
    def _is_postgresql(self) -> bool:
        return self._engine.dialect.name == "postgresql"

    def _write_once(self, work: Callable[[sa.Connection, bool], T], *, again: bool) -> T:
        queue = one_at_a_time(self._queue) if self._queue else contextlib.nullcontext()
        with queue, self._transaction(_BEGIN) as connection:
            result = work(connection, again)
            connection.exec_driver_sql(_END[self._engine.dialect.name])
            return result

    @contextlib.contextmanager
    def _transaction(self, begin: dict[str, str]) -> Iterator[sa.Connection]:
        """A transaction that is rolled back, unless its END has been sent before."""
        with self._engine.connect() as connection:
            transaction = connection.begin()
            try:
                connection.exec_driver_sql(begin[self._engine.dialect.name])
                yield connection
            except BaseException:
                # On a lost connection the rollback fails as well, and would hide what was lost.
                with contextlib.suppress(sa.exc.SQLAlchemyError):
                    transaction.rollback()
                raise
            transaction.rollback()

    def _flush_once(self) -> None:
        with self._engine.connect() as connection:
            connection.exec_driver_sql(_FLUSH)

    def _again(self, attempt: Callable[[bool], T]) -> T:
        for number in range(_TRIES):
            try:
                return attempt(number > 0)
            except sa.exc.DBAPIError as error:
                if not _is_lost(error):
                    raise LedgerError(
                        f"the ledger at {self._shown} refused a statement: {_first_line(error)}. "
                        "Nothing was written. Check the rights, the disk and the file."
                    ) from None
                reason = _first_line(error)
            self._engine.dispose()
            if number + 1 < _TRIES:
                time.sleep(0.02 * 2**number)
        raise LedgerUnreachable(
            f"the ledger at {self._shown} did not answer {_TRIES} times over: {reason}. What was asked "
            "is there whole or not at all; see `dpmix ledger history`, then run again."
        )

    def _migrate(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS))
        newest = ScriptDirectory.from_config(config).get_current_head()

        def current(connection: sa.Connection) -> str | None:
            return MigrationContext.configure(connection).get_current_revision()

        def upgrade(connection: sa.Connection, _again: bool) -> None:  # noqa: FBT001 - see `write`
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

        try:
            # A role that may only insert and select opens a ledger that stands at the newest revision.
            if self.read(current) != newest:
                self.write(upgrade)
        except LedgerError as error:
            raise LedgerError(
                f"the ledger at {self._shown} cannot be opened: {error} On PostgreSQL its owner makes "
                "and migrates it with `dpmix ledger migrate`. Check DPMIX_LEDGER_URL."
            ) from None


def _is_lost(error: sa.exc.DBAPIError) -> bool:
    """Whether the connection is gone or cannot be made, rather than the statement wrong."""
    if error.connection_invalidated:
        return True
    name, code = type(error.orig).__module__, getattr(error.orig, "sqlstate", None)
    # psycopg reports a server that is down, starting or going away as OperationalError or a subclass.
    return (
        name.startswith("psycopg")
        and isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError)
        and not str(code or "08").startswith(("28", "3D", "42", "53"))
        and not (code is None and any(said in str(error.orig) for said in _IN_VAIN))
    )


def _first_line(error: sa.exc.DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else "no reason given"


def _configure_sqlite(connection: Any, _record: object) -> None:
    for pragma in (
        "busy_timeout = 30000",
        "journal_mode = WAL",
        "foreign_keys = ON",
        "synchronous = FULL",
    ):
        connection.execute(f"PRAGMA {pragma}")
