"""Killed anywhere: what a process leaves is what it had done before its last call, or after it.

A victim is killed (SIGKILL) at numbered points: before and after every statement, between the sending
of a statement and its answer (PostgreSQL), around every commit, at half a line, before and after every
fsync of the evidence, and at each training step. The reference run says what the ledger and the evidence
hold after each call; what the kill left must equal the reference before the call that was under way, or
after it. From there the next run works.
"""

from __future__ import annotations

import signal

import pytest
from scenarios import BLOCKS, CAPS, SCENARIOS, SECOND

from storage.evidence import EvidenceError, public_key, signing_key, verify

CHARGED = ("STARTED", "COMMITTED", "SPENT")


class Reference:
    """One undisturbed run of a scenario: its points, and a snapshot before it and after each call."""

    def __init__(self, stores, executioner, scenario):
        url, folder = stores.new(scenario)
        self.points = executioner.found("suffer", folder, scenario=scenario, url=url)
        stores.throw_away(url, folder)
        url, folder = stores.new(scenario)
        nothing = {"balances": [], "rows": [], "policies": [], "evidence": []}
        found = executioner.found("witness", folder, scenario=scenario, url=url)
        self.snapshots = [nothing] * (scenario == "opening") + found
        stores.throw_away(url, folder)


@pytest.fixture(scope="session")
def reference(stores, executioner):
    known = {}

    def of(scenario):
        if scenario not in known:
            known[scenario] = Reference(stores, executioner, scenario)
        return known[scenario]

    return of


def strike(stores, executioner, reference, scenario, target):
    """Kill a victim at a point, and check what it left and what the next run makes of it."""
    url, folder = stores.new(scenario)
    code = executioner.do("suffer", folder, scenario=scenario, url=url, target=target)
    where = f"{scenario}, point {target}: {reference.points[target - 1]}"
    assert code == -signal.SIGKILL, where
    log = (folder / "log").read_text().splitlines()
    check_tail(folder)
    left, recovered = executioner.found("inspect", folder, url=url)

    done = log.count("returned")
    assert left in reference.snapshots[done : done + 2], where
    check_steps(log, left, where)
    check_balances(left, where)
    check_balances(recovered, where)
    check_no_refund(left, recovered, where)
    stores.throw_away(url, folder)


def check_tail(folder):
    """A last line that a kill cut off is reported, until its writer comes again."""
    path = folder / "run.jsonl"
    if path.exists() and path.read_bytes() and not path.read_bytes().endswith(b"\n"):
        with pytest.raises(EvidenceError, match="cut off"):
            verify(path, public_key(signing_key(folder / "key.pem")))


def check_steps(log, left, where):
    """No step was taken that had not been counted before."""
    taken = max((int(line.split()[1]) for line in log if line.startswith("step")), default=0)
    counted = max((row[4] for row in left["rows"]), default=0)
    assert taken <= counted, where


def check_balances(found, where):
    """No block is over its cap: in every order (renyi), or in any part (agdp)."""
    for name, spent, reserved in found["balances"]:
        fits = [s + r <= cap for s, r, cap in zip(spent, reserved, CAPS, strict=True)]
        assert all(fits) if name == SECOND.name else any(fits), where


def check_no_refund(left, recovered, where):
    """What was charged stays charged, row by row and block by block; the next run came on top."""
    assert len(recovered["rows"]) == len(left["rows"]) + 1, where
    for before, after in zip(left["rows"], recovered["rows"], strict=False):
        if before[2] in CHARGED:
            assert after[2] in CHARGED, where
    spent = {name: units for name, units, _reserved in recovered["balances"]}
    assert set(spent) >= set(BLOCKS), where
    for name, units, _reserved in left["balances"]:
        more = 10 if name in BLOCKS else 0
        assert spent[name] == [u + more for u in units], where
    written = left["evidence"] or ["plan"]
    assert recovered["evidence"] == [*written, *["closed"] * (written[-1] != "closed")], where


def chosen(points, most):
    """At most `most` of the points at a commit, a file or a step, and as many others, evenly spread."""
    words = ("commit", "half", "fsync", "step")
    special = [n for n, name in enumerate(points, 1) if any(w in name.lower() for w in words)]
    others = sorted(set(range(1, len(points) + 1)).difference(special))
    # Counted from the end: the last commit is always among them.
    return sorted(
        n for group in (special, others) for n in group[:: -max(1, -(-len(group) // most))]
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_at_chosen_points(scenario, stores, executioner, reference):
    of = reference(scenario)
    for target in chosen(of.points, 14 if scenario == "training" else 5):
        strike(stores, executioner, of, scenario, target)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_at_every_point(scenario, stores, executioner, reference):
    of = reference(scenario)
    for target in range(1, len(of.points) + 1):
        strike(stores, executioner, of, scenario, target)
