"""A real zombie: a process that was stopped, taken over, and wakes up with its old grant."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from scenarios import BLOCKS, block, charge

from storage.ledger import Ledger

CHILD = """
import json, os, signal, sys
from storage.errors import StorageError
from storage.ledger import Ledger
url, row, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
ledger = Ledger(url)
grant = ledger.start(row)
ledger.count(grant, 3)
print("started", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
said = []
for attempt in (
    lambda: ledger.count(grant, 6),
    lambda: ledger.check_grant(grant, name),
    lambda: ledger.commit(grant, head="0" * 64),
):
    try:
        attempt()
        said.append("done")
    except StorageError as error:
        said.append(type(error).__name__)
print(json.dumps(said), flush=True)
"""


@pytest.fixture
def zombie(url, block_open):
    """A process that started a row and is stopped."""
    _ledger, row = block_open
    path = os.pathsep.join(p for p in sys.path if p)
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, url, str(row), BLOCKS[0]],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdout.readline() == "started\n"
    os.waitpid(process.pid, os.WUNTRACED)  # returns once it has stopped
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def block_open(url):
    ledger = Ledger(url)
    ledger.open_block(block(BLOCKS[0]))
    (row,) = ledger.reserve([charge(BLOCKS[0])], flow_run_id="run", run_count=1)
    return ledger, row


def wake(zombie):
    zombie.send_signal(signal.SIGCONT)
    return json.loads(zombie.stdout.readline())


def test_a_zombie_that_was_taken_over_writes_and_reads_nothing(zombie, block_open):
    ledger, row = block_open
    grant = ledger.resume(row)
    before = list(ledger.journal())
    assert wake(zombie) == ["FencedOut", "FencedOut", "FencedOut"]
    assert list(ledger.journal()) == before
    ledger.count(grant, 4)
    ledger.commit(grant)


def test_a_zombie_whose_row_was_spent_writes_and_reads_nothing(zombie, block_open):
    ledger, row = block_open
    ledger.spend(row, note="lost")
    before = list(ledger.journal())
    assert wake(zombie) == ["FencedOut", "FencedOut", "FencedOut"]
    assert list(ledger.journal()) == before
