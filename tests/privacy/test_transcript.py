"""Merkle roots over noised updates: what a root binds, and what cannot pass for it."""

from __future__ import annotations

import hashlib

import pytest
import torch

from privacy.transcript import Transcript, follows

PLAN = hashlib.sha256(b"a plan").hexdigest()


def transcript(updates, *, plan=PLAN, first=1):
    made = Transcript(plan)
    for step, update in enumerate(updates, start=first):
        made.add(step, [torch.tensor(update)])
    return made


UPDATES = [[float(k), 1.0 / (k + 1)] for k in range(7)]


@pytest.mark.parametrize("count", range(1, 8))
def test_every_step_leads_to_the_root(count):
    made = transcript(UPDATES[:count])
    for index in range(count):
        assert follows(made.leaf(index), made.proof(index), made.root())


@pytest.mark.parametrize(
    "changed",
    [
        UPDATES[::-1],
        UPDATES[:-1],
        [*UPDATES, UPDATES[-1]],
        [[0.5, 1.0], *UPDATES[1:]],
        [UPDATES[1], UPDATES[0], *UPDATES[2:]],
    ],
)
def test_other_updates_have_another_root(changed):
    assert transcript(changed).root() != transcript(UPDATES).root()


def test_other_constants_or_steps_have_another_root():
    root = transcript(UPDATES).root()
    assert transcript(UPDATES, plan="ab" * 32).root() != root
    assert transcript(UPDATES, first=2).root() != root


def test_a_repeated_last_step_is_not_the_odd_one_out():
    # A tree that pairs an odd node with itself cannot tell three steps from four.
    three, four = transcript(UPDATES[:3]), transcript([*UPDATES[:3], UPDATES[2]], first=1)
    assert three.root() != four.root()


def test_an_inner_node_is_no_leaf():
    made = transcript(UPDATES[:4])
    (_, right), (_, _) = made.proof(0)
    inner = hashlib.sha256(b"\x01" + bytes.fromhex(made.leaf(0)) + bytes.fromhex(right)).hexdigest()
    assert follows(inner, made.proof(0)[1:], made.root())  # it lies on the way …
    assert inner not in [made.leaf(k) for k in range(4)]  # … and no step's update hashes to it
    assert not follows(made.leaf(1), made.proof(0), made.root())


def test_nothing_has_no_root():
    with pytest.raises(ValueError, match="no root"):
        Transcript(PLAN).root()
