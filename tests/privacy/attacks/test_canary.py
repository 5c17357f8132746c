"""Dirac canaries against a small DP-SGD in numpy: a right build, and broken ones."""

import secrets

import numpy as np
import pytest

from privacy.attacks.bounds import verdict
from privacy.attacks.canary import (
    canary_labels,
    dirac_scores,
    draw_coins,
    guesses,
    one_run_bound,
    plant,
    repeated_bound,
    repeated_threshold,
)

CLAIM, DELTA, CLASSES = 0.5, 1e-5, 2
# 11.3343 is the noise for ε = 0.5 at δ = 1e-5, q = 0.25, T = 40 (PLD, Poisson sampling), found
# with dp_accounting; rounded up.
PLAN = {"sample_rate": 0.25, "steps": 40, "max_grad_norm": 1.0}
NOISE = 11.34
RATE, DIVISOR = 0.5, 100.0


def train(features, labels, *, noise, rng, sample_rate, steps, max_grad_norm, classes=CLASSES):
    """DP-SGD on a linear head, written out: per-example gradients, clip, sum, noise."""
    weight, bias = np.zeros((classes, features.shape[1])), np.zeros(classes)
    target = np.eye(classes)[labels]
    for _ in range(steps):
        drawn = rng.random(len(features)) < sample_rate
        x, logits = features[drawn], features[drawn] @ weight.T + bias
        p = np.exp(logits - logits.max(1, keepdims=True))
        residual = p / p.sum(1, keepdims=True) - target[drawn]
        norm = np.linalg.norm(residual, axis=1) * np.sqrt((x**2).sum(1) + 1)
        residual *= np.minimum(1, max_grad_norm / np.maximum(norm, 1e-12))[:, None]
        scale = noise * max_grad_norm
        weight -= RATE / DIVISOR * (residual.T @ x + scale * rng.standard_normal(weight.shape))
        bias -= RATE / DIVISOR * (residual.sum(0) + scale * rng.standard_normal(classes))
    return weight


def twin(rng, n=150, d=8):
    features = rng.standard_normal((n, d))
    return features / np.linalg.norm(features, axis=1, keepdims=True), rng.integers(0, CLASSES, n)


def one_run_experiment(noise, seed, *, m=600, count=300):
    rng = np.random.default_rng(seed)
    features, labels = twin(rng)
    coins = draw_coins(m=m, token_bytes=rng.bytes)
    planted, planted_labels = plant(features, labels, m, CLASSES, coins)
    after = train(planted, planted_labels, noise=noise, rng=rng, **PLAN)
    scores = dirac_scores(np.zeros_like(after), after, canary_labels(m=m, classes=CLASSES))
    unseen = draw_coins(m=m, token_bytes=rng.bytes)
    return tuple(one_run_bound(scores, c, count=count, delta=DELTA) for c in (coins, unseen))


class TestPlant:
    def test_canaries_stand_alone_on_their_coordinates(self):
        rng = np.random.default_rng(1)
        features, labels = twin(rng, n=5, d=3)
        coins = np.array([1, 0, 1, 1])
        planted, planted_labels = plant(features.astype(np.float32), labels, 4, 3, coins)
        assert planted.dtype == np.float32
        np.testing.assert_array_equal(planted[:5, :3], features.astype(np.float32))
        assert not planted[:5, 3:].any()
        np.testing.assert_array_equal(planted[5:, 3:], np.eye(4)[[0, 2, 3]])
        assert not planted[5:, :3].any()
        np.testing.assert_array_equal(planted_labels, [*labels, 0, 2, 0])

    def test_every_view_of_a_canary_is_the_canary(self):
        planted, _ = plant(np.ones((2, 3, 4)), np.zeros(2, dtype=int), 2, 2, np.array([0, 1]))
        assert planted.shape == (3, 3, 6)
        np.testing.assert_array_equal(planted[2], np.tile(np.eye(6)[5], (3, 1)))

    @pytest.mark.parametrize("coins", [[0, 2], [0, 1, 1], [0.5, 1]])
    def test_refuses_what_are_no_coins(self, coins):
        with pytest.raises(ValueError, match=r"coins must have shape \(2,\) and be 0 or 1"):
            plant(np.ones((2, 4)), np.zeros(2, dtype=int), 2, 2, np.array(coins))

    @pytest.mark.parametrize("source", [secrets.token_bytes, np.random.default_rng(2).bytes])
    def test_coins_are_fair_and_of_any_number(self, source):
        coins = draw_coins(m=4001, token_bytes=source)
        assert coins.shape == (4001,)
        assert 0.4 < coins.mean() < 0.6  # 12 standard deviations


class TestScores:
    def test_noiseless_training_moves_only_the_canaries_that_entered(self):
        rng = np.random.default_rng(3)
        features, labels = twin(rng)
        coins = draw_coins(m=30, token_bytes=rng.bytes)
        planted, planted_labels = plant(features, labels, 30, CLASSES, coins)
        after = train(planted, planted_labels, noise=0.0, rng=rng, **PLAN)
        scores = dirac_scores(np.zeros_like(after), after, canary_labels(m=30, classes=CLASSES))
        np.testing.assert_array_equal(scores > 0, coins == 1)
        np.testing.assert_array_equal(scores[coins == 0], 0)

    def test_is_relative_to_the_initial_weights(self):
        rng = np.random.default_rng(4)
        before, moved = rng.standard_normal((3, 9)), np.zeros((3, 9))
        assert not dirac_scores(before, before, np.array([0, 1, 2])).any()
        moved[2, 8] = 1.0  # towards its own class
        assert dirac_scores(before, before + moved, np.array([0, 1, 2]))[2] > 0

    def test_refuses_weights_that_are_not_finite(self):
        after = np.zeros((2, 4))
        after[0, 3] = np.nan
        with pytest.raises(ValueError, match="must be finite"):
            dirac_scores(np.zeros((2, 4)), after, np.array([0]))

    def test_refuses_more_canaries_than_columns(self):
        with pytest.raises(ValueError, match="between 1 and d \\+ m = 4 canaries; got 5"):
            dirac_scores(np.zeros((2, 4)), np.zeros((2, 4)), np.zeros(5, dtype=int))


