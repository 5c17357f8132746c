"""Numbered points at which a process can be struck: around every statement, commit, fsync and step.

The points are found by hooks on what the product uses (SQLAlchemy, psycopg, `os.fsync`); nothing in the
product knows of them.
"""

from __future__ import annotations

import functools
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.engine.default import DefaultDialect

_READABLE = 1  # what a psycopg generator yields while it waits for an answer


class Points:
    """Counts the points that a process passes; strikes at one of them.

    Args:
        target: The number of the point to strike at; 0 never strikes.
        strike: What happens there; by default the process is killed. Gets the database connection in
            use, or None.
    """

    def __init__(self, target: int, strike: Callable[[Any], None] | None = None) -> None:
        self._target = target
        self._kills = strike is None
        self._strike = strike or (lambda _connection: os.kill(os.getpid(), signal.SIGKILL))
        self.names: list[str] = []

    def at(self, name: str, connection: Any = None) -> None:
        """Pass a point."""
        self.names.append(name)
        if len(self.names) == self._target:
            self._strike(connection)

    def watch(self) -> None:
        """Hook into this process, for good."""
        self._watch_statements()
        self._watch_wire()
        self._watch_files()

    def _watch_statements(self) -> None:
        engine = sa.engine.Engine

        def before(connection, _cursor, statement, *_rest):
            self.at(f"before {_short(statement)}", connection.connection.driver_connection)

        def after(connection, _cursor, statement, *_rest):
            self.at(f"after {_short(statement)}", connection.connection.driver_connection)

        sa.event.listen(engine, "before_cursor_execute", before)
        sa.event.listen(engine, "after_cursor_execute", after)
        for name in ("do_commit", "do_rollback"):
            setattr(DefaultDialect, name, self._around(getattr(DefaultDialect, name), name))

    def _around(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapped(dialect, connection):
            driver = getattr(connection, "driver_connection", connection)
            self.at(f"before {name}", driver)
            original(dialect, connection)
            self.at(f"after {name}", driver)

        return wrapped

    def _watch_wire(self) -> None:
        """A point between the sending of a statement and its answer: it may or may not take effect."""
        original = psycopg.Connection.wait

        def watched(connection, generator):
            sent = False
            try:
                waits_for = next(generator)
                while True:
                    if waits_for == _READABLE and not sent:
                        sent = True  # the answer may come in several parts
                        self.at("sent", connection)
                    waits_for = generator.send((yield waits_for))
            except StopIteration as end:
                if not sent:  # or before anybody waited for it
                    self.at("sent", connection)
                return end.value

        def wait(connection, generator, *args, **kwargs):
            return original(connection, watched(connection, generator), *args, **kwargs)

        psycopg.Connection.wait = wait

    def _watch_files(self) -> None:
        original = os.fsync

        def fsync(handle):
            number = handle if isinstance(handle, int) else handle.fileno()
            regular = stat.S_ISREG(os.fstat(number).st_mode)
            if regular:
                self._tear(number)
            self.at("before fsync")
            original(handle)
            self.at("after fsync")

        os.fsync = fsync

    def _tear(self, number: int) -> None:
        """A point at which a kill leaves half of the line in the file; who lives on writes it whole."""
        if self._kills and len(self.names) + 1 == self._target:
            path = Path(f"/proc/self/fd/{number}").readlink()
            content = path.read_bytes()
            start = content[:-1].rfind(b"\n") + 1
            os.truncate(path, start + (len(content) - start) // 2)
        self.at("half a line")


def _short(statement: str) -> str:
    return " ".join(statement.split())[:40]
