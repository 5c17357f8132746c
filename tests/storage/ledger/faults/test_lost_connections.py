"""The connection is cut at a statement, or the server restarts: a call arrives once, or fails cleanly.

A cut ends the session of the connection in use (`pg_terminate_backend`) at one numbered point. The call
under way tries again; at the end the ledger holds what the undisturbed run leaves, and nothing twice.
"""

from __future__ import annotations

import threading
import time

import pytest
from postgresql import Server
from scenarios import BLOCKS, block, charge
from sqlalchemy.engine import make_url

from storage.errors import LedgerError, LedgerUnreachable
from storage.ledger import Ledger

pytestmark = pytest.mark.only_on("postgresql")
SCENARIOS = ["training", "deadlines", "audit"]


def cut(stores, executioner, postgresql, scenario, every):
    url, folder = stores.new(scenario)
    points = executioner.found("suffer", folder, scenario=scenario, url=url)
    expected, _after = executioner.found("inspect", folder, url=url)
    stores.throw_away(url, folder)
    for target in range(every, len(points) + 1, every):
        url, folder = stores.new(scenario)
        order = {"scenario": scenario, "url": url, "target": target}
        code = executioner.do("suffer", folder, **order, cut=postgresql.url("postgres"))
        where = f"{scenario}, point {target}: {points[target - 1]}"
        assert code == 0, where + ": " + (folder / "error").read_text()
        left, _after = executioner.found("inspect", folder, url=url)
        assert left == expected, where
        stores.throw_away(url, folder)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_cut_connection_changes_nothing(scenario, stores, executioner, postgresql):
    cut(stores, executioner, postgresql, scenario, every=61)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_cut_at_every_point_changes_nothing(scenario, stores, executioner, postgresql):
    cut(stores, executioner, postgresql, scenario, every=1)


class Client(threading.Thread):
    """Cycles until it is told to end; remembers what returned, and what was refused cleanly."""

    def __init__(self, url, name):
        super().__init__()
        self.url, self.label = url, name
        self.committed, self.unreachable, self.wrong = [], 0, []
        self.enough = threading.Event()
        self.first = threading.Event()

    def run(self):
        ledger = Ledger(self.url)
        number = 0
        while not self.enough.is_set():
            number += 1
            try:
                run = f"{self.label}-{number}"
                (row,) = ledger.reserve([charge(BLOCKS[0])], flow_run_id=run, run_count=1)
                ledger.commit(ledger.start(row))
                self.committed.append(row)
                self.first.set()
            except LedgerUnreachable:
                self.unreachable += 1
            except Exception as error:  # noqa: BLE001 - judged by the test
                self.wrong.append(error)
                self.first.set()


@pytest.mark.parametrize("how", ["fast", "immediate", "killed"])
def test_a_restart_loses_nothing_that_returned(database_kind, how):
    with Server() as server:  # durable, and its own: others are not to feel it
        url = server.new_url()
        Ledger(url).open_block(block(BLOCKS[0], caps=(10**9, 10**9)))
        clients = [Client(url, f"client-{k}") for k in range(4)]
        for client in clients:
            client.start()
        try:
            for _ in range(2):
                for client in clients:
                    client.first.clear()
                    assert client.first.wait(60)
                server.restart(how)
        finally:
            for client in clients:
                client.enough.set()
            for client in clients:
                client.join()
        assert [e for client in clients for e in client.wrong] == []
        ledger = Ledger(url)
        ledger.verify()
        states = {e.row: e.state for e in ledger.history()}
        for client in clients:
            assert {states[row] for row in client.committed} == {"COMMITTED"}
        (balance,) = ledger.balances()
        charged = sum(state in ("COMMITTED", "STARTED") for state in states.values())
        assert balance.spent == (10 * charged, 10 * charged)


def test_a_server_that_is_down_is_named(database_kind):
    with Server(fsync="off") as server:
        url = server.new_url()
        ledger = Ledger(url)
        ledger.open_block(block(BLOCKS[0]))
        server.stop()
        with pytest.raises(LedgerError, match="did not answer") as refused:
            ledger.reserve([charge(BLOCKS[0])], flow_run_id="run", run_count=1)
        assert server.password not in str(refused.value)


@pytest.mark.parametrize(
    ("part", "wrong", "said"),
    [
        ("password", "wrong", "password authentication failed"),
        ("username", "nobody", "password authentication failed"),
        ("database", "nowhere", "does not exist"),
    ],
)
def test_a_wrong_address_is_refused_at_once_and_named(
    database_kind, postgresql, monkeypatch, part, wrong, said
):
    monkeypatch.setattr(time, "sleep", lambda _seconds: pytest.fail("it was tried again"))
    right = make_url(postgresql.url("postgres"))
    url = right.set(**{part: wrong}).render_as_string(hide_password=False)
    with pytest.raises(LedgerError, match=said) as refusal:
        Ledger(url)
    assert "DPMIX_LEDGER_URL" in str(refusal.value)
    assert str(right.password) not in str(refusal.value)
