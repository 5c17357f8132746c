"""What the command line answers when it cannot go on: a sentence and an exit code, never a traceback."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows import cli, services


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["evidence", "verify"], "Missing argument 'files'"),
        (["ledger", "status", "--jsn"], "No such option: --jsn"),
        (["predict", "model", "no-such-file"], "no-such-file cannot be read"),
        (["run", "retrain", "-p", "no-such-profile.yaml"], "no-such-profile.yaml"),
        (["run", "nonsense", "-p", "no-such-profile.yaml"], "nonsense"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path, arguments, named):
    found = subprocess.run(
        [Path(sys.executable).with_name("dpmix"), *arguments],
        cwd=tmp_path,
        env={**os.environ, "DPMIX_HOME": str(tmp_path / "var"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (2, "")
    assert named in found.stderr
    assert "Traceback" not in found.stderr
    assert "unexpected" not in found.stderr
    assert not (tmp_path / "var" / "errors").exists()


@pytest.fixture
def failing(monkeypatch, tmp_path, capsys):
    """Runs the command line with a failure inside; gives the exit code and what stderr shows."""

    def run(error, home):
        def app(**_keywords):
            if isinstance(error, int):  # as Typer gives back an exit inside a command
                return error
            raise error

        monkeypatch.setattr(services, "prepare", lambda: None)
        monkeypatch.setattr(cli, "app", app)
        monkeypatch.setenv("DPMIX_HOME", str(home))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, capsys.readouterr().err

    return run


def test_a_full_disk_is_called_one(failing, tmp_path):
    error = RuntimeError("could not write")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    code, shown = failing(error, tmp_path)
    assert code == 1
    assert "disk is full" in shown
    assert "Free some space" in shown


def test_what_nobody_expected_is_kept_where_the_message_says(failing, tmp_path):
    code, shown = failing(RuntimeError("odd"), tmp_path)
    (log,) = (tmp_path / "errors").iterdir()
    assert (code, str(log) in shown) == (1, True)
    assert "RuntimeError: odd" in log.read_text()


def test_a_log_that_cannot_be_written_is_no_second_failure(failing, tmp_path):
    (tmp_path / "errors").write_text("a file where the folder should be")
    code, shown = failing(RuntimeError("odd"), tmp_path)
    assert (code, "could not be written" in shown) == (1, True)


@pytest.mark.parametrize("how", [130, KeyboardInterrupt()])
def test_an_interruption_is_no_success(failing, tmp_path, how):
    code, shown = failing(how, tmp_path)
    assert code == 130
    assert "What had started stays charged" in shown


@pytest.mark.parametrize("code", [0, 1])
def test_a_commands_own_exit_code_is_the_processes(failing, tmp_path, code):
    assert failing(code, tmp_path) == (code, "")
