"""Membership by loss, and the evaluation of membership scores."""

import json

import numpy as np
import pytest

from privacy.attacks.loss_threshold import evaluate, scores


class TestScores:
    def test_is_the_log_probability_of_the_label(self):
        logits = np.log(np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]))
        expected = np.log([0.2, 0.8])
        np.testing.assert_allclose(scores(logits, np.array([1, 2])), expected)

    def test_averages_the_loss_over_views(self):
        views = np.log(np.array([[[0.5, 0.5], [0.8, 0.2]]]))
        expected = [(np.log(0.5) + np.log(0.8)) / 2]
        np.testing.assert_allclose(scores(views, np.array([0])), expected)

    def test_extreme_logits_stay_finite(self):
        result = scores(np.array([[1e4, -1e4], [1e4, -1e4]]), np.array([0, 1]))
        np.testing.assert_allclose(result, [0.0, -2e4])

    def test_malformed_rows_score_lowest_in_silence(self):
        logits = np.array([[np.nan, 0.0], [np.inf, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
        result = scores(logits, np.array([0, 0, -1, 2, 1]))
        assert np.isneginf(result[:4]).all()
        assert np.isfinite(result[4])

    def test_refuses_shapes_that_do_not_fit(self):
        with pytest.raises(ValueError, match="logits must have shape"):
            scores(np.zeros((3, 2)), np.zeros(2, dtype=int))


class TestEvaluate:
    def test_auc_is_the_share_of_ordered_pairs(self):
        rng = np.random.default_rng(1)
        inside, outside = rng.integers(0, 9, 40), rng.integers(0, 7, 30)
        pairs = (inside[:, None] > outside) + 0.5 * (inside[:, None] == outside)
        result = evaluate(inside, outside, rng=rng)["auc"]
        assert result["value"] == pytest.approx(pairs.mean())
        assert result["low"] < result["value"] < result["high"]

    def test_interval_of_the_auc_covers_the_truth(self):
        rng = np.random.default_rng(2)
        covered = chance = 0
        truth = 0.7602499  # Φ(1/√2), two unit normals one apart
        for _ in range(200):
            shifted = evaluate(1 + rng.standard_normal(150), rng.standard_normal(150), rng=rng)
            covered += shifted["auc"]["low"] <= truth <= shifted["auc"]["high"]
            null = evaluate(rng.standard_normal(150), rng.standard_normal(150), rng=rng)
            chance += null["auc"]["low"] <= 0.5 <= null["auc"]["high"]
        assert covered >= 180
        assert chance >= 180

    def test_balanced_accuracy_is_not_flattered_by_its_threshold(self):
        rng = np.random.default_rng(3)
        values = [
            evaluate(rng.standard_normal(40), rng.standard_normal(40), rng=rng)[
                "balanced_accuracy"
            ]["value"]
            for _ in range(300)
        ]
        assert np.mean(values) == pytest.approx(0.5, abs=0.02)

    def test_full_separation_is_seen_and_keeps_an_interval(self):
        rng = np.random.default_rng(4)
        result = evaluate(10 + rng.random(200), rng.random(200), rng=rng)
        assert result["auc"]["value"] == 1
        assert 0.85 < result["auc"]["low"] < 1
        assert result["balanced_accuracy"]["value"] == 1
        assert 0.9 < result["balanced_accuracy"]["low"] < 1

    def test_low_fpr_is_refused_with_the_number_needed(self):
        rng = np.random.default_rng(5)
        result = evaluate(rng.random(50), rng.random(9_999), rng=rng)["tpr_at_fpr_0.1pct"]
        assert result == {"refused": "needs at least 10,000 non-members", "needed": 10_000}

    def test_low_fpr_is_given_with_enough_non_members(self):
        rng = np.random.default_rng(6)
        result = evaluate(2 + rng.standard_normal(5_000), rng.standard_normal(10_000), rng=rng)[
            "tpr_at_fpr_0.1pct"
        ]
        assert result["low"] < result["value"] < result["high"]
        assert result["value"] == pytest.approx(0.138, abs=0.05)  # 1 − Φ(3.09 − 2)
        assert result["fpr_upper"] == pytest.approx(0.00184, abs=1e-5)

    def test_ties_never_exceed_the_low_fpr(self):
        rng = np.random.default_rng(7)
        result = evaluate(np.ones(100), np.ones(10_000), rng=rng)["tpr_at_fpr_0.1pct"]
        assert result["value"] == 0

    def test_is_plain_enough_for_json_and_takes_malformed_scores(self):
        rng = np.random.default_rng(8)
        members = np.append(rng.random(20), [np.nan, -np.inf])
        result = evaluate(members, rng.random(20), rng=rng)
        assert json.loads(json.dumps(result, allow_nan=False)) == result
        hopeless = evaluate(np.full(20, np.nan), np.full(20, -np.inf), rng=rng)
        assert hopeless["balanced_accuracy"]["value"] == 0.5

    def test_the_generator_alone_decides_the_split(self):
        data = np.random.default_rng(9).standard_normal((2, 60))
        one, two = (evaluate(*data, rng=np.random.default_rng(1)) for _ in range(2))
        assert one == two

    def test_refuses_too_few_scores_and_a_wrong_confidence(self):
        rng = np.random.default_rng(10)
        with pytest.raises(ValueError, match="nonmember_scores must be one row of at least 8"):
            evaluate(rng.random(20), rng.random(7), rng=rng)
        with pytest.raises(ValueError, match=r"confidence must be .* got 1.5"):
            evaluate(rng.random(20), rng.random(20), rng=rng, confidence=1.5)
