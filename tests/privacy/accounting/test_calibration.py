"""Tight prices as numbers that are searched: calibration, and that more never costs less."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.accounting import (
    calibrate_noise,
    dpsgd_event,
    gaussian_event,
    pld_epsilon,
    rdp_epsilon,
)
from privacy.errors import PlanError, PrivacyError

BAD_NUMBERS = (math.nan, math.inf, -math.inf, -1.0, 0.0, -0.0)


def dpsgd(sigma: float, rate: float, steps: int):
    return dpsgd_event(noise_multiplier=sigma, sample_rate=rate, steps=steps)


class TestCalibration:
    @settings(max_examples=5)
    @given(st.floats(0.05, 12), st.floats(1e-9, 1e-3))
    def test_never_exceeds_its_target_and_wastes_little(self, epsilon, delta):
        sigma = calibrate_noise(
            lambda s: dpsgd(s, 0.01, 500), epsilon=epsilon, delta=delta, price=rdp_epsilon
        )
        assert rdp_epsilon(dpsgd(sigma, 0.01, 500), delta=delta) <= epsilon
        assert rdp_epsilon(dpsgd(sigma * 0.998, 0.01, 500), delta=delta) > epsilon

    def test_finds_the_noise_of_a_run(self):
        sigma = calibrate_noise(lambda s: dpsgd(s, 0.2, 100), epsilon=0.5, delta=1e-5)
        assert sigma == pytest.approx(14.21, rel=0.01)

    def test_never_prices_noise_far_below_the_answer(self):
        # The tight price of tiny noise takes minutes and gigabytes: a search must not touch it.
        asked = []

        def price(event, *, delta):
            asked.append(event.noise_multiplier)
            return rdp_epsilon(event, delta=delta)

        sigma = calibrate_noise(
            lambda s: gaussian_event(noise_multiplier=s), epsilon=8, delta=1e-5, price=price
        )
        assert min(asked) > sigma / 4

    @pytest.mark.parametrize("value", [*BAD_NUMBERS, 1.0, 2.0])
    def test_refuses_a_delta_out_of_range(self, value):
        with pytest.raises(PlanError, match=r"delta must be .* got"):
            calibrate_noise(lambda s: gaussian_event(noise_multiplier=s), epsilon=1, delta=value)

    @pytest.mark.parametrize("value", BAD_NUMBERS)
    def test_refuses_an_epsilon_out_of_range(self, value):
        with pytest.raises(PlanError, match=r"epsilon must be .* got .*training\.epsilon"):
            calibrate_noise(lambda s: gaussian_event(noise_multiplier=s), epsilon=value, delta=1e-5)

    def test_says_when_no_noise_is_enough(self):
        with pytest.raises(PrivacyError, match=r"no noise up to 1e6.*Raise epsilon"):
            calibrate_noise(
                lambda s: dpsgd(s, 1.0, 10**9), epsilon=1e-3, delta=1e-9, price=rdp_epsilon
            )


class TestPldMonotonicity:
    @settings(max_examples=5)
    @given(st.floats(1, 4), st.floats(1e-3, 0.1), st.integers(10, 300), st.data())
    def test_less_noise_more_sampling_and_more_steps_never_cost_less(self, sigma, q, steps, data):
        base = pld_epsilon(dpsgd(sigma, q, steps), delta=1e-5)
        dearer = data.draw(
            st.sampled_from(
                [(sigma * 0.9, q, steps), (sigma, q * 1.2, steps), (sigma, q, steps * 2)]
            )
        )
        assert pld_epsilon(dpsgd(*dearer), delta=1e-5) >= base
        assert pld_epsilon(dpsgd(sigma, q, steps), delta=1e-6) >= base
