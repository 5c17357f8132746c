"""Whole-number noise against its exact distribution, and joint sensitivities."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privacy.errors import PlanError
from privacy.mechanisms import (
    confusion_sensitivity,
    discrete_gaussian,
    discrete_laplace,
    noised_counts,
)

SIGMAS = [0.4, 1.0, 2.5, 7.3]


def exact(sigma: float, reach: int) -> np.ndarray:
    """P(−reach) … P(reach)."""
    points = np.arange(-reach, reach + 1)
    weights = np.exp(-(points**2) / (2 * sigma**2))
    return weights / weights.sum()


def drawn(sigma: float, count: int, seed: int) -> np.ndarray:
    randbelow = random.Random(seed).randrange
    return np.array([discrete_gaussian(sigma=sigma, randbelow=randbelow) for _ in range(count)])


class TestDiscreteGaussian:
    @pytest.mark.parametrize("sigma", SIGMAS)
    def test_has_the_exact_distribution(self, sigma):
        count, reach = 8000, math.ceil(12 * sigma)
        sample = drawn(sigma, count, seed=11)
        expected = count * exact(sigma, reach)
        observed = np.bincount(sample + reach, minlength=2 * reach + 1)
        rare = expected < 5
        keep = np.append(expected[~rare], expected[rare].sum() + 1e-9)
        seen = np.append(observed[~rare], observed[rare].sum())
        statistic = float(((seen - keep) ** 2 / keep)[keep > 1].sum())
        assert stats.chi2.sf(statistic, int((keep > 1).sum()) - 1) > 1e-3

    @pytest.mark.parametrize("sigma", SIGMAS)
    def test_has_the_exact_variance(self, sigma):
        points, weights = np.arange(-100, 101), exact(sigma, 100)
        variance = float((points**2 * weights).sum())
        assert drawn(sigma, 8000, seed=12).var() == pytest.approx(variance, rel=0.08)

    def test_gives_whole_numbers(self):
        assert isinstance(discrete_gaussian(sigma=3.0), int)

    @pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
    def test_refuses_a_scale_out_of_range(self, sigma):
        with pytest.raises(PlanError, match=r"sigma must be .*got"):
            discrete_gaussian(sigma=sigma)

    def test_two_draws_from_the_operating_system_differ(self):
        one, two = ([discrete_gaussian(sigma=1e6) for _ in range(8)] for _ in range(2))
        assert one != two


class TestDiscreteLaplace:
    @pytest.mark.parametrize("rate", [0.15, 0.7, 1.0, 2.3])
    def test_has_the_exact_distribution(self, rate):
        count, reach = 8000, math.ceil(40 / rate)
        randbelow = random.Random(14).randrange
        sample = np.array(
            [discrete_laplace(noise_parameter=rate, randbelow=randbelow) for _ in range(count)]
        )
        weights = np.exp(-rate * np.abs(np.arange(-reach, reach + 1)))
        expected = count * weights / weights.sum()
        observed = np.bincount(sample + reach, minlength=2 * reach + 1)
        keep = expected >= 5
        seen = np.append(observed[keep], observed[~keep].sum())
        awaited = np.append(expected[keep], expected[~keep].sum())
        statistic = float(((seen - awaited) ** 2 / awaited).sum())
        assert stats.chi2.sf(statistic, len(seen) - 1) > 1e-3

    @pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
    def test_refuses_a_rate_out_of_range(self, rate):
        with pytest.raises(PlanError, match=r"noise_parameter must be .*got"):
            discrete_laplace(noise_parameter=rate)


class TestNoisedCounts:
    def test_keeps_shape_and_whole_numbers(self):
        counts = np.arange(12, dtype=np.int64).reshape(3, 4)
        noised = noised_counts(counts, sigma=2.0)
        assert noised.shape == (3, 4)
        assert noised.dtype == np.int64

    def test_does_not_touch_its_input(self):
        counts = np.zeros((5, 5), dtype=np.int64)
        noised_counts(counts, sigma=50.0)
        assert not counts.any()

    def test_noises_every_cell_independently(self):
        randbelow = random.Random(13).randrange
        zeros = np.zeros((2000, 2), dtype=np.int64)
        noise = noised_counts(zeros, sigma=5.0, randbelow=randbelow)
        assert abs(np.corrcoef(noise.T)[0, 1]) < 0.08
        assert noise.std(axis=0) == pytest.approx([5, 5], rel=0.08)


class TestConfusionSensitivity:
    @given(
        arms=st.integers(1, 4),
        k=st.integers(1, 4),
        classes=st.integers(2, 4),
        random=st.randoms(use_true_random=False),
    )
    def test_bounds_what_one_unit_moves(self, arms, k, classes, random):
        change = np.zeros((arms, classes, classes))
        for _ in range(k):
            truth = random.randrange(classes)
            for arm in range(arms):
                change[arm, truth, random.randrange(classes)] += 1
        bound = confusion_sensitivity(arms=arms, records_per_unit=k)
        assert np.linalg.norm(change) <= bound + 1e-9

    @pytest.mark.parametrize(("arms", "k"), [(1, 1), (3, 1), (2, 5)])
    def test_is_attained(self, arms, k):
        change = np.zeros((arms, 2, 2))
        change[:, 0, 1] = k
        bound = confusion_sensitivity(arms=arms, records_per_unit=k)
        assert np.linalg.norm(change) == pytest.approx(bound)

    @pytest.mark.parametrize(("arms", "k"), [(0, 1), (1, 0), (-1, 1)])
    def test_refuses_nothing_to_release(self, arms, k):
        with pytest.raises(PlanError, match="must be >= 1; got"):
            confusion_sensitivity(arms=arms, records_per_unit=k)
