"""Prices of mechanisms against independent oracles, and the Rényi filter's arithmetic."""

from __future__ import annotations

import itertools
import json
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from privacy import accounting
from privacy.accounting import (
    ORDERS,
    UNITS_PER_NAT,
    RenyiFilter,
    calibrate_noise,
    dpsgd_event,
    event_from_json,
    event_to_json,
    gaussian_event,
    pld_epsilon,
    rdp_epsilon,
    renyi_divergence,
)
from privacy.errors import PlanError, PrivacyError, UnsupportedMechanism

BAD_NUMBERS = (math.nan, math.inf, -math.inf, -1.0, 0.0, -0.0, 5e-324, 1e-310)

# q, σ, T, δ, ε by Rényi composition, ε by privacy loss distributions.
DPSGD = [
    (256 / 60000, 1.1, 14100, 1e-5, 2.600343, 2.385211),
    (0.01, 1, 1000, 1e-5, 2.101367, 1.828244),
    (0.01, 1, 10000, 1e-5, 6.712757, 6.187745),
    (0.01, 4, 10000, 1e-5, 1.03549, 0.946999),
    (0.01, 0.8, 1000, 1e-5, 3.695613, 3.141018),
    (0.001, 1, 10000, 1e-6, 0.979542, 0.555392),
    (0.02, 1.1, 500, 1e-5, 2.57566, 2.293244),
    (0.05, 1, 200, 1e-5, 5.367864, 4.76592),
    (0.1, 2, 100, 1e-5, 2.580571, 2.3374),
    (256 / 60000, 1.3, 3525, 1e-5, 0.955774, 0.865761),
    (0.004, 1.1, 1000, 1e-5, 0.868784, 0.558047),
    (0.04, 1.5, 2250, 1e-5, 7.329335, 6.768787),
]

sigmas = st.floats(0.5, 20)
rates = st.floats(1e-4, 1)
step_counts = st.integers(1, 5000)


def dpsgd(sigma: float, rate: float, steps: int):
    return dpsgd_event(noise_multiplier=sigma, sample_rate=rate, steps=steps)


@st.composite
def events(draw):
    if draw(st.booleans()):
        return gaussian_event(noise_multiplier=draw(sigmas))
    return dpsgd(draw(sigmas), draw(rates), draw(step_counts))


class TestOracles:
    @pytest.mark.parametrize(("q", "sigma", "steps", "delta", "by_rdp", "by_pld"), DPSGD)
    def test_dpsgd_has_the_known_epsilon(self, q, sigma, steps, delta, by_rdp, by_pld):
        event = dpsgd(sigma, q, steps)
        assert pld_epsilon(event, delta=delta) == pytest.approx(by_pld, abs=2e-6)
        assert rdp_epsilon(event, delta=delta) == pytest.approx(by_rdp, abs=2e-6)

    @pytest.mark.parametrize(
        ("sigma", "epsilon"),
        [
            (0.14, 55.1914),
            (0.5, 9.997256),
            (1, 4.377178),
            (2, 1.993091),
            (5, 0.725522),
            (10, 0.340669),
        ],
    )
    def test_a_gaussian_has_the_known_epsilon(self, sigma, epsilon):
        event = gaussian_event(noise_multiplier=sigma)
        assert pld_epsilon(event, delta=1e-5) == pytest.approx(epsilon, abs=1e-4)

    def test_opacus_agrees_on_rdp(self):
        event = dpsgd(1.5, 0.04, 2250)
        assert rdp_epsilon(event, delta=1e-5) == pytest.approx(7.32911117143, abs=1e-3)

    def test_the_tight_price_is_above_the_forbidden_approximation(self):
        # The central-limit approximation would say 6.60 here; the truth is 6.77.
        assert pld_epsilon(dpsgd(1.5, 0.04, 2250), delta=1e-5) > 6.7

    @pytest.mark.parametrize("dropped", ["gaussian", "nothing"])
    def test_a_composition_has_the_known_epsilon(self, dropped):
        parts = [dpsgd(1, 0.01, 1000), gaussian_event(noise_multiplier=5)]
        expected = 1.99249 if dropped == "nothing" else 1.828244
        composed = dp_accounting.ComposedDpEvent(parts if dropped == "nothing" else parts[:1])
        assert pld_epsilon(composed, delta=1e-5) == pytest.approx(expected, abs=2e-5)

    @pytest.mark.parametrize(
        ("epsilon", "delta", "sigma"),
        [
            (0.5, 1e-5, 7.031827),
            (1, 1e-5, 3.730632),
            (8, 1e-5, 0.600229),
            (0.5, 1e-6, 8.057618),
        ],
    )
    def test_calibration_finds_the_analytic_gaussian(self, epsilon, delta, sigma):
        found = calibrate_noise(
            lambda s: gaussian_event(noise_multiplier=s), epsilon=epsilon, delta=delta
        )
        assert sigma <= found <= sigma * 1.002


