"""A retraining killed with SIGKILL: its charge stays, the next run works, nothing else is broken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from flows.services import ROOT

pytestmark = pytest.mark.system


@pytest.fixture
def environment(tmp_path):
    return {**os.environ, "DPMIX_HOME": str(tmp_path / "var"), "DPMIX_RUNS": str(tmp_path / "runs")}


def dpmix(environment, *arguments, start=False):
    command = [sys.executable, "-m", "flows.cli", *arguments]
    if start:
        return subprocess.Popen(command, env=environment, cwd=ROOT, start_new_session=True)
    return subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )


def rows(environment):
    return json.loads(dpmix(environment, "ledger", "history", "--json").stdout)


def test_the_demo_runs_and_survives_a_kill_in_the_middle(environment):
    demo = dpmix(environment, "demo")
    assert demo.returncode == 0, demo.stderr
    assert "Traceback" not in demo.stdout + demo.stderr
    assert "Macro-F1" in demo.stdout
    first = rows(environment)
    assert {r["state"] for r in first} == {"COMMITTED"}

    profile = "deploy/profiles/demo.yaml"
    # Long training, short audit (which runs before it): the kill shall hit the training.
    slow = []
    for setting in (
        "training.steps=3000",
        "audit.repeats=20",
        "audit.canaries=200",
        "audit.guesses=40",
    ):
        slow += ["--set", setting]
    run = dpmix(environment, "run", "retrain", "-p", profile, *slow, start=True)
    deadline = time.monotonic() + 300
    while len(rows(environment)) == len(first) or not any(
        r["state"] == "STARTED" for r in rows(environment)
    ):
        assert run.poll() is None, "it ended before the kill"
        assert time.monotonic() < deadline
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()

    killed = next(r for r in rows(environment) if r["state"] == "STARTED")
    status = json.loads(dpmix(environment, "ledger", "status", "--json").stdout)
    assert status[0]["spent"] > killed["epsilon"]

    again = dpmix(environment, "run", "retrain", "-p", profile, "--set", "training.epsilon=0.1")
    assert again.returncode == 0, again.stderr

    refused = dpmix(environment, "run", "retrain", "-p", profile, "--set", "training.epsilon=1.9")
    assert refused.returncode == 3, refused.stderr
    assert "cannot pay" in refused.stderr
