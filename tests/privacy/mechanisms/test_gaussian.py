"""The analytic calibration against its oracles, and the vector release."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privacy.accounting import gaussian_event
from privacy.errors import PlanError
from privacy.mechanisms import GaussianMechanism, analytic_gaussian_sigma
from privacy.noise import NoiseSource

ORACLES = json.loads((Path(__file__).parents[2] / "oracles.json").read_text())
SIGMAS = ORACLES["analytic_gaussian_sigma"]
CASES = [
    (float(epsilon), float(name.removeprefix("delta_")), sigma)
    for name, row in SIGMAS.items()
    if name.startswith("delta_")
    for epsilon, sigma in row.items()
]


def delta_of(sigma, epsilon):
    """From normal tail functions, another way than the module's logarithms."""
    upper = stats.norm.sf(epsilon * sigma - 1 / (2 * sigma))
    return upper - math.exp(epsilon) * stats.norm.sf(epsilon * sigma + 1 / (2 * sigma))


class TestCalibration:
    @pytest.mark.parametrize(("epsilon", "delta", "sigma"), CASES)
    def test_gives_the_oracles_sigma(self, epsilon, delta, sigma):
        found = analytic_gaussian_sigma(epsilon=epsilon, delta=delta)
        # The oracle has six decimals: half of the last one is its own error.
        assert abs(found - sigma) <= 1e-6 * sigma + 5e-7

    @given(epsilon=st.floats(0.05, 20), exponent=st.floats(2, 10))
    def test_meets_delta_and_wastes_nothing(self, epsilon, exponent):
        delta = 10**-exponent
        sigma = analytic_gaussian_sigma(epsilon=epsilon, delta=delta)
        assert delta_of(sigma, epsilon) <= delta * (1 + 1e-4)
        assert delta_of(sigma * (1 - 1e-4), epsilon) > delta

    @pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.9])
    def test_needs_less_noise_than_the_classical_formula(self, epsilon):
        classical = math.sqrt(2 * math.log(1.25 / 1e-5)) / epsilon
        assert analytic_gaussian_sigma(epsilon=epsilon, delta=1e-5) < classical

    @given(sensitivity=st.floats(1e-3, 1e3))
    def test_grows_with_the_sensitivity(self, sensitivity):
        one = analytic_gaussian_sigma(epsilon=1.0, delta=1e-5)
        found = analytic_gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=sensitivity)
        assert found == pytest.approx(one * sensitivity, rel=1e-12)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("epsilon", math.nan), ("epsilon", 0.0), ("delta", math.nan), ("delta", 1.0),
         ("delta", 0.0), ("sensitivity", math.inf), ("sensitivity", -1.0)],
    )  # fmt: skip
    def test_refuses_a_value_out_of_range(self, name, value):
        with pytest.raises(PlanError, match=rf"{name} must be .*got"):
            analytic_gaussian_sigma(**{"epsilon": 1.0, "delta": 1e-5, name: value})


class TestRelease:
    def test_adds_normal_noise_of_sigma(self):
        mechanism = GaussianMechanism(sensitivity=1.0, sigma=3.0)
        values = np.linspace(-5, 5, 20_000)
        noise = mechanism.release(values, source=NoiseSource.for_test(1)) - values
        assert stats.kstest(noise / 3.0, "norm").pvalue > 1e-3

    def test_keeps_the_shape_in_float32(self):
        mechanism = GaussianMechanism(sensitivity=1.0, sigma=3.0)
        released = mechanism.release(np.zeros((3, 4)), source=NoiseSource.for_test(1))
        assert (released.shape, released.dtype) == ((3, 4), np.float32)

    def test_does_not_touch_its_input(self):
        values = np.zeros(5, dtype=np.float32)
        mechanism = GaussianMechanism(sensitivity=1.0, sigma=3.0)
        mechanism.release(values, source=NoiseSource.for_test(1))
        assert not values.any()

    @pytest.mark.parametrize("value", [math.nan, math.inf, 1e300])
    def test_takes_what_is_not_finite_as_zero(self, value):
        mechanism = GaussianMechanism(sensitivity=1.0, sigma=3.0)
        broken, whole = (
            mechanism.release(np.array([7.25, cell]), source=NoiseSource.for_test(1))
            for cell in (value, 0.0)
        )
        assert (broken == whole).all()

    @pytest.mark.parametrize("name", ["sensitivity", "sigma"])
    def test_refuses_parameters_out_of_range(self, name):
        with pytest.raises(PlanError, match=f"{name} must be finite and > 0; got nan"):
            GaussianMechanism(**{"sensitivity": 1.0, "sigma": 1.0, name: math.nan})

    def test_is_charged_by_noise_over_sensitivity(self):
        mechanism = GaussianMechanism(sensitivity=2.0, sigma=3.0)
        assert mechanism.event == gaussian_event(noise_multiplier=1.5)

    def test_calibrated_has_the_analytic_sigma(self):
        mechanism = GaussianMechanism.calibrated(sensitivity=2.0, epsilon=1.0, delta=1e-5)
        assert mechanism.sigma == pytest.approx(2 * SIGMAS["delta_1e-5"]["1"], rel=1e-6)
