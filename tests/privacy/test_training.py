"""DP-SGD as priced: bounded contributions, declared constants, and nothing that counts units."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from privacy.errors import PlanError, StepRefused
from privacy.heads import build_head
from privacy.noise import NoiseSource
from privacy.training import PlanOptimizer, Units, make_units, train, weights_digest

NASTY = [math.nan, math.inf, -math.inf, 1e38, -1e38, 1e19, 1e-38, 0.0]
numbers = st.one_of(st.floats(-3, 3, width=32), st.sampled_from(NASTY))


def linear(d: int = 3, classes: int = 2) -> nn.Module:
    return build_head("linear", feature_dimension=d, classes=classes)


def network(d: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4), nn.Tanh(), nn.Linear(4, 2))


def flat(head: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in head.parameters()])


def random_units(n: int, *, slots: int = 1, seed: int = 0, d: int = 3) -> Units:
    generator = torch.Generator().manual_seed(seed)
    return Units(
        torch.randn(n, slots, d, generator=generator) * 3,
        torch.randint(0, 2, (n, slots), generator=generator),
        torch.ones(n, slots),
    )


def without(units: Units, index: int) -> Units:
    keep = torch.arange(len(units)) != index
    return Units(units.features[keep], units.labels[keep], units.weights[keep])


def clipped_sum(plan, units: Units, head: nn.Module, **keywords) -> torch.Tensor:
    """What noise is added to in the first step of `plan`."""
    sums = []

    def keep(self):
        sums.append(torch.cat([p.summed_grad.flatten() for p in self.params]))
        for parameter in self.params:
            parameter.grad = torch.zeros_like(parameter)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlanOptimizer, "add_noise", keep)
        train(plan, units, head, source=NoiseSource(), **keywords)
    return sums[0].double()


@pytest.fixture
def one_step(make_plan):
    """A plan of one step that takes every unit."""
    return make_plan(sample_rate=1.0, steps=1, max_grad_norm=0.7)


@st.composite
def nasty_units(draw):
    n, slots = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    cells = draw(st.lists(numbers, min_size=n * slots * 3, max_size=n * slots * 3))
    labels = draw(st.lists(st.integers(0, 1), min_size=n * slots, max_size=n * slots))
    return Units(
        torch.tensor(cells, dtype=torch.float32).view(n, slots, 3),
        torch.tensor(labels).view(n, slots),
        torch.ones(n, slots),
    )


class TestSensitivity:
    @settings(max_examples=30)
    @given(units=nasty_units(), data=st.data())
    def test_removing_a_unit_moves_the_sum_by_at_most_the_clip(self, one_step, units, data):
        index = data.draw(st.integers(0, len(units) - 1))
        with_it = clipped_sum(one_step, units, linear())
        without_it = clipped_sum(one_step, without(units, index), linear())
        assert torch.isfinite(with_it).all()
        moved = float((with_it - without_it).norm())
        assert moved <= one_step.max_grad_norm * (1 + 1e-5)

    @settings(max_examples=15)
    @given(units=nasty_units())
    def test_holds_for_a_deeper_head(self, one_step, units):
        moved = float(clipped_sum(one_step, units, network()).norm())
        assert moved <= len(units) * one_step.max_grad_norm * (1 + 1e-5)

    @pytest.mark.parametrize("build", [linear, network])
    def test_each_unit_adds_its_own_clipped_gradient(self, one_step, build):
        units, head = random_units(7, slots=2, seed=1), build()
        expected = torch.zeros_like(flat(head), dtype=torch.float64)
        exact = copy.deepcopy(head).double()
        norms = []
        for k in range(len(units)):
            exact.zero_grad()
            nn.functional.cross_entropy(
                exact(units.features[k].double()), units.labels[k], reduction="sum"
            ).backward()
            gradient = torch.cat([p.grad.flatten() for p in exact.parameters()])
            norms.append(float(gradient.norm()))
            expected += gradient * min(1, one_step.max_grad_norm / norms[-1])
        assert max(norms) > one_step.max_grad_norm
        torch.testing.assert_close(
            clipped_sum(one_step, units, head), expected, rtol=1e-4, atol=1e-5
        )

    def test_a_person_with_many_records_is_clipped_once(self, one_step):
        many = random_units(1, slots=20, seed=2)
        assert float(clipped_sum(one_step, many, linear()).norm()) <= 0.7 * (1 + 1e-5)

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_a_unit_with_a_non_finite_gradient_contributes_zero(self, one_step, value):
        units = random_units(4, seed=3)
        spoiled = Units(units.features.clone(), units.labels, units.weights)
        spoiled.features[2, 0, 1] = value
        torch.testing.assert_close(
            clipped_sum(one_step, spoiled, linear()),
            clipped_sum(one_step, without(units, 2), linear()),
        )

    def test_an_empty_slot_weighs_nothing(self, one_step):
        units = random_units(3, slots=2, seed=4)
        emptied = Units(units.features.clone(), units.labels, units.weights.clone())
        emptied.weights[:, 1] = 0
        first = Units(units.features[:, :1], units.labels[:, :1], units.weights[:, :1])
        torch.testing.assert_close(
            clipped_sum(one_step, emptied, linear()), clipped_sum(one_step, first, linear())
        )


class TestMicroBatches:
    @pytest.mark.parametrize("size", [1, 3, 7])
    def test_equal_one_batch(self, make_plan, size):
        plan, units = make_plan(sample_rate=0.6, steps=5), random_units(23, seed=5)
        results = [
            flat(
                train(
                    plan, units, linear(), source=NoiseSource.for_test(1), max_physical_batch=b
                ).head
            )
            for b in (size, 4096)
        ]
        torch.testing.assert_close(*results, rtol=1e-5, atol=1e-7)

    def test_of_less_than_one_unit_are_refused(self, make_plan):
        with pytest.raises(PlanError, match="max_physical_batch must be >= 1; got 0"):
            train(
                make_plan(), random_units(3), linear(), source=NoiseSource(), max_physical_batch=0
            )


class TestDeclaredConstants:
    @pytest.mark.parametrize("units", [random_units(0, d=20_000), None])
    def test_noise_has_the_planned_scale_whatever_the_number_of_units(self, make_plan, units):
        d = 20_000
        if units is None:  # units there are, but all malformed
            units = make_units(
                torch.full((50, 1, d), math.nan),
                torch.zeros(50, dtype=torch.int64),
                torch.arange(50),
                records_per_unit=1,
            )
        plan = make_plan(
            feature_dimension=d, steps=1, noise_multiplier=3.0, max_grad_norm=0.2, learning_rate=2.0
        )
        moved = flat(train(plan, units, linear(d), source=NoiseSource.for_test(2)).head)
        # learning rate · σ · C / (q · declared n)
        assert float(moved.std()) == pytest.approx(2.0 * 3.0 * 0.2 / (0.1 * 1000), rel=0.03)
        assert abs(float(moved.mean())) < 5 * float(moved.std()) / math.sqrt(2 * d)

    def test_each_further_unit_moves_the_result_by_the_same(self, make_plan):
        plan = make_plan(sample_rate=1.0, steps=1)
        unit = random_units(1, seed=6)
        results = [
            flat(
                train(
                    plan,
                    Units(*(t.repeat_interleave(n, 0) for t in vars(unit).values())),
                    linear(),
                    source=NoiseSource.for_test(3),
                ).head
            )
            for n in (0, 1, 2, 40)
        ]
        once = results[1] - results[0]
        assert float(once.norm()) > 0
        torch.testing.assert_close(results[2] - results[0], 2 * once, rtol=1e-3, atol=1e-7)
        torch.testing.assert_close(results[3] - results[0], 40 * once, rtol=1e-3, atol=1e-7)

    def test_empty_samples_are_steps_of_noise_alone(self, make_plan):
        plan = make_plan(sample_rate=1e-9, steps=20)
        counted = []
        units = random_units(5)
        result = train(
            plan, units, network(), source=NoiseSource.for_test(4), on_step=counted.append
        )
        nobody = train(plan, random_units(0), network(), source=NoiseSource.for_test(4))
        assert counted == list(range(1, 21))
        assert weights_digest(result.head) == weights_digest(nobody.head)
        assert weights_digest(result.head) != weights_digest(network())

    def test_the_last_iterates_are_averaged(self, make_plan):
        def run(steps, share):
            plan = make_plan(steps=steps, average_last=share)
            return flat(train(plan, random_units(9), linear(), source=NoiseSource.for_test(5)).head)

        torch.testing.assert_close(run(2, 1.0), (run(1, 1.0) + run(2, 0.5)) / 2)


class TestCounting:
    @pytest.mark.parametrize("steps", [1, 3, 10, 25, 101])
    def test_steps_are_counted_before_they_are_taken(self, make_plan, steps):
        counted, ahead = [0], []
        train(
            make_plan(steps=steps),
            random_units(2),
            linear(),
            source=NoiseSource(),
            count_ahead=counted.append,
            on_step=lambda step: ahead.append(counted[-1] >= step),
        )
        assert ahead == [True] * steps
        assert counted[-1] == steps
        assert counted == sorted(set(counted))

    def test_nothing_is_drawn_before_the_first_count(self, make_plan, monkeypatch):
        def refuse(_steps):
            raise RuntimeError("the ledger is gone")

        monkeypatch.setattr(NoiseSource, "poisson_sample", lambda *_: pytest.fail("sampled"))
        with pytest.raises(RuntimeError, match="ledger is gone"):
            train(make_plan(), random_units(2), linear(), source=NoiseSource(), count_ahead=refuse)


class TestTampering:
    @pytest.mark.parametrize(
        "name", ["sample_rate", "noise_multiplier", "max_grad_norm", "divisor"]
    )
    def test_another_constant_in_the_optimiser_refuses_the_step(self, make_plan, monkeypatch, name):
        self._refused(make_plan, monkeypatch, name, lambda o: setattr(o, name, 0.123))

    def test_another_learning_rate_refuses_the_step(self, make_plan, monkeypatch):
        self._refused(
            make_plan,
            monkeypatch,
            "learning_rate",
            lambda o: o.original_optimizer.param_groups[0].update(lr=0.123),
        )

    @staticmethod
    def _refused(make_plan, monkeypatch, name, tamper):
        made, taken = [], []
        build = PlanOptimizer.__init__

        def remember(self, *arguments, **keywords):
            build(self, *arguments, **keywords)
            made.append(self)

        def on_step(step):
            taken.append(step)
            if step == 2:
                tamper(made[0])

        monkeypatch.setattr(PlanOptimizer, "__init__", remember)
        with pytest.raises(StepRefused, match=rf"{name} is 0\.123, the plan says .* not taken"):
            train(make_plan(), random_units(3), linear(), source=NoiseSource(), on_step=on_step)
        assert taken == [1, 2]

    def test_a_counter_that_is_off_is_refused_before_the_step(self, make_plan, monkeypatch):
        made, taken = [], []
        original = PlanOptimizer.__init__

        def remember(self, *args, **keywords):
            original(self, *args, **keywords)
            made.append(self)

        def on_step(step):
            taken.append(step)
            if step == 2:
                made[0].steps_taken = 1

        monkeypatch.setattr(PlanOptimizer, "__init__", remember)
        with pytest.raises(
            StepRefused, match="counter stands at 1 steps taken and 3 counted ahead"
        ):
            train(make_plan(), random_units(3), linear(), source=NoiseSource(), on_step=on_step)
        assert taken == [1, 2]

    def test_each_counted_block_tells_a_root_of_its_own(self, make_plan):
        blocks, counted = [], []
        train(
            make_plan(steps=23),
            random_units(5),
            linear(),
            source=NoiseSource(),
            count_ahead=counted.append,
            on_block=lambda first, last, root: blocks.append((first, last, root)),
        )
        assert [last for _, last, _ in blocks] == counted
        assert [first for first, _, _ in blocks] == [1, *(c + 1 for c in counted[:-1])]
        assert len({root for _, _, root in blocks}) == len(blocks)

    def test_the_roots_follow_from_the_noised_updates_alone(self, make_plan):
        def roots(seed, units):
            told = []
            train(
                make_plan(),
                units,
                linear(),
                source=NoiseSource.for_test(seed),
                on_block=lambda *block: told.append(block),
            )
            return told

        assert roots(1, random_units(5)) == roots(1, random_units(5))
        assert roots(1, random_units(5)) != roots(2, random_units(5))

    def test_a_head_that_couples_records_is_refused(self, make_plan):
        head = nn.Sequential(nn.Flatten(0, 1), nn.BatchNorm1d(3), nn.Linear(3, 2))
        with pytest.raises(PlanError, match=r"BatchNorm1d.*GroupNorm"):
            train(make_plan(), random_units(3), head, source=NoiseSource())


class TestResult:
    @pytest.mark.parametrize("build", [linear, network])
    def test_carries_no_opacus_wrapper(self, make_plan, build):
        head = build()
        result = train(make_plan(), random_units(5), head, source=NoiseSource()).head
        assert result.state_dict().keys() == head.state_dict().keys()
        for module in result.modules():
            assert not type(module).__module__.startswith("opacus")
            assert not module._forward_hooks
            assert not module._backward_hooks
        assert not any(hasattr(p, "grad_sample") for p in result.parameters())

    def test_leaves_the_starting_head_as_it_was(self, make_plan):
        head = network()
        before = weights_digest(head)
        result = train(make_plan(), random_units(5), head, source=NoiseSource())
        assert weights_digest(head) == before
        assert result.digest != before
        assert not any(hasattr(p, "grad_sample") for p in head.parameters())

    def test_learns_what_can_be_learnt(self, make_plan):
        units = random_units(400, seed=7)
        units = Units(units.features, (units.features[..., 0] > 0).long(), units.weights)
        plan = make_plan(sample_rate=0.5, steps=30, learning_rate=2.0)
        head = train(plan, units, linear(), source=NoiseSource()).head
        hits = (head(units.features).argmax(-1) == units.labels).float().mean()
        assert float(hits) > 0.9

    def test_every_trainable_weight_moves_and_no_frozen_one(self, make_plan):
        head = network()
        for parameter in head[1].parameters():
            parameter.requires_grad_(False)
        result = train(make_plan(), random_units(5), head, source=NoiseSource()).head
        for (name, before), after in zip(head.named_parameters(), result.parameters(), strict=True):
            assert torch.equal(before, after) == name.startswith("1."), name

    def test_says_whether_it_is_private_and_carries_the_commitment(self, make_plan):
        source = NoiseSource()
        result = train(make_plan(), random_units(3), linear(), source=source)
        assert result.is_private
        assert result.commitment == source.commitment
        seeded = train(make_plan(), random_units(3), linear(), source=NoiseSource.for_test(1))
        assert not seeded.is_private

    def test_two_attempts_differ_and_two_seeded_ones_do_not(self, make_plan):
        def digest(source):
            return train(make_plan(), random_units(3), linear(), source=source).digest

        assert digest(NoiseSource()) != digest(NoiseSource())
        assert digest(NoiseSource.for_test(1)) == digest(NoiseSource.for_test(1))


class TestMakeUnits:
    def make(self, views, labels, unit_of, k=1):
        return make_units(
            torch.as_tensor(views, dtype=torch.float32),
            torch.as_tensor(labels, dtype=torch.int64),
            torch.as_tensor(unit_of, dtype=torch.int64),
            records_per_unit=k,
        )

    def test_a_record_weighs_one_however_many_views_it_has(self):
        for views in (1, 2, 5):
            units = self.make(np.ones((2, views, 3)), [0, 1], [0, 1])
            torch.testing.assert_close(units.weights.sum(1), torch.ones(2))

    @pytest.mark.parametrize(
        ("first", "label"),
        [
            ([math.nan, 1, 1], 0),
            ([math.inf, 1, 1], 0),
            ([1, 1, 1], -1),
            ([0, 0, 0], 0),
        ],
    )
    def test_a_malformed_record_is_nothing(self, first, label):
        # Its second view is fine: a mixture with public text must not revive it.
        units = self.make([[first, [1, 1, 1]], [[1, 2, 3], [1, 1, 1]]], [label, 1], [0, 1])
        assert not units.weights[0].any()
        assert not units.features[0].any()
        assert units.weights[1].sum() == 1

    def test_a_malformed_record_changes_nothing_that_is_released(self, make_plan):
        good = np.random.default_rng(0).normal(size=(6, 1, 3))
        plan = make_plan(sample_rate=1.0)
        results = []
        for extra in (0, 3):
            views = np.concatenate([good, np.full((extra, 1, 3), np.nan)])
            units = self.make(views, [0, 1] * 3 + [0] * extra, np.arange(6 + extra))
            results.append(flat(train(plan, units, linear(), source=NoiseSource.for_test(6)).head))
        torch.testing.assert_close(*results)

    def test_records_beyond_the_bound_are_left_out(self):
        units = self.make(np.ones((5, 1, 3)), [1] * 5, [0, 0, 0, 0, 1], k=2)
        assert units.weights.sum(1).tolist() == [2, 1]

    def test_records_stay_with_their_unit(self):
        views = np.arange(1, 13).reshape(4, 1, 3)
        units = self.make(views, [0, 1, 0, 1], [1, 0, 1, 0], k=2)
        assert units.features[0].tolist() == [[4, 5, 6], [10, 11, 12]]
        assert units.labels.tolist() == [[1, 1], [0, 0]]

    def test_nobody_gives_no_units(self):
        assert len(self.make(np.ones((0, 2, 3)), [], [])) == 0
