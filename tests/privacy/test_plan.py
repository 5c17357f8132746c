"""The plan: what it refuses, how it says so, and that it survives storage unchanged."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.errors import PlanError, PrivacyError
from privacy.plan import MINIMUM_RECORDS, MixingPlan, Plan, check_declared

WRONG = [
    ("epsilon", 0.0, "training.epsilon"),
    ("epsilon", -1.0, "training.epsilon"),
    ("epsilon", math.nan, "training.epsilon"),
    ("epsilon", math.inf, "training.epsilon"),
    ("delta", 0.0, "1/n"),
    ("delta", math.nan, "1/n"),
    ("delta", 1.0, "1/n"),
    ("delta", 1e-3, "tenth"),
    ("delta", 2e-3, "tenth"),
    ("sample_rate", 0.0, "probability"),
    ("sample_rate", 1.5, "probability"),
    ("sample_rate", math.nan, "probability"),
    ("steps", 0, "training.steps"),
    ("steps", 2.5, "training.steps"),
    ("steps", True, "training.steps"),
    ("noise_multiplier", 0.0, "Calibrate"),
    ("noise_multiplier", math.nan, "Calibrate"),
    ("noise_multiplier", math.inf, "Calibrate"),
    ("max_grad_norm", 0.0, "training.max_grad_norm"),
    ("max_grad_norm", math.inf, "training.max_grad_norm"),
    ("max_grad_norm", math.nan, "training.max_grad_norm"),
    ("learning_rate", -0.1, "training.learning_rate"),
    ("learning_rate", math.inf, "training.learning_rate"),
    ("average_last", 0.0, "training.average_last"),
    ("average_last", 1.1, "training.average_last"),
    ("average_last", math.nan, "training.average_last"),
    ("privacy_unit", "sentence", "record or person"),
    ("records_per_unit", 0, "registered"),
    ("records_per_unit", 2, "registered"),
    ("classes", ("one",), "registered"),
    ("classes", ("a", "a"), "registered"),
    ("feature_dimension", 0, "must be >= 1"),
]


class TestRefusals:
    @pytest.mark.parametrize(("name", "value", "remedy"), WRONG)
    def test_names_the_field_the_value_and_the_remedy(self, make_plan, name, value, remedy):
        with pytest.raises(PlanError) as refused:
            make_plan(**{name: value})
        message = str(refused.value)
        assert name in message
        assert (str(list(value)) if isinstance(value, tuple) else str(value)) in message
        assert remedy in message

    @pytest.mark.parametrize("value", [math.nan, 1.5, math.inf])
    @pytest.mark.parametrize("name", ["records_per_unit", "feature_dimension"])
    def test_a_count_that_is_no_whole_number_is_refused(self, make_plan, name, value):
        with pytest.raises(PlanError, match=name):
            make_plan(privacy_unit="person", **{name: value})

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("temperature", 0.0),
            ("temperature", math.nan),
            ("weight", 0.0),
            ("weight", 1.5),
            ("weight", math.nan),
            ("neighbours", 0),
            ("neighbours", math.nan),
            ("neighbours", 1.5),
        ],
    )
    def test_a_mixing_value_out_of_range_is_refused(self, name, value):
        with pytest.raises(PlanError, match=rf"{name} must be .*got {value}.*mixing\.{name}"):
            MixingPlan(**{name: value})

    @pytest.mark.parametrize("units", [999, 0, -5, 1000.0, math.nan, True])
    def test_too_few_declared_records_are_refused_with_advice(self, units):
        with pytest.raises(PlanError, match=r"declared records .*got .*Instead: train on public"):
            check_declared(units=units, delta=1e-5)

    def test_exactly_the_minimum_is_enough(self):
        check_declared(units=MINIMUM_RECORDS, delta=1e-5)

    @given(st.integers(MINIMUM_RECORDS, 10**7), st.floats(1, 100))
    def test_delta_of_one_over_n_or_more_is_refused(self, units, factor):
        with pytest.raises(PlanError, match=r"delta must be below 1/n"):
            check_declared(units=units, delta=min(0.99, factor / units))

    @given(st.integers(MINIMUM_RECORDS, 10**7))
    def test_delta_below_one_over_n_passes(self, units):
        check_declared(units=units, delta=0.99 / units)

    def test_a_plan_cannot_be_changed(self, make_plan):
        with pytest.raises(AttributeError):
            make_plan().noise_multiplier = 0.1

    def test_epsilon_and_delta_cannot_be_swapped_by_position(self):
        with pytest.raises(TypeError):
            Plan("record", 1000, 1, 8.0, 1e-5)


class TestMechanism:
    def test_the_divisor_is_the_declared_expected_batch(self, make_plan):
        assert make_plan(sample_rate=0.1, declared_units=5000).divisor == pytest.approx(500)

    def test_the_price_is_that_of_its_own_sampling_noise_and_steps(self, make_plan):
        plan = make_plan(sample_rate=0.01, noise_multiplier=1.0, steps=1000)
        assert plan.pld_epsilon == pytest.approx(1.828244, abs=2e-6)

    def test_calibration_reaches_the_target_without_exceeding_it(self, make_plan):
        values = {
            f: getattr(make_plan(epsilon=1.0), f)
            for f in Plan.__dataclass_fields__
            if f != "noise_multiplier"
        }
        plan = Plan.calibrated(**values)
        assert 0.99 <= plan.pld_epsilon <= 1.0


class TestStorage:
    @given(
        q=st.floats(1e-4, 1),
        steps=st.integers(1, 100),
        sigma=st.floats(1, 100),
        clip=st.floats(1e-3, 1e3),
        strategies=st.lists(st.sampled_from(["inside_clip", "warm_start"]), unique=True),
    )
    def test_a_stored_plan_is_the_same_plan(self, make_plan, q, steps, sigma, clip, strategies):
        plan = make_plan(
            epsilon=1e6,  # a claim that covers whatever these cost
            sample_rate=q,
            steps=steps,
            noise_multiplier=sigma,
            max_grad_norm=clip,
            classes=("schlecht", "gut", "größer"),
            mixing=MixingPlan(strategies=tuple(strategies)),
        )
        rebuilt = Plan.from_json(json.loads(json.dumps(plan.to_json())))
        assert rebuilt == plan
        assert rebuilt.digest == plan.digest

    def test_a_plan_stored_before_events_had_a_schema_is_read(self, make_plan):
        plan = make_plan()
        stored = plan.to_json()
        first = {k: v for k, v in stored["event"].items() if k != "schema"}
        assert Plan.from_json({**stored, "event": first}) == plan

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("noise_multiplier", 0.5),
            ("sample_rate", 0.2),
            ("steps", 3),
            ("declared_units", 2000),
            ("divisor", 1.0),
            ("event", {"kind": "gaussian", "noise_multiplier": 100.0}),
            ("relation", "replace one"),
            ("sampler", "shuffle"),
            ("schema", 99),
            ("noise_multiplier", math.nan),
            ("delta", 0.5),
        ],
    )
    def test_an_edited_plan_is_refused(self, make_plan, name, value):
        with pytest.raises(PlanError):
            Plan.from_json({**make_plan().to_json(), name: value})

    def test_a_claim_below_what_the_mechanism_costs_is_refused(self, make_plan):
        stored = make_plan(noise_multiplier=0.5, sample_rate=0.5, steps=100).to_json()
        with pytest.raises(PlanError, match="epsilon"):
            Plan.from_json({**stored, "epsilon": 0.1})

    @pytest.mark.parametrize("name", ["schema", "event", "mixing", "noise_multiplier", "classes"])
    def test_a_plan_that_lacks_a_part_is_refused(self, make_plan, name):
        stored = make_plan().to_json()
        del stored[name]
        with pytest.raises(PrivacyError):
            Plan.from_json(stored)

    def test_a_plan_with_an_unknown_part_is_refused(self, make_plan):
        with pytest.raises(PrivacyError):
            Plan.from_json({**make_plan().to_json(), "momentum": 0.9})

    @pytest.mark.parametrize(
        ("name", "value"), [("max_grad_norm", 2.0), ("learning_rate", 1.0), ("epsilon", 7.0)]
    )
    def test_the_digest_covers_every_part(self, make_plan, name, value):
        assert make_plan(**{name: value}).digest != make_plan().digest
