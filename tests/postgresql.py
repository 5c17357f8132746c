"""A real PostgreSQL server for the tests: own data directory, own port, passwords, gone at the end.

`Server` is also what the ledger's benchmark runs on. It answers on 127.0.0.1 only, and asks for a
password (SCRAM). A server started by root runs as the user ``postgres``. One is started for each test
process that asks for it; its postmaster gets a shutdown signal should that process die.

Where no PostgreSQL is installed, tests run on SQLite alone, unless DPMIX_TEST_REQUIRE_POSTGRESQL is set:
then its absence is an error.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import sql

USER = "dpmix_test"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "150",
    "shared_buffers": "64MB",
    "password_encryption": "scram-sha-256",
}
SHUTDOWNS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT, "killed": signal.SIGKILL}


class ServerError(RuntimeError):
    """The server did not start; holds its log."""


def programs() -> Path | None:
    """The folder of the newest PostgreSQL's programs, or None."""
    found = shutil.which("initdb")
    installed = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3])
    )
    if installed:
        return installed[-1].parent
    return Path(found).resolve().parent if found else None


def available() -> bool:
    """Whether a server can be started.

    Raises:
        ServerError: None can, and DPMIX_TEST_REQUIRE_POSTGRESQL demands one.
    """
    if programs() is None:
        if os.environ.get("DPMIX_TEST_REQUIRE_POSTGRESQL"):
            raise ServerError(
                "DPMIX_TEST_REQUIRE_POSTGRESQL is set and no initdb was found. "
                "Install it: apt-get install postgresql."
            )
        return False
    return True


class Server:
    """One PostgreSQL server on a free port; use as a context manager.

    Args:
        settings: Server settings beside `SETTINGS`.
    """

    def __init__(self, **settings: str) -> None:
        folder = programs()
        if folder is None:
            raise ServerError("no initdb was found. Install it: apt-get install postgresql.")
        self._programs = folder
        self._settings = {**SETTINGS, **settings}
        # PostgreSQL refuses to run as root.
        self._identity = (
            {"user": "postgres", "group": "postgres", "extra_groups": []}
            if os.geteuid() == 0
            else {}
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.password = secrets.token_hex(16)
        self.port = 0

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="dpmix-postgresql-"))
        try:
            if self._identity:
                shutil.chown(self.folder, "postgres", "postgres")
            self._initialise()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _initialise(self) -> None:
        password = self.folder / "password"
        password.write_text(self.password)
        password.chmod(0o644)  # the folder itself is 0700
        made = subprocess.run(
            [
                self._programs / "initdb",
                *("-D", self.folder / "data", "-U", USER, "--pwfile", password, "--no-sync"),
                *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"),
            ],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            **self._identity,
        )
        if made.returncode:
            raise ServerError(made.stdout + made.stderr)

    def start(self) -> None:
        """Start it, on the port that it had before if it had one, and wait until it answers."""
        deadline = time.monotonic() + 60
        while True:
            port = self.port or _free_port()
            self._launch(port)
            if self._answers(port, deadline):
                self.port = port
                return
            # Another process took the port, or the memory of a killed server is still being freed.
            self.stop("immediate")
            if time.monotonic() > deadline:
                raise ServerError(self.log.read_text())

    @property
    def log(self) -> Path:
        """What the server said."""
        return self.folder / "log"

    def _launch(self, port: int) -> None:
        settings = {**self._settings, "port": str(port)}
        options = [part for k, v in settings.items() for part in ("-c", f"{k}={v}")]
        setpriv = shutil.which("setpriv")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *([setpriv, "--pdeathsig", "INT"] if setpriv else []),
                    *(self._programs / "postgres", "-D", self.folder / "data", *options),
                ],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._identity,
            )

    def _answers(self, port: int, deadline: float) -> bool:
        assert self._process is not None
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(psycopg.OperationalError), self._connect(port):
                return True
            time.sleep(0.02)
        return False

    def stop(self, how: str = "fast") -> None:
        """Stop it: ``fast`` ends its sessions, ``immediate`` and ``killed`` leave a recovery to do."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(SHUTDOWNS[how])
            self._process.wait(60)
            self._process = None

    def restart(self, how: str = "fast") -> None:
        """Stop it and start it on the same port."""
        self.stop(how)
        self.start()

    def _connect(self, port: int, database: str = "postgres") -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1",
            port=port,
            user=USER,
            password=self.password,
            dbname=database,
            autocommit=True,
            connect_timeout=10,
        )

    def execute(self, statement: str | sql.Composed, *, database: str = "postgres") -> list[tuple]:
        """Run one statement as the superuser; returns its rows."""
        with self._connect(self.port, database) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def new_url(self) -> str:
        """The URL of a new, empty database."""
        return self.copy("")

    def copy(self, url: str) -> str:
        """The URL of a new database with the content of another, which nobody uses now."""
        name = f"ledger_{secrets.token_hex(8)}"
        template = f"TEMPLATE {sa.make_url(url).database}" if url else ""
        with self._connect(self.port) as connection:
            # Several times quicker than writing the template through the log; new in version 15.
            how = "STRATEGY file_copy" if connection.info.server_version >= 150000 else ""
            connection.execute(f"CREATE DATABASE {name} {template} {how}")
        return self.url(name)

    def url(self, database: str, *, user: str = USER, password: str = "") -> str:
        """The URL of a database, as the superuser unless another user is named."""
        made = sa.URL.create(
            "postgresql+psycopg",
            username=user,
            password=password or self.password,
            host="127.0.0.1",
            port=self.port,
            database=database,
        )
        return made.render_as_string(hide_password=False)

    def drop(self, url: str) -> None:
        """Drop a database and end its sessions."""
        name = sa.make_url(url).database
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def postgresql():
    """The server of this test process; it survives kills, but no power cut, and is quicker so."""
    with Server(fsync="off") as server:
        yield server


@pytest.fixture
def new_postgresql_url(postgresql):
    """Makes URLs of empty databases, which are dropped after the test."""
    made = []

    def make():
        made.append(postgresql.new_url())
        return made[-1]

    yield make
    for url in made:
        postgresql.drop(url)


def pytest_generate_tests(metafunc):
    """Run what asks for a `database_kind` on each kind that there is, or `only_on` some."""
    if "database_kind" in metafunc.fixturenames:
        metafunc.parametrize("database_kind", kinds(metafunc.definition), scope="session")


def pytest_collection_modifyitems(config, items):
    """Leave out what would need a server where there is none."""
    without = [
        item
        for item in items
        if "database_kind" in getattr(item, "fixturenames", ()) and not kinds(item)
    ]
    if without:
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if item not in without]


def kinds(item: pytest.Item) -> list[str]:
    """The kinds of database that a test runs on."""
    marker = item.get_closest_marker("only_on")
    return [
        kind
        for kind in ("sqlite", *(("postgresql",) if available() else ()))
        if marker is None or kind in marker.args
    ]
