"""The adaptive Gaussian-DP filter: domination everywhere, and an adversary who chooses as it sees."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy import accounting
from privacy.accounting import GaussianFilter, gaussian
from privacy.accounting.prices import loss_distribution
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
        run = np.asarray(loss_distribution(event).get_delta_for_epsilon(np.sort(at)))
        allowed = (1 - gate.leak) * gaussian.gaussian_delta(mu, np.sort(at)) + gate.leak
        assert np.all(run <= allowed)

    @pytest.mark.parametrize(("sigma", "rate", "steps"), PLANS[:3])
    def test_fails_for_a_slightly_smaller_mu(self, sigma, rate, steps, gate):
        event = dpsgd(sigma, rate, steps)
        mu = gaussian.dominating_mu(event, gate.leak) * 0.98
        at = np.linspace(0, 30, 30011)
        run = np.asarray(loss_distribution(event).get_delta_for_epsilon(at))
        assert np.any(run > (1 - gate.leak) * gaussian.gaussian_delta(mu, at) + gate.leak)

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

    @settings(max_examples=15)
    @given(st.floats(0.8, 20), st.floats(1e-3, 0.5), st.integers(1, 300))
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


class TestAdaptiveAdversary:
    """Gaussian runs whose noise is chosen from the losses seen so far, against the block's claim.

    The adversary sees a shifted Gaussian, knows its own loss, and spends boldly while it is behind. What
    it gets is estimated and compared with δ(ε) at several ε; the two inputs are mirror images.
    """

    TRIALS = 400_000
    CLAIM = GaussianFilter(2.0, 1e-2)

    def losses(self, gated, direction):
        """The privacy loss of `TRIALS` games, stopped by the filter or (if not gated) by the loss."""
        rng = np.random.default_rng(7 + direction)
        budget = self.CLAIM.caps()[0] / gaussian.UNITS_PER_MU_SQUARED
        used, loss = np.zeros(self.TRIALS), np.zeros(self.TRIALS)
        for _ in range(60):
            # Behind: a bold run, to catch up. Ahead: small steps, to keep what was gained.
            wanted = np.where(loss < 1.0, budget / 8, budget / 50)
            if gated:
                wanted = np.where(used + wanted <= budget, wanted, 0.0)
            else:
                # The gate that must not be: it stops on the loss it has seen.
                wanted = np.where(loss < self.CLAIM.epsilon, wanted, 0.0)
            mu = np.sqrt(wanted)
            seen = rng.standard_normal(self.TRIALS)
            loss += mu * seen + wanted / 2  # log-likelihood ratio under the input that holds
            used += wanted
        assert not gated or np.all(used <= budget * (1 + 1e-12))
        return loss

    @pytest.mark.parametrize("direction", [0, 1])
    @pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
    def test_gets_no_more_than_the_claim(self, direction, epsilon):
        gains = np.maximum(0.0, 1 - np.exp(epsilon - self.losses(True, direction)))
        gained = gains.mean()
        error = gains.std() / math.sqrt(self.TRIALS)
        leak = self.CLAIM.caps()[1] / gaussian.UNITS_PER_DELTA
        mu = math.sqrt(self.CLAIM.caps()[0] / gaussian.UNITS_PER_MU_SQUARED)
        claimed = (1 - leak) * float(gaussian.gaussian_delta(mu, epsilon)) + leak
        assert gained - 4 * error <= claimed

    def test_gets_more_where_nothing_gates(self):
        gains = np.maximum(0.0, 1 - np.exp(2.0 - self.losses(False, 0)))
        assert gains.mean() > 2 * self.CLAIM.delta
