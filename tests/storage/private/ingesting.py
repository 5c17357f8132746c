"""A process that forks ingestions: side by side, each killed at one point if it is told one.

Reads orders from its standard input, one JSON list a line, an object for each child: {"root", "url",
"dataset", "file", "period", "kill_at"}. The children start together; the answer on standard output is
the list of their exits as `waitpid` gives them. Points are the changes that a child makes to files below
`root` (opening one for writing, renaming, removing, making a folder), counted from 1 for the ingestion
alone; the child is killed (SIGKILL) right before the point `kill_at`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path

from storage.ledger import Ledger
from storage.private import Dataset, PrivateStore

_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.link")


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
    try:
        store = PrivateStore(Path(order["root"]), Ledger(order["url"]))
        dataset = store.declare(Dataset.from_json(order["dataset"]))
        if order.get("kill_at"):
            _kill_at(order["kill_at"], order["root"])
        store.ingest(dataset, Path(order["file"]), period=order.get("period", ""))
    except BaseException:  # noqa: BLE001 - told to the parent by the status
        traceback.print_exc()
        os._exit(4)
    os._exit(0)


def _kill_at(target: int, root: str) -> None:
    passed = 0

    def watch(event: str, arguments: tuple) -> None:
        nonlocal passed
        written = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (written or event in _CHANGES) and str(arguments[0]).startswith(root):
            passed += 1
            if passed == target:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


if __name__ == "__main__":
    main()
