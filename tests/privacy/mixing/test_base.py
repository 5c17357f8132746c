"""The strategies' registry, and that nothing a strategy costs goes unpaid."""

from __future__ import annotations

import pytest
import torch

from privacy.accounting import gaussian_event
from privacy.errors import PlanError
from privacy.mixing import MixingStrategy, base, build, registry
from privacy.plan import MixingPlan


class Plain(MixingStrategy):
    name = "plain"

    def event(self):
        return None


class Costly(MixingStrategy):
    name = "costly"

    def event(self):
        return gaussian_event(noise_multiplier=0.5)


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setattr(base, "_REGISTRY", {**base._REGISTRY, "plain": Plain, "costly": Costly})


class TestRegistry:
    def test_built_in_strategies_are_there(self):
        assert {"inside_clip", "warm_start"} <= set(registry())

    def test_an_installed_strategy_is_found(self, monkeypatch):
        point = type("Point", (), {"name": "plain", "load": staticmethod(lambda: Plain)})
        monkeypatch.setattr(base, "entry_points", lambda group: [point])
        assert registry()["plain"] is Plain

    def test_an_installed_strategy_cannot_replace_a_built_in_one(self, monkeypatch):
        point = type("Point", (), {"name": "inside_clip", "load": staticmethod(lambda: Plain)})
        monkeypatch.setattr(base, "entry_points", lambda group: [point])
        assert registry()["inside_clip"] is not Plain

    def test_strategies_come_in_the_plans_order(self):
        names = ("warm_start", "inside_clip")
        assert tuple(s.name for s in build(MixingPlan(strategies=names))) == names

    def test_an_unknown_name_lists_the_known_ones(self):
        with pytest.raises(PlanError, match=r"'magic' is unknown\. Known: inside_clip, public_w"):
            build(MixingPlan(strategies=("magic",)))

    def test_a_name_given_twice_is_refused(self):
        with pytest.raises(PlanError, match="names one twice"):
            build(MixingPlan(strategies=("warm_start", "warm_start")))


class TestPrice:
    def test_the_built_in_strategies_cost_nothing_beyond_dpsgd(self):
        for strategy in build(
            MixingPlan(strategies=("warm_start", "public_whitening", "inside_clip"))
        ):
            assert strategy.event() is None

    def test_a_strategy_with_a_cost_is_priced_or_refused(self, make_plan, known):
        mixing = MixingPlan(strategies=("costly",))
        try:
            build(mixing)
            plan = make_plan(mixing=mixing)
        except PlanError:
            return
        assert plan.pld_epsilon > make_plan().pld_epsilon


class TestDefaults:
    def test_a_plain_strategy_leaves_records_and_head_alone(self, known):
        (strategy,) = build(MixingPlan(strategies=("plain",)))
        records = torch.rand(4, 3)
        assert torch.equal(strategy.views(records, None), records.unsqueeze(1))
        head = torch.nn.Linear(3, 2)
        assert strategy.start(head, None) is head