class TestEvents:
    @pytest.mark.parametrize("value", BAD_NUMBERS)
    def test_a_noise_multiplier_out_of_range_is_refused(self, value):
        with pytest.raises(PlanError, match=r"noise_multiplier must be .* got"):
            dpsgd(value, 0.1, 1)
        with pytest.raises(PlanError, match=r"noise_multiplier must be .* got"):
            gaussian_event(noise_multiplier=value)

    @pytest.mark.parametrize("value", [*BAD_NUMBERS, 1.0000001, 2.0])
    def test_a_sample_rate_out_of_range_is_refused(self, value):
        with pytest.raises(PlanError, match=r"sample_rate must be .* got"):
            dpsgd(1.0, value, 1)

    @pytest.mark.parametrize("value", [0, -1, 1.0, 1.5, math.nan, True, "3", None])
    def test_steps_that_are_no_whole_number_are_refused(self, value):
        with pytest.raises(PlanError, match=r"steps must be .* got .*training\.steps"):
            dpsgd(1.0, 0.1, value)

    @given(st.lists(events(), min_size=1, max_size=4), st.integers(1, 100))
    def test_serialisation_is_the_identity(self, parts, count):
        event = dp_accounting.ComposedDpEvent(
            [*parts, dp_accounting.SelfComposedDpEvent(parts[0], count)]
        )
        rebuilt = event_from_json(json.loads(json.dumps(event_to_json(event))))
        assert rebuilt == event

    def test_an_unknown_mechanism_is_refused_both_ways(self):
        unknown = dp_accounting.ZCDpEvent(1.0)
        with pytest.raises(UnsupportedMechanism, match="ZCDpEvent has no price"):
            event_to_json(unknown)
        with pytest.raises(UnsupportedMechanism, match="'zcdp' is unknown"):
            event_from_json({"kind": "zcdp"})
        with pytest.raises(UnsupportedMechanism, match="ZCDpEvent"):
            renyi_divergence(unknown, 2)

    @pytest.mark.parametrize(
        "edited",
        [
            {"kind": "gaussian", "noise_multiplier": math.nan},
            {"kind": "gaussian", "noise_multiplier": -1},
            {"kind": "self_composed", "count": -5, "event": {}},
            {"kind": "self_composed", "count": 2.5, "event": {}},
            {
                "kind": "poisson_sampled",
                "sample_rate": 1.5,
                "event": {"kind": "gaussian", "noise_multiplier": 1},
            },
            {
                "kind": "poisson_sampled",
                "sample_rate": 0.1,
                "event": {"kind": "laplace", "noise_multiplier": 1},
            },
            {"kind": "poisson_sampled", "sample_rate": 0.1, "event": {"kind": "gaussian"}},
            {"kind": "gaussian"},
        ],
    )
    def test_an_edited_event_is_refused(self, edited):
        with pytest.raises(PrivacyError):
            event_from_json(edited)

    def test_noise_too_small_to_price_is_a_typed_error(self):
        with pytest.raises(PrivacyError):
            pld_epsilon(gaussian_event(noise_multiplier=1e-6), delta=1e-5)


