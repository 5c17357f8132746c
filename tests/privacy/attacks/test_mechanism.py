"""The mechanism audit sees the faults that it is for, and none where there is none."""

from __future__ import annotations

import json

import numpy as np
import pytest

from privacy.attacks import mechanism
from privacy.attacks.mechanism import AuditSize, audit_mechanism, tiny_twin
from privacy.noise import NoiseSource
from privacy.training import PlanOptimizer

# Chosen so that a correct mechanism fails, or a broken one passes, less than once in 10⁴ runs: a canary
# moves its column by 0.36 standard deviations where the verdict needs 89 of 100 guesses right.
SIZE = AuditSize(canaries=300, guesses=100, repeats=30, control_confidence=1 - 1e-6)


@pytest.fixture
def plan(make_plan):
    return make_plan(
        sample_rate=0.5,
        steps=8,
        noise_multiplier=4.0,
        max_grad_norm=0.02,
        learning_rate=50.0,
        classes=("a", "b", "c"),
    )


@pytest.fixture
def twin():
    views = np.random.default_rng(0).normal(size=(30, 2, 3)).astype(np.float32)
    return views / np.linalg.norm(views, axis=-1, keepdims=True), np.arange(30) % 3


def audit(plan, twin, **keywords):
    views, labels = twin
    return audit_mechanism(plan, views=views, labels=labels, size=SIZE, **keywords)


class TestVerdict:
    def test_a_correct_plan_passes_with_its_controls(self, plan, twin):
        result = audit(plan, twin)
        assert result.verdict == "pass"
        assert result.claimed == plan.pld_epsilon
        shown = result.to_json()
        assert shown["positive_control"]["seen"]
        assert shown["negative_control"]["ok"]
        assert shown["lower_bound"] <= shown["claimed"] < shown["ceiling"]
        json.dumps(shown, allow_nan=False)

    def test_too_little_noise_fails(self, plan, twin, monkeypatch):
        add = PlanOptimizer.add_noise

        def add_little(self):
            self.noise_multiplier, kept = 0.05 * self.noise_multiplier, self.noise_multiplier
            add(self)
            self.noise_multiplier = kept

        monkeypatch.setattr(PlanOptimizer, "add_noise", add_little)
        assert audit(plan, twin).verdict == "fail"

    def test_no_clipping_fails(self, plan, twin, monkeypatch):
        clip = PlanOptimizer.clip_and_accumulate

        def only_accumulate(self):
            self.max_grad_norm, kept = 1e9, self.max_grad_norm
            clip(self)
            self.max_grad_norm = kept

        monkeypatch.setattr(PlanOptimizer, "clip_and_accumulate", only_accumulate)
        assert audit(plan, twin).verdict == "fail"

    def test_training_that_does_nothing_is_no_pass(self, plan, twin, monkeypatch):
        def stand_still(self):
            for parameter in self.params:
                parameter.grad = parameter.summed_grad * 0

        monkeypatch.setattr(PlanOptimizer, "add_noise", stand_still)
        assert audit(plan, twin).verdict == "inconclusive"


class TestConduct:
    def test_runs_the_plans_own_mechanism_once_without_noise(self, plan, twin, monkeypatch):
        seen, train = [], mechanism.train

        def remember(given, units, head, *, source):
            seen.append((given, source))
            return train(given, units, head, source=source)

        monkeypatch.setattr(mechanism, "train", remember)
        audit(plan, twin)
        assert len(seen) == SIZE.repeats + 2
        assert sum(given.event == plan.event for given, _ in seen) == SIZE.repeats + 1
        for given, _ in seen:
            assert given.max_grad_norm == plan.max_grad_norm
            assert given.divisor == plan.divisor
            assert given.learning_rate == plan.learning_rate

    def test_every_run_has_fresh_private_noise(self, plan, twin, monkeypatch):
        made = []

        class Remembered(NoiseSource):
            def __init__(self):
                super().__init__()
                made.append(self)

        monkeypatch.setattr(mechanism, "NoiseSource", Remembered)
        audit(plan, twin)
        assert len({s.commitment for s in made}) == SIZE.repeats + 2
        assert all(s.is_private for s in made)

    def test_reports_progress_to_the_end(self, plan, twin):
        seen = []
        audit(plan, twin, on_progress=lambda done, total: seen.append((done, total)))
        assert seen == [(k, SIZE.repeats + 2) for k in range(1, SIZE.repeats + 3)]


class TestTinyTwin:
    def test_holds_an_absent_class_and_a_malformed_record(self, twin):
        views, labels = tiny_twin(*twin, classes=3)
        assert len(views) == len(labels) <= 9
        assert 2 not in labels
        assert np.isnan(views).all(axis=(1, 2)).sum() == 1

    def test_leaves_steps_without_anybody(self, twin):
        views, _ = tiny_twin(*twin, classes=3)
        source = NoiseSource.for_test(1)
        sizes = [len(source.poisson_sample(len(views), 0.05)) for _ in range(100)]
        assert 0 in sizes

    def test_may_hold_nothing_but_the_malformed_record(self, twin):
        views, _ = twin
        tiny, labels = tiny_twin(views, np.full(len(views), 2), classes=3)
        assert len(tiny) == len(labels) == 1
