"""A classifier starts from public data, and its stored state gives it back whole."""

from __future__ import annotations

import pytest
import torch

from privacy.classifier import of_plan, starting_classifier
from privacy.errors import PlanError
from privacy.mixing import PublicData, PublicWhitening, base
from privacy.plan import MixingPlan


@pytest.fixture
def public():
    features = torch.randn(300, 3, generator=torch.Generator().manual_seed(1)) + 2
    return PublicData(features, (features[:, 0] > 2).long())


def planned(make_plan, *strategies):
    return make_plan(mixing=MixingPlan(strategies=strategies))


def test_the_head_is_fitted_in_the_features_that_it_will_see(make_plan, public):
    plan = planned(make_plan, "warm_start", "public_whitening")
    found = starting_classifier(plan, public)(public.features).argmax(dim=1)
    assert float((found == public.labels).float().mean()) > 0.95


def test_without_strategies_nothing_public_enters(make_plan, public):
    classifier = starting_classifier(make_plan(), public)
    assert torch.equal(classifier.features(public.features), 10 * public.features)
    assert not any(p.any() for p in classifier.head.parameters())


@pytest.mark.parametrize("strategies", [(), ("warm_start",), ("public_whitening", "warm_start")])
def test_a_stored_state_gives_the_same_answers(make_plan, public, strategies):
    plan = planned(make_plan, *strategies)
    before = starting_classifier(plan, public)
    after = of_plan(plan)
    after.load_state_dict(before.state_dict())
    assert torch.equal(after(public.features), before(public.features))


def test_a_state_of_another_shape_is_not_taken(make_plan, public):
    state = starting_classifier(planned(make_plan, "public_whitening"), public).state_dict()
    with pytest.raises(RuntimeError, match=r"features\.mean"):
        of_plan(make_plan()).load_state_dict(state)


def test_two_strategies_that_fit_the_map_are_refused(make_plan, public, monkeypatch):
    class Second(PublicWhitening):
        name = "second"

    monkeypatch.setitem(base._REGISTRY, "second", Second)
    with pytest.raises(PlanError, match=r"public_whitening, second each fit .*Keep one"):
        starting_classifier(planned(make_plan, "public_whitening", "second"), public)


def test_public_labels_do_not_move_the_feature_map(make_plan, public):
    plan = planned(make_plan, "public_whitening")
    other = PublicData(public.features, 1 - public.labels)
    one, two = starting_classifier(plan, public), starting_classifier(plan, other)
    assert torch.equal(one.features.matrix, two.features.matrix)
