"""Bounds on ε: published values, monotonicity, and the error rate that they promise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.attacks.bounds import (
    Bound,
    clopper_pearson,
    combine,
    one_run,
    per_bound_confidence,
    verdict,
)

DELTA = 1e-5


class TestOracles:
    @pytest.mark.parametrize(
        ("m", "guesses", "correct", "delta", "expected"),
        [
            (100, 100, 100, 1e-5, 3.4902),
            (100, 100, 100, 0, 3.493),
            (1000, 600, 600, 1e-5, 5.2704),
            (1000, 1000, 600, 1e-5, 0.2972),
            (1000, 100, 95, 1e-5, 2.1652),
            (1000, 1000, 500, 1e-5, 0),
            (1000, 1000, 1000, 0, 5.8091),
        ],
    )
    def test_one_run(self, m, guesses, correct, delta, expected):
        bound = one_run(m=m, guesses=guesses, correct=correct, delta=delta)
        assert bound.lower_bound == pytest.approx(expected, abs=1e-4)

    @pytest.mark.parametrize(
        ("tp", "fp", "expected"),
        [(500, 50, 1.9692), (800, 10, 3.7437), (100, 1, 2.6925), (505, 500, 0)],
    )
    def test_clopper_pearson(self, tp, fp, expected):
        bound = clopper_pearson(tp=tp, n_in=1000, fp=fp, n_out=1000, delta=DELTA)
        assert bound.lower_bound == pytest.approx(expected, abs=1e-4)

    @pytest.mark.parametrize(
        ("n", "expected"),
        [(100, 3.28), (200, 3.98), (500, 4.91), (1000, 5.60), (5000, 7.21), (10000, 7.90)],
    )
    def test_ceiling_of_a_perfect_attack(self, n, expected):
        bound = clopper_pearson(tp=n, n_in=n, fp=0, n_out=n, delta=DELTA)
        assert bound.lower_bound == bound.ceiling == pytest.approx(expected, abs=5.1e-3)

    def test_pure_dp_with_all_right_has_a_closed_form(self):
        # q^r = α at the bound, so ε = ln(q / (1 − q)) with q = α^(1/r).
        q = 0.05 ** (1 / 50)
        bound = one_run(m=80, guesses=50, correct=50, delta=0)
        assert bound.lower_bound == pytest.approx(math.log(q / (1 - q)), abs=1e-9)


@st.composite
def _one_run_cases(draw):
    m = draw(st.integers(2, 400))
    guesses = draw(st.integers(2, m))
    return {
        "m": m,
        "guesses": guesses,
        "correct": draw(st.integers(0, guesses - 1)),
        "delta": draw(st.sampled_from([0.0, 1e-6, 1e-4, 1e-2, 0.3])),
    }


class TestOneRunIsMonotone:
    @given(_one_run_cases())
    def test_in_correct_guesses(self, case):
        more = one_run(**case | {"correct": case["correct"] + 1})
        assert one_run(**case).lower_bound <= more.lower_bound + 1e-9

    @given(_one_run_cases(), st.floats(0, 0.5))
    def test_in_delta(self, case, extra):
        more = one_run(**case | {"delta": case["delta"] + extra})
        assert more.lower_bound <= one_run(**case).lower_bound + 1e-9

    @given(_one_run_cases(), st.floats(0.5, 0.999), st.floats(0.5, 0.999))
    def test_in_confidence(self, case, a, b):
        low, high = sorted((a, b))
        surer = one_run(**case, confidence=high)
        assert surer.lower_bound <= one_run(**case, confidence=low).lower_bound + 1e-9

    @given(_one_run_cases())
    def test_in_canaries_that_were_not_guessed(self, case):
        more = one_run(**case | {"m": 2 * case["m"]})
        assert more.lower_bound <= one_run(**case).lower_bound + 1e-9


class TestClopperPearsonIsMonotone:
    @given(st.integers(1, 500), st.integers(1, 500), st.data())
    def test_in_the_attack_and_below_its_ceiling(self, n_in, n_out, data):
        tp, fp = data.draw(st.integers(0, n_in)), data.draw(st.integers(0, n_out))
        at = {"n_in": n_in, "n_out": n_out, "delta": DELTA}
        bound = clopper_pearson(tp=tp, fp=fp, **at)
        assert 0 <= bound.lower_bound <= bound.ceiling
        if tp * n_out > fp * n_in and tp < n_in:  # better than chance: more hits, larger bound
            assert bound.lower_bound <= clopper_pearson(tp=tp + 1, fp=fp, **at).lower_bound + 1e-9

    @given(st.integers(0, 300), st.integers(0, 300))
    def test_swapping_the_roles_of_in_and_out_changes_nothing(self, tp, fp):
        one = clopper_pearson(tp=tp, n_in=300, fp=fp, n_out=300, delta=DELTA)
        other = clopper_pearson(tp=300 - fp, n_in=300, fp=300 - tp, n_out=300, delta=DELTA)
        assert one.lower_bound == pytest.approx(other.lower_bound, abs=1e-12)


class TestErrorRate:
    """At the 5 % level, at most 15 false alarms in 200 repeats (mean 10, +1.6 sd)."""

    def test_random_guesses_show_nothing_in_one_run(self):
        rng = np.random.default_rng(20)
        right = rng.binomial(500, 0.5, size=200)
        alarms = sum(
            one_run(m=500, guesses=500, correct=v, delta=DELTA).lower_bound > 0 for v in right
        )
        assert alarms <= 15

    def test_random_guesses_show_nothing_in_repeated_runs(self):
        rng = np.random.default_rng(21)
        hits = rng.binomial(500, 0.3, size=(200, 2))
        alarms = sum(
            clopper_pearson(tp=tp, n_in=500, fp=fp, n_out=500, delta=DELTA).lower_bound > 0
            for tp, fp in hits
        )
        assert alarms <= 15

    # ε at δ = 1e-5 of one Gaussian release with sensitivity 1 (analytic Gaussian mechanism).
    @pytest.mark.parametrize(("sigma", "truth"), [(0.60023, 8.0), (1.0, 4.377), (2.0, 1.993)])
    def test_gaussian_mechanism_is_never_above_its_truth(self, sigma, truth):
        rng = np.random.default_rng(22)
        n, threshold, above = 1000, 0.5, 0
        largest = 0.0
        for _ in range(200):
            tp = int((1 + sigma * rng.standard_normal(n) > threshold).sum())
            fp = int((sigma * rng.standard_normal(n) > threshold).sum())
            repeated = clopper_pearson(tp=tp, n_in=n, fp=fp, n_out=n, delta=DELTA, confidence=0.975)
            coins = rng.integers(0, 2, n)
            order = np.argsort(coins + sigma * rng.standard_normal(n))
            right = int((coins[order[-50:]] == 1).sum() + (coins[order[:50]] == 0).sum())
            single = one_run(m=n, guesses=100, correct=right, delta=DELTA, confidence=0.975)
            both = combine([repeated, single], confidence=0.95)
            above += both.lower_bound > truth
            largest = max(largest, both.lower_bound)
        assert above <= 10
        assert largest > truth / 4  # the test has the power to fail


class TestCombine:
    def test_takes_the_largest_at_the_joint_confidence(self):
        each = per_bound_confidence(joint=0.95, count=2)
        low = one_run(m=100, guesses=100, correct=60, delta=DELTA, confidence=each)
        high = one_run(m=100, guesses=100, correct=90, delta=DELTA, confidence=each)
        both = combine([low, high], confidence=0.95)
        assert each == pytest.approx(0.975)
        assert both.lower_bound == high.lower_bound
        assert both.confidence == 0.95
        assert both.trials == 200

    def test_refuses_bounds_that_are_not_jointly_valid(self):
        bound = one_run(m=100, guesses=100, correct=90, delta=DELTA, confidence=0.95)
        with pytest.raises(ValueError, match=r"at most 0.05; got 0.1.*confidence 0.975"):
            combine([bound, bound], confidence=0.95)

    def test_refuses_bounds_at_different_delta(self):
        a = one_run(m=100, guesses=100, correct=90, delta=0, confidence=0.975)
        b = one_run(m=100, guesses=100, correct=90, delta=DELTA, confidence=0.975)
        with pytest.raises(ValueError, match="share one delta"):
            combine([a, b])

    def test_refuses_nothing(self):
        with pytest.raises(ValueError, match="at least one"):
            combine([])

    @given(st.floats(0.5, 0.999), st.integers(1, 50))
    def test_accepts_its_own_per_bound_confidence(self, joint, count):
        each = per_bound_confidence(joint=joint, count=count)
        bound = one_run(m=10, guesses=10, correct=10, delta=0, confidence=each)
        assert combine([bound] * count, confidence=joint).lower_bound == bound.lower_bound


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"correct": 11}, "correct must be between 0 and guesses = 10; got 11"),
            ({"correct": -1}, "correct must be between 0 and guesses = 10; got -1"),
            ({"guesses": 21}, "guesses must be between 1 and m = 20; got 21"),
            ({"guesses": 0}, "guesses must be between 1 and m = 20; got 0"),
            ({"m": 0}, "m must be ≥ 1; got 0"),
            ({"delta": math.nan}, r"delta must be in \[0, 1\); got nan"),
            ({"delta": 1.0}, r"delta must be in \[0, 1\); got 1.0"),
            ({"confidence": 1.0}, "confidence must be strictly between 0 and 1; got 1.0"),
        ],
    )
    def test_one_run(self, change, message):
        with pytest.raises(ValueError, match=message):
            one_run(**{"m": 20, "guesses": 10, "correct": 8, "delta": 0.0} | change)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"tp": 11}, "tp must be between 0 and n_in = 10; got 11"),
            ({"fp": -1}, "fp must be between 0 and n_out = 10; got -1"),
            ({"n_in": 0}, "n_in must be ≥ 1; got 0"),
            ({"delta": -1e-9}, r"delta must be in \[0, 1\)"),
        ],
    )
    def test_clopper_pearson(self, change, message):
        with pytest.raises(ValueError, match=message):
            clopper_pearson(**{"tp": 5, "n_in": 10, "fp": 1, "n_out": 10, "delta": 0.0} | change)

    def test_a_count_that_is_no_integer(self):
        with pytest.raises(TypeError):
            one_run(m=20, guesses=10, correct=8.0, delta=0.0)

    @pytest.mark.parametrize("lower", [-0.1, 2.1, math.nan])
    def test_a_bound_outside_its_ceiling(self, lower):
        with pytest.raises(ValueError, match="lower_bound must be between 0 and the ceiling"):
            Bound(method="x", lower_bound=lower, ceiling=2.0, confidence=0.95, trials=1)


def _bound(lower, ceiling=5.0):
    return Bound(method="x", lower_bound=lower, ceiling=ceiling, confidence=0.95, trials=100)


class TestVerdict:
    @pytest.mark.parametrize(
        ("lower", "ceiling", "positive", "negative", "expected"),
        [
            (0.4, 5.0, 4.8, 0.0, "pass"),
            (1.0, 5.0, 4.8, 0.0, "pass"),  # at the claim is not above it
            (1.1, 5.0, 4.8, 0.0, "fail"),
            (1.1, 5.0, 0.0, 0.3, "fail"),  # a bad control does not excuse a bound above the claim
            (0.4, 5.0, 2.4, 0.0, "inconclusive"),
            (0.4, 5.0, 4.8, 0.1, "inconclusive"),
            (0.4, 0.9, 4.8, 0.0, "inconclusive"),  # no attack could have exceeded the claim
        ],
    )
    def test_rule(self, lower, ceiling, positive, negative, expected):
        bounds = [_bound(0.0, 0.5), _bound(lower, ceiling)]
        assert verdict(1.0, bounds, _bound(positive), _bound(negative)) == expected

    @pytest.mark.parametrize("claim", [0.0, -1.0, math.nan, math.inf])
    def test_refuses_a_claim_that_is_none(self, claim):
        with pytest.raises(ValueError, match="claimed_epsilon must be finite and > 0"):
            verdict(claim, [_bound(0.1)], _bound(4.0), _bound(0.0))

    def test_refuses_no_bounds(self):
        with pytest.raises(ValueError, match="at least one"):
            verdict(1.0, [], _bound(4.0), _bound(0.0))
