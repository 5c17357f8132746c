"""Histograms: what a unit of k records moves, what is charged, and the noise's law."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privacy.accounting import discrete_gaussian_event, discrete_laplace_event
from privacy.errors import PlanError
from privacy.mechanisms import NoisyHistogram, histogram_sensitivity

DECLARED = {"bins": 4, "records_per_unit": 3, "noise": "gaussian", "scale": 6.0}


class TestSensitivity:
    @given(bins=st.lists(st.integers(0, 4), min_size=0, max_size=6))
    def test_bounds_what_one_unit_moves(self, bins):
        change = np.bincount(bins, minlength=5)
        k = max(len(bins), 1)
        assert np.abs(change).sum() <= histogram_sensitivity(norm="l1", records_per_unit=k)
        l2 = histogram_sensitivity(norm="l2", records_per_unit=k)
        assert np.linalg.norm(change) <= l2 + 1e-9

    @given(bins=st.sets(st.integers(0, 9), min_size=1))
    def test_is_the_root_where_no_bin_is_met_twice(self, bins):
        change = np.bincount(list(bins), minlength=10)
        l2 = histogram_sensitivity(norm="l2", records_per_unit=len(bins), once_per_bin=True)
        assert np.linalg.norm(change) == pytest.approx(l2)

    def test_in_l1_is_k_even_where_no_bin_is_met_twice(self):
        assert histogram_sensitivity(norm="l1", records_per_unit=5, once_per_bin=True) == 5

    @pytest.mark.parametrize("k", [0, -1, 1.5])
    def test_refuses_no_records(self, k):
        with pytest.raises(PlanError, match=r"records_per_unit must be >= 1.*got"):
            histogram_sensitivity(norm="l1", records_per_unit=k)

    def test_refuses_an_unknown_norm(self):
        with pytest.raises(PlanError, match="norm must be l1 or l2; got 'linf'"):
            histogram_sensitivity(norm="linf", records_per_unit=1)


class TestEvent:
    @pytest.mark.parametrize(("once", "multiplier"), [(False, 2.0), (True, 6 / math.sqrt(3))])
    def test_of_gaussian_noise_is_sigma_over_l2(self, once, multiplier):
        histogram = NoisyHistogram(**DECLARED, once_per_bin=once)
        assert histogram.event == discrete_gaussian_event(noise_multiplier=multiplier)

    def test_of_laplace_noise_is_its_rate_and_k(self):
        histogram = NoisyHistogram(**DECLARED | {"noise": "laplace", "scale": 4.0})
        assert histogram.event == discrete_laplace_event(noise_parameter=0.25, sensitivity=3)


class TestRelease:
    @pytest.mark.parametrize(
        ("noise", "weight"),
        [("gaussian", lambda x: np.exp(-(x**2) / 18)), ("laplace", lambda x: np.exp(-abs(x) / 3))],
    )
    def test_adds_discrete_noise_of_the_scale(self, noise, weight):
        count, points = 4000, np.arange(-12, 13)
        histogram = NoisyHistogram(bins=count, records_per_unit=1, noise=noise, scale=3.0)
        counts = np.full(count, 100, dtype=np.int64)
        drawn = histogram.release(counts, randbelow=random.Random(51).randrange) - 100
        mass = weight(points) / weight(np.arange(-400, 401)).sum()
        observed = np.array([(drawn == x).sum() for x in points])
        expected = count * mass
        keep = expected >= 5
        seen = np.append(observed[keep], count - observed[keep].sum())
        awaited = np.append(expected[keep], count - expected[keep].sum())
        statistic = float(((seen - awaited) ** 2 / awaited)[awaited > 1].sum())
        assert stats.chi2.sf(statistic, int((awaited > 1).sum()) - 1) > 1e-3

    def test_noises_empty_bins_as_well(self):
        histogram = NoisyHistogram(**DECLARED | {"scale": 1e6})
        assert histogram.release(np.zeros(4, dtype=np.int64)).all()

    @pytest.mark.parametrize("counts", [np.zeros(3, dtype=np.int64), np.zeros(4)])
    def test_refuses_what_are_not_counts_of_the_declared_bins(self, counts):
        with pytest.raises(PlanError, match=r"counts must be whole numbers of shape \(4,\); got"):
            NoisyHistogram(**DECLARED).release(counts)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("bins", 0), ("records_per_unit", 0), ("noise", "cauchy"), ("scale", math.nan)],
    )
    def test_refuses_parameters_out_of_range(self, name, value):
        with pytest.raises(PlanError, match=rf"{name} must be .*; got"):
            NoisyHistogram(**DECLARED | {name: value})
