"""Random histories against a model that knows nothing of the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from storage.errors import BudgetRefused, LedgerError
from storage.ledger import Ledger

NAMES = ("reviews/2030", "reviews/2031")
CAPS = {"reviews/2030": (100, 60), "reviews/2031": (70, 90)}
CHARGED = ("STARTED", "COMMITTED", "SPENT")


@dataclass
class Row:
    """What the model knows of a reservation."""

    costs: dict
    state: str
    deadline: object
    grants: list


class Histories(RuleBasedStateMachine):
    """Reserves, starts, resumes, commits, releases and lets time pass, in any order."""

    def __init__(self, new_url, make_block, make_charge, clock):
        super().__init__()
        self.clock, self.make_charge = clock, make_charge
        self.ledger = Ledger(new_url(), now=clock)
        for name in NAMES:
            self.ledger.open_block(make_block(name, caps=CAPS[name]))
        self.rows: dict[int, Row] = {}
        self.runs = 0
        self.most_spent = dict.fromkeys(NAMES, (0, 0))

    def total(self, name, states):
        held = [r.costs[name] for r in self.rows.values() if r.state in states and name in r.costs]
        return tuple(sum(c[i] for c in held) for i in range(2))

    def pick(self, data):
        return data.draw(st.sampled_from(sorted(self.rows))) if self.rows else None

    @rule(
        names=st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
        cost=st.tuples(st.integers(1, 60), st.integers(1, 60)),
        hours=st.integers(1, 5),
    )
    def reserve(self, names, cost, hours):
        self.runs += 1
        fits = all(
            any(
                u + c <= cap
                for u, c, cap in zip(
                    self.total(n, (*CHARGED, "RESERVED")), cost, CAPS[n], strict=True
                )
            )
            for n in names
        )
        try:
            (row,) = self.ledger.reserve(
                [self.make_charge(*names, costs=cost)],
                flow_run_id=f"run {self.runs}",
                run_count=1,
                ttl=timedelta(hours=hours),
            )
        except BudgetRefused:
            assert not fits
            return
        assert fits
        deadline = self.clock() + timedelta(hours=hours)
        self.rows[row] = Row(dict.fromkeys(names, cost), "RESERVED", deadline, [])

    @rule(data=st.data(), hours=st.integers(1, 5))
    def start_or_resume(self, data, hours):
        row = self.pick(data)
        if row is None:
            return
        method = data.draw(st.sampled_from(["start", "resume"]))
        needed = "RESERVED" if method == "start" else "STARTED"
        known = self.rows[row]
        try:
            grant = getattr(self.ledger, method)(row, ttl=timedelta(hours=hours))
        except LedgerError:
            assert known.state != needed
            return
        assert known.state == needed
        known.state, known.deadline = "STARTED", self.clock() + timedelta(hours=hours)
        known.grants.append(grant)

    @rule(data=st.data())
    def commit_with_any_grant_ever_given(self, data):
        row = self.pick(data)
        if row is None or not self.rows[row].grants:
            return
        known = self.rows[row]
        grant = data.draw(st.sampled_from(known.grants))
        current = known.state == "STARTED" and grant is known.grants[-1]
        try:
            self.ledger.commit(grant)
        except LedgerError:
            assert not current
            return
        assert current
        known.state = "COMMITTED"

    @rule(data=st.data())
    def release(self, data):
        row = self.pick(data)
        if row is None:
            return
        try:
            self.ledger.release(row)
        except LedgerError:
            assert self.rows[row].state != "RESERVED"
            return
        assert self.rows[row].state == "RESERVED"
        self.rows[row].state = "RELEASED"

    @rule(hours=st.integers(1, 3))
    def time_passes(self, hours):
        self.clock.advance(hours=hours)
        self.ledger.expire()
        for known in self.rows.values():
            if known.deadline <= self.clock():
                known.state = {"RESERVED": "RELEASED", "STARTED": "SPENT"}.get(
                    known.state, known.state
                )

    @invariant()
    def caps_hold_and_nothing_spent_comes_back(self):
        for balance in self.ledger.balances():
            name = balance.block.name
            assert balance.spent == self.total(name, CHARGED)
            assert balance.reserved == self.total(name, ("RESERVED",))
            used = [s + r for s, r in zip(balance.spent, balance.reserved, strict=True)]
            assert any(u <= cap for u, cap in zip(used, CAPS[name], strict=True))
            before = self.most_spent[name]
            assert all(s >= b for s, b in zip(balance.spent, before, strict=True))
            self.most_spent[name] = balance.spent

    @invariant()
    def history_shows_the_models_states(self):
        assert {e.row: e.state for e in self.ledger.history()} == {
            row: known.state for row, known in self.rows.items()
        }


def test_any_history_agrees_with_the_model(new_url, make_block, make_charge, clock):
    run_state_machine_as_test(
        lambda: Histories(new_url, make_block, make_charge, clock),
        settings=settings(
            max_examples=12,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
