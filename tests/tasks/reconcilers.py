"""A process that forks reconciliations: side by side, each killed at one point if it is told one.

Reads orders from its standard input, one JSON list a line, an object for each child: {"environment",
"dataset", "kill_at", "said"}. The children start together; the answer on standard output is the list of
their exits as `waitpid` gives them. Points are the beginning and the end of each call that asks the
ledger for something, and of each file that is written, counted from 1; the child is killed (SIGKILL) at
the point `kill_at`. What an undisturbed child says goes to the file `said`.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import traceback
from pathlib import Path

from storage.ledger import Ledger
from storage.private import ledger_head
from tasks import reconciling

_CALLS = ("history", "blocks", "open_block", "start", "spend", "record_spent", "head")


def main() -> None:
    Ledger("sqlite://")  # loads what is loaded late
    for line in sys.stdin:
        start, go = os.pipe()
        children = []
        for order in json.loads(line):
            child = os.fork()
            if child == 0:
                os.close(go)
                os.read(start, 1)  # until the parent lets all of them go
                _obey(order)
            children.append(child)
        os.close(go)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        os.close(start)
        sys.stdout.write(json.dumps(statuses) + "\n")
        sys.stdout.flush()


def _obey(order: dict) -> None:
    os.environ.update(order["environment"])
    try:
        _kill_at(order.get("kill_at", 0))
        said = reconciling.reconcile(order["dataset"])
        Path(order["said"]).write_text(json.dumps(said))
    except BaseException:  # noqa: BLE001 - told to the parent by the status
        traceback.print_exc()
        os._exit(4)
    os._exit(0)


def _kill_at(target: int) -> None:
    passed = 0

    def point() -> None:
        nonlocal passed
        passed += 1
        if passed == target:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(call):
        @functools.wraps(call)
        def wrapper(*arguments, **keywords):
            point()
            found = call(*arguments, **keywords)
            point()
            return found

        return wrapper

    for name in _CALLS:
        setattr(Ledger, name, watched(getattr(Ledger, name)))
    ledger_head.write_whole = watched(ledger_head.write_whole)


if __name__ == "__main__":
    main()
