"""Choices by score: their exact laws, and e^ε over all small neighbouring datasets by enumeration."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from privacy.accounting import exponential_event, pure_event
from privacy.errors import PlanError
from privacy.mechanisms import ExponentialMechanism, PermuteAndFlip

KINDS = [ExponentialMechanism, PermuteAndFlip]
EPSILONS = [0.3, 1.0, 4.0]
SCORES = [[5], [3, 3, 3], [4, 2, 0, 3], [Fraction(1, 3), Fraction(-5, 2), 1]]


def exponential_law(scores, rate):
    weights = [math.exp(rate * float(score)) for score in scores]
    return [weight / sum(weights) for weight in weights]


def permute_and_flip_law(scores, rate):
    """By the definition: the sum over all orders of the chance to be the first head."""
    heads = [math.exp(rate * float(score - max(scores))) for score in scores]
    law = [0.0] * len(scores)
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        left = 1 / len(orders)
        for i in order:
            law[i] += left * heads[i]
            left *= 1 - heads[i]
    return law


LAWS = {ExponentialMechanism: exponential_law, PermuteAndFlip: permute_and_flip_law}


def largest_loss(law, rate, ballots):
    """Over all datasets of at most 4 units with 3 candidates, and all units that may join."""
    worst = 0.0
    for size in range(5):
        for units in itertools.combinations_with_replacement(ballots, size):
            scores = [sum(unit[i] for unit in units) for i in range(3)]
            for joining in ballots:
                moved = [score + vote for score, vote in zip(scores, joining, strict=True)]
                pairs = zip(law(scores, rate), law(moved, rate), strict=True)
                worst = max(worst, *(abs(math.log(p / q)) for p, q in pairs))
    return worst


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", EPSILONS)
class TestLoss:
    def test_is_at_most_epsilon_where_scores_move_either_way(self, kind, epsilon):
        ballots = list(itertools.product([-1, 0, 1], repeat=3))
        assert largest_loss(LAWS[kind], epsilon / 2, ballots[::2]) <= epsilon + 1e-9

    def test_is_at_most_epsilon_where_scores_move_one_way(self, kind, epsilon):
        ballots = list(itertools.product([0, 1], repeat=3))
        assert largest_loss(LAWS[kind], epsilon, ballots) <= epsilon + 1e-9


class TestEnumeration:
    @pytest.mark.parametrize("kind", KINDS)
    def test_sees_a_loss_above_epsilon_where_one_way_is_claimed_wrongly(self, kind):
        ballots = list(itertools.product([-1, 0, 1], repeat=3))
        assert largest_loss(LAWS[kind], 1.0, ballots[::2]) > 1.1


@pytest.mark.parametrize("kind", KINDS)
class TestChoice:
    @pytest.mark.parametrize("scores", SCORES, ids=len)
    @pytest.mark.parametrize(("one_way", "factor"), [(False, 2), (True, 1)])
    def test_has_the_exact_law(self, kind, scores, one_way, factor):
        epsilon, sensitivity, count = 1.25, Fraction(3, 2), 4000
        mechanism = kind(epsilon=epsilon, sensitivity=sensitivity, one_way=one_way)
        randbelow = random.Random(21).randrange
        drawn = [mechanism.choose(scores, randbelow=randbelow) for _ in range(count)]
        law = LAWS[kind](scores, epsilon / (factor * float(sensitivity)))
        expected = count * np.array(law)
        observed = np.bincount(drawn, minlength=len(scores))
        statistic = float(((observed - expected) ** 2 / expected).sum())
        assert len(scores) == 1 or stats.chi2.sf(statistic, len(scores) - 1) > 1e-3

    def test_takes_the_best_where_the_rest_is_hopeless(self, kind):
        assert kind(epsilon=1.0, sensitivity=1).choose([0, 10**6, 3]) == 1

    def test_takes_scores_from_arrays_without_overflow(self, kind):
        scores = np.array([0, 2**62, 3])
        assert kind(epsilon=0.123456789, sensitivity=np.int64(3)).choose(scores) == 1

    def test_refuses_an_empty_list(self, kind):
        with pytest.raises(PlanError, match="scores must hold >= 1 candidate; got 0"):
            kind(epsilon=1.0, sensitivity=1).choose([])

    @pytest.mark.parametrize("score", [0.5, math.nan, True, "3"])
    def test_refuses_a_score_that_is_not_exact(self, kind, score):
        with pytest.raises(PlanError, match="score must be a whole number or a fraction; got"):
            kind(epsilon=1.0, sensitivity=1).choose([1, score])

    @pytest.mark.parametrize("epsilon", [math.nan, 0.0, -1.0, math.inf])
    def test_refuses_an_epsilon_out_of_range(self, kind, epsilon):
        with pytest.raises(PlanError, match="epsilon must be finite and > 0; got"):
            kind(epsilon=epsilon, sensitivity=1)

    @pytest.mark.parametrize("sensitivity", [0, -1, Fraction(-1, 2), 1.0, math.nan])
    def test_refuses_a_sensitivity_out_of_range(self, kind, sensitivity):
        with pytest.raises(PlanError, match=r"sensitivity must be .*got"):
            kind(epsilon=1.0, sensitivity=sensitivity)


class TestEvent:
    def test_of_the_exponential_mechanism_is_bounded_range(self):
        mechanism = ExponentialMechanism(epsilon=0.5, sensitivity=1)
        assert mechanism.event == exponential_event(epsilon=0.5)

    def test_of_permute_and_flip_is_pure(self):
        assert PermuteAndFlip(epsilon=0.5, sensitivity=1).event == pure_event(epsilon=0.5)
