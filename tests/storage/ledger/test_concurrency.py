"""Races for a block: real threads and real processes, and never a unit over the cap."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from storage.errors import BudgetRefused, LedgerError
from storage.ledger import Ledger

# Waits for a line, so that both children race from the same moment.
CHILD = """
import sys
from storage.errors import BudgetRefused
from storage.ledger import Charge, Ledger
url, name = sys.argv[1:]
ledger = Ledger(url)
print("ready", flush=True)
sys.stdin.readline()
for k in range(8):
    charge = Charge(purpose="model", mechanism={}, epsilon=1.0, delta=1e-5, steps=1,
                    costs={"reviews/2030": (10, 10)})
    try:
        (row,) = ledger.reserve([charge], flow_run_id=f"{name}-{k}", run_count=1)
        ledger.start(row)
    except BudgetRefused:
        print("refused")
    else:
        print("taken")
"""


def race(*targets):
    """Run `targets` at once; returns what each returned or raised."""
    barrier, results = threading.Barrier(len(targets)), [None] * len(targets)

    def run(index, target):
        barrier.wait()
        try:
            results[index] = target()
        except LedgerError as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=item) for item in enumerate(targets)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class TestThreads:
    def test_never_exceed_a_cap(self, url, ledger, block, make_charge, clock):
        def greedy(name):
            own = Ledger(url, now=clock)
            taken = 0
            for k in range(8):
                try:
                    own.reserve([make_charge()], flow_run_id=f"{name}-{k}", run_count=1)
                except BudgetRefused:
                    continue
                taken += 1
            return taken

        taken = race(lambda: greedy("a"), lambda: greedy("b"))
        assert sum(taken) == 10  # caps are 100 and 60, a charge is 10: the larger one decides
        (balance,) = ledger.balances()
        assert balance.reserved == (100, 100)

    @pytest.mark.parametrize("_again", range(3))
    def test_start_a_reservation_once(self, url, reserve, clock, _again):
        row = reserve()
        ledgers = [Ledger(url, now=clock), Ledger(url, now=clock)]
        results = race(*(lambda held=held: held.start(row) for held in ledgers))
        assert sorted(isinstance(r, LedgerError) for r in results) == [False, True]

    @pytest.mark.parametrize("_again", range(3))
    def test_use_a_run_key_once(self, url, ledger, block, make_charge, _again):
        ledgers = [Ledger(url), Ledger(url)]
        results = race(
            *(
                lambda held=held: held.reserve([make_charge()], flow_run_id="a", run_count=1)
                for held in ledgers
            )
        )
        assert sorted(isinstance(r, LedgerError) for r in results) == [False, True]

    def test_start_or_release_but_not_both(self, url, ledger, reserve, clock):
        row = reserve()
        other = Ledger(url, now=clock)
        results = race(lambda: ledger.start(row), lambda: other.release(row))
        assert sum(isinstance(r, LedgerError) for r in results) == 1

    def test_open_a_new_ledger_together(self, new_url):
        url = new_url()
        one, two = race(lambda: Ledger(url).id, lambda: Ledger(url).id)
        assert one == two


class TestProcesses:
    def test_never_exceed_a_cap(self, url, ledger, block):
        children = [
            subprocess.Popen(
                [sys.executable, "-c", CHILD, url, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in ("a", "b")
        ]
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        said = [line for child in children for line in child.communicate()[0].split()]
        assert sorted(said) == ["refused"] * 6 + ["taken"] * 10
        (balance,) = ledger.balances()
        assert balance.spent == (100, 100)
