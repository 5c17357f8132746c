"""The Laplace release: its law, its scale and its refusals."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privacy.accounting import laplace_event
from privacy.errors import PlanError
from privacy.mechanisms import LaplaceMechanism


class TestRelease:
    def test_adds_laplace_noise_of_the_scale(self):
        mechanism = LaplaceMechanism(sensitivity=1.0, scale=3.0)
        values = np.linspace(-5, 5, 5000)
        noise = mechanism.release(values, randbelow=random.Random(41).randrange) - values
        assert stats.kstest(noise / 3.0, "laplace").pvalue > 1e-3

    def test_keeps_the_shape_in_float32(self):
        released = LaplaceMechanism(sensitivity=1.0, scale=3.0).release(np.zeros((3, 4)))
        assert (released.shape, released.dtype) == ((3, 4), np.float32)

    @pytest.mark.parametrize("value", [math.nan, math.inf, 1e300])
    def test_takes_what_is_not_finite_as_zero(self, value):
        mechanism = LaplaceMechanism(sensitivity=1.0, scale=3.0)
        broken, whole = (
            mechanism.release(np.array([7.25, cell]), randbelow=random.Random(42).randrange)
            for cell in (value, 0.0)
        )
        assert (broken == whole).all()

    @pytest.mark.parametrize("uniform", [0, 2**63 - 1])
    def test_is_finite_at_both_ends_of_the_uniform(self, uniform):
        mechanism = LaplaceMechanism(sensitivity=1.0, scale=1.0)
        released = mechanism.release(np.zeros(1), randbelow=lambda n: min(uniform, n - 1))
        assert np.isfinite(released).all()


class TestScale:
    @given(sensitivity=st.floats(1e-3, 1e3), epsilon=st.floats(1e-2, 20))
    def test_is_never_below_what_epsilon_needs(self, sensitivity, epsilon):
        mechanism = LaplaceMechanism.calibrated(sensitivity=sensitivity, epsilon=epsilon)
        assert sensitivity / mechanism.scale <= epsilon
        assert sensitivity / mechanism.scale == pytest.approx(epsilon, rel=1e-12)

    def test_over_sensitivity_is_what_is_charged(self):
        mechanism = LaplaceMechanism(sensitivity=2.0, scale=3.0)
        assert mechanism.event == laplace_event(noise_multiplier=1.5)

    @pytest.mark.parametrize("name", ["sensitivity", "scale"])
    @pytest.mark.parametrize("value", [math.nan, 0.0, -1.0, math.inf])
    def test_out_of_range_is_refused(self, name, value):
        with pytest.raises(PlanError, match=f"{name} must be finite and > 0; got {value}"):
            LaplaceMechanism(**{"sensitivity": 1.0, "scale": 1.0, name: value})

    @pytest.mark.parametrize("epsilon", [math.nan, 0.0, -1.0])
    def test_refuses_an_epsilon_out_of_range(self, epsilon):
        with pytest.raises(PlanError, match=f"epsilon must be finite and > 0; got {epsilon}"):
            LaplaceMechanism.calibrated(sensitivity=1.0, epsilon=epsilon)