class TestGuesses:
    def test_top_in_bottom_out_and_abstain_between(self):
        result = guesses(np.array([0.3, -2.0, 5.0, 0.1, 9.0, -7.0]), 4)
        np.testing.assert_array_equal(result, [0, -1, 1, 0, 1, -1])

    def test_ties_still_give_the_declared_number(self):
        result = guesses(np.zeros(10), 10)
        assert (result == 1).sum() == (result == -1).sum() == 5

    @pytest.mark.parametrize("count", [0, 3, 12])
    def test_refuses_a_count_that_does_not_fit(self, count):
        with pytest.raises(ValueError, match="even and between 2 and m = 10"):
            guesses(np.zeros(10), count)


class TestThreshold:
    @pytest.mark.parametrize("change", [{}, {"max_grad_norm": 0.1}, {"steps": 400}])
    def test_lies_halfway_to_where_a_noiseless_run_goes(self, change):
        plan = PLAN | change
        threshold = repeated_threshold(**plan, learning_rate=RATE, divisor=DIVISOR, classes=CLASSES)
        rng = np.random.default_rng(5)
        features, labels = plant(np.zeros((0, 2)), np.zeros(0, dtype=int), 1, 2, np.array([1]))
        reached = []
        for _ in range(60):
            after = train(features, labels, noise=0.0, rng=rng, **plan)
            reached.append(dirac_scores(np.zeros_like(after), after, np.array([0]))[0])
        # The bias, too, learns the lone canary, so it arrives a little short when steps are many.
        assert np.mean(reached) / 2 == pytest.approx(threshold, rel=0.15)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"sample_rate": 1.5}, r"sample_rate must be in \(0, 1\]; got 1.5"),
            ({"divisor": 0.0}, "divisor must be finite and > 0; got 0.0"),
            ({"max_grad_norm": float("nan")}, "max_grad_norm must be finite and > 0; got nan"),
            ({"steps": 0}, "steps must be ≥ 1; got 0"),
            ({"label": 2}, r"label must be in \[0, classes = 2\); got 2"),
        ],
    )
    def test_refuses_constants_that_no_plan_holds(self, change, message):
        constants = PLAN | {"learning_rate": 1.0, "divisor": 1.0, "classes": 2} | change
        with pytest.raises(ValueError, match=message):
            repeated_threshold(**constants)


class TestMechanismAudit:
    def test_the_right_noise_passes(self):
        positive, _ = one_run_experiment(0.0, seed=6)
        bound, negative = one_run_experiment(NOISE, seed=7)
        assert positive.lower_bound == positive.ceiling  # a perfect attack, near ln(300 / 3)
        assert verdict(CLAIM, [bound], positive, negative) == "pass"

    def test_the_right_noise_stays_below_the_claim_in_nearly_all_repeats(self):
        above = sum(
            one_run_experiment(NOISE, seed=100 + i)[0].lower_bound > CLAIM for i in range(20)
        )
        assert above <= 1

    def test_noise_twenty_times_too_small_is_found(self):
        positive, _ = one_run_experiment(0.0, seed=8)
        bound, negative = one_run_experiment(0.05 * NOISE, seed=9)
        assert bound.lower_bound > 2 * CLAIM
        assert verdict(CLAIM, [bound], positive, negative) == "fail"

    def test_unclipped_canaries_are_found(self):
        rng = np.random.default_rng(10)
        m = 200
        features, labels = twin(rng)
        coins = draw_coins(m=m, token_bytes=rng.bytes)
        planted, planted_labels = plant(features, labels, m, CLASSES, coins, scale=40.0)
        plan = PLAN | {"max_grad_norm": 1e9}  # what is clipped, against noise for C = 1
        after = train(planted, planted_labels, noise=NOISE / 1e9, rng=rng, **plan)
        scores = dirac_scores(
            np.zeros_like(after), after, canary_labels(m=m, classes=CLASSES), scale=40.0
        )
        bound = one_run_bound(scores, coins, count=100, delta=DELTA)
        assert bound.lower_bound > 2 * CLAIM

    @pytest.mark.parametrize(("noise", "found"), [(0.05 * NOISE, True), (NOISE, False)])
    def test_repeated_runs_see_the_same(self, noise, found):
        rng = np.random.default_rng(11)
        features, labels = twin(rng, n=20, d=3)
        coins = np.repeat([0, 1], 100)
        scores = np.empty(200)
        for run, coin in enumerate(coins):
            planted, planted_labels = plant(features, labels, 1, CLASSES, np.array([coin]))
            after = train(planted, planted_labels, noise=noise, rng=rng, **PLAN)
            scores[run] = dirac_scores(np.zeros_like(after), after, np.array([0]))[0]
        threshold = repeated_threshold(**PLAN, learning_rate=RATE, divisor=DIVISOR, classes=CLASSES)
        bound = repeated_bound(scores, coins, threshold=threshold, delta=DELTA)
        assert (bound.lower_bound > CLAIM) == found
        assert bound.ceiling == pytest.approx(3.28, abs=5e-3)
