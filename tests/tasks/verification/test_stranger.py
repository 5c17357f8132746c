"""On a machine without an installation the command needs files and key, and leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def verify(folder, *arguments):
    environment = {
        **os.environ,
        "DPMIX_HOME": str(folder / "nowhere"),
        "DPMIX_RUNS": str(folder / "nowhere"),
        "DPMIX_LEDGER_URL": "postgresql://nobody@192.0.2.1/none",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", "evidence", "verify", *map(str, arguments)],
        env=environment, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_stranger_verifies_runs_and_ledger(installation, tmp_path):
    files, export = installation.files(), installation.export()
    ended = verify(
        tmp_path, *files, "--public-key", files[0].with_name("evidence.pub"), "--ledger", export
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-1] == "VALID"
    assert not list(tmp_path.iterdir())


def test_what_fails_is_an_exit_code_and_json(installation, tmp_path):
    file = installation.write(0)
    file.write_bytes(file.read_bytes().replace(b"a-run", b"b-run"))
    ended = verify(tmp_path, file, "--public-key", installation.public, "--json")
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["failures"][0]["entry"] == 10
