"""What a mistyped command line answers: the usage, exit code 2, and nothing about our insides."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["evidence", "verify"], "Missing argument 'file'"),
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
