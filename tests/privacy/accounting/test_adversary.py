"""Adversaries who choose each next mechanism by the losses they have realised, through the real gates.

One game: fixed neighbouring inputs, the true outputs of Gaussian and sampled Gaussian releases, and the
exact privacy loss of what came out. What an adversary gains at ε is E[(1 − e^(ε−loss))⁺] under the input
that holds; a filter's claim bounds it. Gains are estimated, each with four standard errors.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from privacy.accounting import dpsgd_event, gaussian_event, make_filter
from privacy.accounting.analytic import gaussian_epsilon

TRIALS = 100_000
EPSILON, DELTA = 1.0, 1e-2
ROUNDS = 32

# (μ = 1/σ, q): a bold release, a timid one, and a sampled step whose loss is seldom and large.
MENU = ((0.2, 1.0), (0.05, 1.0), (0.8, 0.05))


def event_of(mu, rate):
    if rate == 1:
        return gaussian_event(noise_multiplier=1 / mu)
    return dpsgd_event(noise_multiplier=1 / mu, sample_rate=rate, steps=1)


def losses_of(rng, mu, rate, direction, count):
    """Realised losses of one release, under the input with the unit (remove) or without it (add)."""
    holds_unit = rng.random(count) < rate if direction == "remove" else np.zeros(count, dtype=bool)
    seen = rng.standard_normal(count) + mu * holds_unit
    ratio = np.log1p(rate * np.expm1(mu * seen - mu**2 / 2))
    return ratio if direction == "remove" else -ratio


def bold_while_behind(loss):
    return np.where(loss < 0.8 * EPSILON, 0, 1)


def rare_and_large(loss):
    return np.where(loss < EPSILON, 2, 1)


def play(gate, choose, direction, seed):
    """The loss of every trial when nothing on the menu is admitted any more, or the rounds are over."""
    rng = np.random.default_rng(seed)
    costs = np.array([gate.costs(event_of(*entry)) for entry in MENU], dtype=object)
    loss, taken = np.zeros(TRIALS), np.zeros((TRIALS, len(MENU)), dtype=np.int64)
    base = (ROUNDS + 1) ** np.arange(len(MENU))

    def admitted(counts, wanted):
        used = tuple(np.dot(counts, costs))
        fallbacks = (choice for choice in (wanted, 0, 1) if gate.admits(used, tuple(costs[choice])))
        return next(fallbacks, -1)

    for _ in range(ROUNDS):
        wanted = choose(loss)
        _, one, where = np.unique(
            taken @ base * len(MENU) + wanted, return_index=True, return_inverse=True
        )
        answers = np.array([admitted(taken[i], int(wanted[i])) for i in one])
        if np.all(answers < 0):
            break
        given = answers[where]
        for choice, (mu, rate) in enumerate(MENU):
            mine = np.flatnonzero(given == choice)
            loss[mine] += losses_of(rng, mu, rate, direction, len(mine))
            taken[mine, choice] += 1
    return loss


def gain(loss, epsilon):
    """(estimate, four standard errors) of E[(1 − e^(ε−loss))⁺]."""
    gains = np.maximum(0.0, -np.expm1(np.minimum(epsilon - loss, 0.0)))
    return gains.mean(), 4 * gains.std() / math.sqrt(len(gains))


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("choose", [bold_while_behind, rare_and_large], ids=lambda s: s.__name__)
@pytest.mark.parametrize("name", ["agdp", "renyi"])
def test_no_adversary_gains_more_than_a_filter_claims(name, choose, direction):
    gate = make_filter(name, epsilon=EPSILON, delta=DELTA)
    found, error = gain(play(gate, choose, direction, seed=11), EPSILON)
    assert found + error <= DELTA


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_the_gaussian_filter_gives_all_that_it_claims_of_gaussians(direction):
    # Half of δ is kept for leaks; of the rest an adversary gets everything: the bound is not slack,
    # and a filter that admitted a little more would be seen to fail.
    gate = make_filter("agdp", epsilon=EPSILON, delta=DELTA)
    found, error = gain(play(gate, bold_while_behind, direction, seed=12), EPSILON)
    share = DELTA - gate.caps()[1] / 1e18
    assert found + error >= 0.9 * share
    assert found - error <= share


def test_an_adversary_gains_many_times_delta_where_a_total_is_read_when_it_likes():
    # No filter: after every release the ε of all that was run is read, tight and true of each sequence
    # fixed beforehand, and the adversary stops when its own loss is above what is read.
    rng = np.random.default_rng(13)
    spent = np.geomspace(1.0, 1000.0, 60)
    loss, gained, playing = np.zeros(TRIALS), np.zeros(TRIALS), np.ones(TRIALS, dtype=bool)
    for before, now in zip([0.0, *spent[:-1]], spent, strict=True):
        loss += math.sqrt(now - before) * rng.standard_normal(TRIALS) + (now - before) / 2
        read = gaussian_epsilon(math.sqrt(now), DELTA)
        assert gain(loss, read)[0] <= DELTA * 1.15  # whoever stops at a fixed time gains δ at most
        stops = playing & (loss > read)
        gained[stops] = -np.expm1(read - loss[stops])
        playing &= ~stops
    assert gained.mean() - 4 * gained.std() / math.sqrt(TRIALS) > 5 * DELTA
