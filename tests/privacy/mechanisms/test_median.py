"""Smooth sensitivity of the median against brute force over small data, and the noise's density."""

from __future__ import annotations

import functools
import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats

from privacy.accounting import pure_event
from privacy.errors import PlanError
from privacy.mechanisms import SmoothMedian
from privacy.noise import NoiseSource

GRID = (0, 1, 3, 7)
LOW, HIGH = GRID[0], GRID[-1]
DATA = [x for n in range(6) for x in itertools.combinations_with_replacement(GRID, n)]
MEDIAN = SmoothMedian(epsilon=1.0, low=LOW, high=HIGH)


def array(x):
    return np.array(x, dtype=float)


@functools.cache
def by_hand(x):
    """The lower middle value; the lower bound where there is nobody."""
    return sorted(x)[(len(x) - 1) // 2] if x else LOW


@functools.cache
def neighbours(x):
    fewer = {x[:i] + x[i + 1 :] for i in range(len(x))}
    more = {tuple(sorted((*x, value))) for value in GRID}
    return frozenset(fewer | more)


@functools.cache
def local(x):
    return max(abs(by_hand(x) - by_hand(y)) for y in neighbours(x))


@functools.cache
def local_within(x, distance):
    if distance == 0:
        return local(x)
    return max(local_within(y, distance - 1) for y in neighbours(x) | {x})


class TestLocalSensitivity:
    @pytest.mark.parametrize("distance", range(5))
    def test_is_what_brute_force_finds(self, distance):
        for x in DATA:
            found = MEDIAN.local_sensitivity(array(x), distance=distance)
            assert found == local_within(x, distance), x


class TestSmoothSensitivity:
    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
    def test_bounds_the_local_one_at_every_distance(self, epsilon):
        median = SmoothMedian(epsilon=epsilon, low=LOW, high=HIGH)
        for x in DATA:
            smooth = median.smooth_sensitivity(array(x))
            for k in range(5):
                assert smooth >= math.exp(-median.beta * k) * local_within(x, k) - 1e-12

    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
    def test_moves_by_a_factor_of_at_most_exp_beta(self, epsilon):
        median = SmoothMedian(epsilon=epsilon, low=LOW, high=HIGH)
        for x in DATA:
            for y in neighbours(x):
                ratio = median.smooth_sensitivity(array(x)) / median.smooth_sensitivity(array(y))
                assert abs(math.log(ratio)) <= median.beta + 1e-12


class TestMedian:
    def test_is_the_lower_middle_value(self):
        assert all(MEDIAN.median(array(x)) == by_hand(x) for x in DATA)

    def test_moves_values_into_the_declared_range(self):
        assert MEDIAN.median(array([-50, 100, 100])) == HIGH

    def test_takes_no_notice_of_what_is_not_finite(self):
        assert MEDIAN.median(array([math.nan, 3, math.inf, -math.inf])) == 3


class TestRelease:
    @pytest.mark.parametrize("epsilon", [0.5, 2.0])
    def test_loses_at_most_epsilon_at_every_output(self, epsilon):
        median = SmoothMedian(epsilon=epsilon, low=LOW, high=HIGH)
        outputs = np.linspace(-200, 200, 2001)

        def log_density(x):
            scale = median.smooth_sensitivity(array(x)) / median.beta
            return stats.cauchy.logpdf(outputs, loc=median.median(array(x)), scale=scale)

        for x in DATA:
            here = log_density(x)
            for y in neighbours(x):
                assert np.abs(here - log_density(y)).max() <= epsilon + 1e-9

    def test_has_cauchy_noise_of_the_stated_scale(self):
        wide = SmoothMedian(epsilon=1.0, low=-1e3, high=1e3)
        values = np.arange(-20.0, 21.0)
        randbelow = random.Random(31).randrange
        drawn = [wide.release(values, randbelow=randbelow) for _ in range(2000)]
        scale = wide.smooth_sensitivity(values) / wide.beta
        inside = stats.cauchy.cdf(drawn, loc=0.0, scale=scale)
        # The ends of the range hold what was moved there; between them the law is the Cauchy's.
        kept = inside[np.abs(drawn) < 1e3]
        low, high = stats.cauchy.cdf([-1e3, 1e3], loc=0.0, scale=scale)
        assert stats.kstest((kept - low) / (high - low), "uniform").pvalue > 1e-3

    def test_stays_within_the_declared_range(self):
        source = NoiseSource.for_test(1)
        drawn = [MEDIAN.release(array([]), randbelow=source.randbelow) for _ in range(50)]
        assert LOW <= min(drawn) <= max(drawn) <= HIGH

    def test_comes_near_where_many_agree(self):
        values = np.full(2000, 3.0)
        randbelow = random.Random(32).randrange
        assert MEDIAN.release(values, randbelow=randbelow) == pytest.approx(3.0, abs=1e-6)

    def test_is_charged_as_pure_epsilon(self):
        assert MEDIAN.event == pure_event(epsilon=1.0)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("epsilon", math.nan), ("epsilon", 0.0), ("low", math.nan), ("high", math.inf)],
    )
    def test_refuses_a_parameter_out_of_range(self, name, value):
        with pytest.raises(PlanError, match=rf"{name} must be finite.*; got {value}"):
            SmoothMedian(**{"epsilon": 1.0, "low": 0.0, "high": 1.0, name: value})

    def test_refuses_an_empty_range(self):
        with pytest.raises(PlanError, match="high - low must be finite and > 0; got 0"):
            SmoothMedian(epsilon=1.0, low=2.0, high=2.0)
