"""Processes that stay up and race for the budget of one block after another.

Reads one order a line, {"charges": [[...], [...]], "round": name}, and answers with what each racer got:
"admitted", "refused", or what went wrong. Even racers ask for the first list of (block, costs), odd
ones for the second. All are released at once by a gate. A racer that dies, raises or hangs shows in
the answer.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from dataclasses import replace
from typing import IO, NoReturn

from scenarios import charge

from storage.errors import BudgetRefused
from storage.ledger import Ledger

PATIENCE = 120.0


class Racer:
    """The near end of one racing process."""

    def __init__(self, number: int, url: str, gate: int, others: list[Racer]) -> None:
        orders, self._orders = os.pipe()
        self.answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for other in others:
                os.close(other._orders)
            os.close(self._orders)
            _race(number, url, os.fdopen(orders), answers, gate)
        os.close(orders)
        os.close(answers)  # with it gone, the end of the racer is the end of its answers

    def tell(self, line: str) -> None:
        os.write(self._orders, line.encode())

    def hear(self, deadline: float) -> str:
        """One line, or what became of the racer instead."""
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self.answers], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return f"racer {self.pid} hangs"
            part = os.read(self.answers, 65536)
            if not part:
                return f"racer {self.pid} died"
            line += part
        return line.decode().strip()


def _race(number: int, url: str, orders: IO[str], answers: int, gate: int) -> NoReturn:
    ledger = Ledger(url)
    os.write(answers, b"ready\n")
    for line in orders:
        order = json.loads(line)
        asked = order["charges"][number % 2]
        wanted = replace(charge(), costs={name: tuple(units) for name, units in asked})
        os.write(answers, b"ready\n")
        os.read(gate, 1)
        try:
            (row,) = ledger.reserve(
                [wanted],
                flow_run_id=f"{order['round']}-{number}",
                run_count=1,
            )
            ledger.start(row)
            said = "admitted"
        except BudgetRefused:
            said = "refused"
        except Exception as error:  # noqa: BLE001 - told, not swallowed
            said = f"racer {number}: {error!r}".replace("\n", " ")
        os.write(answers, f"{said}\n".encode())
    os._exit(0)


def main(url: str, count: int) -> None:
    enter, gate = os.pipe()
    racers: list[Racer] = []
    for number in range(count):
        racers.append(Racer(number, url, enter, racers))
    _together(racers)
    for line in sys.stdin:
        for racer in racers:
            racer.tell(line)
        said = _together(racers)
        if said == ["ready"] * count:
            os.write(gate, b"." * count)
            said = _together(racers)
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


def _together(racers: list[Racer]) -> list[str]:
    deadline = time.monotonic() + PATIENCE
    return [racer.hear(deadline) for racer in racers]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