class TestRenyiDivergence:
    @given(sigmas, rates, st.sampled_from(ORDERS))
    def test_is_an_upper_bound_and_tight(self, sigma, rate, order):
        accountant = rdp.RdpAccountant([float(order)])
        accountant.compose(dpsgd(sigma, rate, 1))
        oracle = float(accountant._rdp[0])
        ours = renyi_divergence(dpsgd(sigma, rate, 1), order)
        # dp_accounting's own sum is rounded as well, at 1e-13 of its size.
        assert oracle * (1 - 1e-12) - 1e-15 <= ours <= oracle * (1 + 1e-9) + 1e-6

    @pytest.mark.parametrize("q", [0.01, 0.3, 0.9])
    @pytest.mark.parametrize("sigma", [0.8, 2.0])
    @pytest.mark.parametrize("order", [2, 5, 11])
    def test_covers_both_directions(self, q, sigma, order):
        def log_without(x):
            return stats.norm.logpdf(x, 0, sigma)

        def log_with(x):
            return np.logaddexp(
                math.log1p(-q) + stats.norm.logpdf(x, 0, sigma),
                math.log(q) + stats.norm.logpdf(x, 1, sigma),
            )

        ours = renyi_divergence(dpsgd(sigma, q, 1), order)
        for top, bottom in ((log_with, log_without), (log_without, log_with)):

            def exponent(x, top=top, bottom=bottom):
                return order * top(x) + (1 - order) * bottom(x)

            moment, _ = integrate.quad(
                lambda x, e=exponent: math.exp(e(x)), -60, 80, limit=500, points=[-order, 0, order]
            )
            assert math.log(moment) / (order - 1) <= ours + 1e-9

    @given(sigmas, sigmas, rates, rates, step_counts, step_counts, st.sampled_from(ORDERS))
    def test_less_noise_more_sampling_and_more_steps_never_cost_less(
        self, s1, s2, q1, q2, t1, t2, order
    ):
        cheap = dpsgd(max(s1, s2), min(q1, q2), min(t1, t2))
        dear = dpsgd(min(s1, s2), max(q1, q2), max(t1, t2))
        assert renyi_divergence(cheap, order) <= renyi_divergence(dear, order) * (1 + 1e-12)

    @given(st.lists(events(), min_size=2, max_size=4), st.randoms(use_true_random=False))
    def test_does_not_depend_on_the_order_of_events(self, parts, random):
        shuffled = list(parts)
        random.shuffle(shuffled)
        for order in (2, 128):
            one = renyi_divergence(dp_accounting.ComposedDpEvent(parts), order)
            assert one == renyi_divergence(dp_accounting.ComposedDpEvent(shuffled), order)

    @pytest.mark.parametrize("sigma", [1e-200, 1e-100, 1e-3, 1e3, 1e100, 1e200])
    def test_extreme_noise_gives_a_number_or_a_typed_error(self, sigma):
        try:
            cost = RenyiFilter(epsilon=1, delta=1e-5).costs(dpsgd(sigma, 0.1, 10))
        except PrivacyError:
            return
        assert min(cost) >= 1


