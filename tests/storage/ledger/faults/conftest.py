"""Victims, and stores in the state in which a scenario begins."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER))  # behind everything else, as tests/ is


class Helper:
    """A script of this folder that stays up, obeys orders and answers each with one line of JSON."""

    def __init__(self, script: str, *arguments: object) -> None:
        path = os.pathsep.join([str(FOLDER), *(p for p in sys.path if p)])
        self._process = subprocess.Popen(
            [sys.executable, FOLDER / script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        os.killpg(self._process.pid, signal.SIGKILL)  # its forks, too
        self._process.communicate()

    def ask(self, order: dict):
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the helping process has ended"
        return json.loads(answer)


class Executioner(Helper):
    """A `victim.py` that stays up."""

    def __init__(self) -> None:
        super().__init__("victim.py")

    def do(self, deed: str, folder: Path, **order) -> int:
        """Have a child do a deed; returns its exit code, negative for a signal."""
        status = self.ask({"do": deed, "folder": str(folder), **order})["status"]
        return -(status & 127) or status >> 8

    def found(self, deed: str, folder: Path, **order):
        """What an undisturbed child found."""
        code = self.do(deed, folder, **order)
        assert code == 0, (folder / "error").read_text()
        return json.loads((folder / f"{deed}.json").read_text())


@pytest.fixture(scope="session")
def executioner():
    with Executioner() as process:
        yield process


class Stores:
    """Copies of one opened ledger, with a folder for each one's evidence."""

    def __init__(self, kind: str, folder: Path, server, executioner: Executioner) -> None:
        self._folder, self._server = folder, server if kind == "postgresql" else None
        self._opened = self._empty_url()
        made = folder / "opened"
        made.mkdir()
        executioner.found("suffer", made, scenario="opening", url=self._opened)

    def _empty_url(self) -> str:
        if self._server:
            return self._server.new_url()
        return f"sqlite:///{self._folder / secrets.token_hex(8)}.db"

    def new(self, scenario: str) -> tuple[str, Path]:
        """(URL, folder) in which a scenario can begin."""
        folder = self._folder / secrets.token_hex(8)
        folder.mkdir()
        if scenario == "opening":
            return self._empty_url(), folder
        if self._server:
            return self._server.copy(self._opened), folder
        path = Path(self._opened.removeprefix("sqlite:///"))
        copy = folder / "ledger.db"
        for suffix in ("", "-wal"):
            if (written := Path(f"{path}{suffix}")).exists():
                shutil.copy(written, f"{copy}{suffix}")
        return f"sqlite:///{copy}", folder

    def throw_away(self, url: str, folder: Path) -> None:
        shutil.rmtree(folder)
        if self._server:
            self._server.drop(url)


@pytest.fixture(scope="session")
def stores(database_kind, request, executioner, tmp_path_factory):
    server = request.getfixturevalue("postgresql") if database_kind == "postgresql" else None
    return Stores(database_kind, tmp_path_factory.mktemp(database_kind), server, executioner)


@pytest.fixture(scope="session")
def helper():
    """The class, for tests that start a script of this folder."""
    return Helper
