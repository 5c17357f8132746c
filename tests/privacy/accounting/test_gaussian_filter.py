"""The adaptive Gaussian-DP filter: domination everywhere, and its arithmetic."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy import accounting
from privacy.accounting import GaussianFilter, gaussian
from privacy.accounting.analytic import gaussian_delta
from privacy.accounting.prices import deltas, loss_distribution
from privacy.errors import PlanError, UnsupportedMechanism

DELTA = 1e-5
PLANS = [(1.0, 0.01, 1000), (0.8, 0.01, 1000), (4.0, 0.25, 60), (2.0, 1 / 16, 7), (30.0, 0.02, 50)]


def dpsgd(sigma, rate, steps):
    return accounting.dpsgd_event(noise_multiplier=sigma, sample_rate=rate, steps=steps)


@pytest.fixture
def gate():
    return GaussianFilter(2.0, DELTA)


class TestDomination:
    @pytest.mark.parametrize(("sigma", "rate", "steps"), PLANS)
    def test_holds_between_and_beyond_the_cells(self, sigma, rate, steps, gate):
        event = dpsgd(sigma, rate, steps)
        mu = gaussian.dominating_mu(event, gate.leak)
        # A grid of its own, finer, irregular and far longer than the one that found μ.
        at = np.concatenate(
            [np.geomspace(1e-6, 1, 4001), np.linspace(0, 30, 30011), np.linspace(30, 300, 500)]
        )
        run = deltas(loss_distribution(event), np.sort(at))
        allowed = (1 - gate.leak) * gaussian_delta(mu, np.sort(at)) + gate.leak
        assert np.all(run <= allowed)

    @pytest.mark.parametrize(("sigma", "rate", "steps"), PLANS[:3])
    def test_fails_for_a_slightly_smaller_mu(self, sigma, rate, steps, gate):
        event = dpsgd(sigma, rate, steps)
        mu = gaussian.dominating_mu(event, gate.leak) * 0.98
        at = np.linspace(0, 30, 30011)
        run = deltas(loss_distribution(event), at)
        assert np.any(run > (1 - gate.leak) * gaussian_delta(mu, at) + gate.leak)

    @pytest.mark.parametrize(("sigma", "rate", "steps"), PLANS)
    def test_is_refused_by_the_check_for_a_slightly_smaller_mu(self, sigma, rate, steps, gate):
        event = dpsgd(sigma, rate, steps)
        mu = gaussian.dominating_mu(event, gate.leak)
        right, left_delta = gaussian._cells(loss_distribution(event), gate.leak)
        needed = (left_delta - gate.leak) / (1 - gate.leak)
        assert gaussian.dominates(mu, right, needed)
        assert not gaussian.dominates(mu * (1 - 1e-4), right, needed)

    def test_the_larger_side_of_the_run_meets_the_smaller_of_the_gaussian(self, gate):
        distribution = loss_distribution(dpsgd(*PLANS[0]))
        right, left_delta = gaussian._cells(distribution, gate.leak)
        at_right = np.asarray(distribution.get_delta_for_epsilon(right))
        assert np.all(left_delta >= at_right)
        assert distribution.get_delta_for_epsilon(float(right[-1])) <= gate.leak

    def test_a_mechanism_below_the_leak_costs_one_unit(self, gate):
        units = gate.costs(dpsgd(1e8, 1e-6, 1))
        assert units[0] >= 1


class TestArithmetic:
    def test_gaussians_are_exact_and_take_no_leak(self, gate):
        event = dp_accounting.SelfComposedDpEvent(
            accounting.gaussian_event(noise_multiplier=10.0), 100
        )
        assert gate.costs(event)[1] == 0
        assert gate.epsilon_of(gate.costs(event)) == pytest.approx(4.377178, abs=2e-6)

    def test_the_claim_at_the_caps_is_the_cap(self):
        for epsilon in (0.1, 0.5, 2.0, 8.0):
            gate = GaussianFilter(epsilon, DELTA)
            assert epsilon * (1 - 1e-5) <= gate.epsilon_of(gate.caps()) <= epsilon + 1e-6

    def test_25_sampled_runs_and_no_more(self, gate):
        cost = gate.costs(dpsgd(100.0, 0.01, 10))
        used = tuple(25 * c for c in cost)
        assert gate.admits((0, 0), used)
        assert not gate.admits(used, cost)
        assert gate.admits(used, gate.costs(accounting.gaussian_event(noise_multiplier=1000.0)))

    def test_a_discrete_gaussian_is_refused(self, gate):
        with pytest.raises(UnsupportedMechanism, match="renyi"):
            gate.costs(accounting.discrete_gaussian_event(noise_multiplier=5.0))

    @pytest.mark.parametrize("delta", [0.0, 1e-16, 0.5, math.nan])
    def test_a_delta_out_of_range_is_refused(self, delta):
        with pytest.raises(PlanError, match="delta must"):
            GaussianFilter(1.0, delta)

    # Within what has a price at all: less noise at higher rates hides nothing, and is refused.
    @settings(max_examples=6, deadline=None)
    @given(st.floats(0.8, 20), st.floats(1e-3, 0.2), st.integers(1, 150))
    def test_costs_follow_noise_rate_and_steps(self, sigma, rate, steps):
        gate = GaussianFilter(2.0, DELTA)
        cost = gate.costs(dpsgd(sigma, rate, steps))
        assert gate.costs(dpsgd(sigma * 1.2, rate, steps)) <= cost
        assert gate.costs(dpsgd(sigma, min(1.0, rate * 1.2), steps)) >= cost[:1]
        assert gate.costs(dpsgd(sigma, rate, steps * 2)) >= cost
        tight = accounting.pld_epsilon(dpsgd(sigma, rate, steps), delta=DELTA)
        assert gate.epsilon_of(cost) >= tight - 1e-6

    @given(st.lists(st.floats(0.5, 50), min_size=2, max_size=6))
    def test_order_does_not_matter(self, sigmas):
        gate = GaussianFilter(2.0, DELTA)
        events = [accounting.gaussian_event(noise_multiplier=s) for s in sigmas]
        forward = gate.costs(dp_accounting.ComposedDpEvent(events))
        assert gate.costs(dp_accounting.ComposedDpEvent(events[::-1])) == forward