class TestRenyiFilter:
    def test_has_the_known_cost_of_a_run(self):
        gate = RenyiFilter(epsilon=4, delta=1e-5)
        assert gate.epsilon_of(gate.costs(dpsgd(1, 0.01, 1000))) == pytest.approx(2.46, abs=5e-3)

    @pytest.mark.parametrize(("q", "sigma", "steps", "delta", "_rdp", "by_pld"), DPSGD)
    def test_never_claims_less_than_the_tight_price(self, q, sigma, steps, delta, _rdp, by_pld):
        gate = RenyiFilter(epsilon=10, delta=delta)
        assert gate.epsilon_of(gate.costs(dpsgd(sigma, q, steps))) >= by_pld

    def test_uses_at_most_twelve_orders(self):
        assert len(ORDERS) <= 12
        assert min(ORDERS) > 1

    def test_nothing_used_claims_nothing(self):
        gate = RenyiFilter(epsilon=1, delta=1e-5)
        assert gate.epsilon_of([0] * len(gate.orders)) == 0

    @given(events())
    def test_costs_are_whole_units_rounded_up(self, event):
        gate = RenyiFilter(epsilon=1, delta=1e-5)
        for order, cost in zip(gate.orders, gate.costs(event), strict=True):
            exact = renyi_divergence(event, order) * UNITS_PER_NAT
            assert isinstance(cost, int)
            assert cost >= 1
            assert exact <= cost <= exact + 1

    @given(st.floats(0.01, 20), st.floats(1e-12, 1e-3))
    def test_caps_are_whole_units_within_the_conversion(self, epsilon, delta):
        # Canonne, Kamath and Steinke 2020, proposition 12, solved for ρ at δ/|Λ| numerically.
        gate = RenyiFilter(epsilon=epsilon, delta=delta)
        share = delta / len(gate.orders)
        for order, cap in zip(gate.orders, gate.caps(), strict=True):

            def surplus(rho, a=order):
                claimed = rho + math.log((a - 1) / a) - (math.log(share) + math.log(a)) / (a - 1)
                return claimed - epsilon

            rho = optimize.brentq(surplus, -100, 100, xtol=1e-14)
            assert isinstance(cap, int)
            assert rho * UNITS_PER_NAT - 1.001 <= cap <= rho * UNITS_PER_NAT + 1e-3

    @given(
        st.floats(0.1, 10),
        st.floats(1e-9, 1e-4),
        st.lists(events(), min_size=1, max_size=12),
        st.randoms(use_true_random=False),
    )
    def test_what_is_admitted_adaptively_never_claims_more_than_the_cap(
        self, epsilon, delta, offered, random
    ):
        gate = RenyiFilter(epsilon=epsilon, delta=delta)
        used = (0,) * len(gate.orders)
        while offered:
            # The adversary picks what to try next by what is left.
            room = epsilon - gate.epsilon_of(used)
            event = offered.pop(int(random.random() * room * 7) % len(offered))
            cost = gate.costs(event)
            if gate.admits(used, cost):
                used = tuple(u + c for u, c in zip(used, cost, strict=True))
        assert any(u <= cap for u, cap in zip(used, gate.caps(), strict=True)) or not any(used)
        assert gate.epsilon_of(used) <= epsilon + 1e-6

    @settings(max_examples=4)
    @given(st.lists(st.tuples(st.floats(1, 5), st.floats(0.001, 0.2)), min_size=1, max_size=3))
    def test_an_admitted_sequence_is_within_the_cap_by_the_tight_price(self, wanted):
        gate = RenyiFilter(epsilon=3, delta=1e-5)
        used, admitted = (0,) * len(gate.orders), []
        for sigma, q in itertools.chain.from_iterable(itertools.repeat(wanted, 5)):
            event = dpsgd(sigma, q, 20)
            if gate.admits(used, gate.costs(event)):
                used = tuple(u + c for u, c in zip(used, gate.costs(event), strict=True))
                admitted.append(event)
        if admitted:
            assert pld_epsilon(dp_accounting.ComposedDpEvent(admitted), delta=1e-5) <= 3

    @given(st.lists(events(), min_size=1, max_size=5))
    def test_using_more_never_claims_less(self, parts):
        gate = RenyiFilter(epsilon=1, delta=1e-5)
        used, claimed = [0] * len(gate.orders), 0.0
        for event in parts:
            used = [u + c for u, c in zip(used, gate.costs(event), strict=True)]
            assert gate.epsilon_of(used) >= claimed
            claimed = gate.epsilon_of(used)

    def test_a_small_cap_admits_nothing_at_orders_it_cannot_reach(self):
        gate = RenyiFilter(epsilon=0.01, delta=1e-6)
        assert max(gate.caps()) < 0
        assert not gate.admits([0] * len(gate.orders), [1] * len(gate.orders))

    @pytest.mark.parametrize("value", BAD_NUMBERS)
    def test_a_cap_out_of_range_is_refused(self, value):
        with pytest.raises(PlanError, match=r"epsilon_cap must be .* got"):
            RenyiFilter(epsilon=value, delta=1e-5)

    @pytest.mark.parametrize("value", [*BAD_NUMBERS, 1.0])
    def test_a_delta_out_of_range_is_refused(self, value):
        with pytest.raises(PlanError, match=r"delta must be .* got"):
            RenyiFilter(epsilon=1, delta=value)

    @pytest.mark.parametrize("orders", [(), (1,), (2, 1.5), (2.5,), tuple(range(2, 15))])
    def test_orders_that_are_no_short_list_of_whole_numbers_are_refused(self, orders):
        with pytest.raises(PlanError, match="orders must be 1 to 12 whole numbers"):
            RenyiFilter(epsilon=1, delta=1e-5, orders=orders)

    def test_costs_of_another_grid_are_refused(self):
        with pytest.raises(PlanError, match="expected 12 costs; got 2"):
            RenyiFilter(epsilon=1, delta=1e-5).epsilon_of([1, 2])


def test_the_accountant_is_named_with_its_version():
    assert accounting.ACCOUNTANT.startswith("dp-accounting ")
