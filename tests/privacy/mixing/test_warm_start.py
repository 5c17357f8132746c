"""A start that is a function of public data alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from privacy.errors import PlanError
from privacy.heads import build_head
from privacy.mixing import PublicData, WarmStart, fit_public
from privacy.plan import MixingPlan


def public(n=200, unlabelled=0):
    features = torch.randn(n, 4, generator=torch.Generator().manual_seed(1))
    labels = (features[:, 0] > 0).long()
    labels[:unlabelled] = -1
    return PublicData(features, labels)


def head():
    return build_head("linear", feature_dimension=4, classes=2)


class TestFitPublic:
    def test_learns_the_public_labels(self):
        data = public()
        fitted = WarmStart(MixingPlan()).start(head(), data)
        assert float((fitted(data.features).argmax(1) == data.labels).float().mean()) > 0.95

    def test_leaves_the_head_alone(self):
        untouched = head()
        fit_public(untouched, public())
        assert not any(p.any() for p in untouched.parameters())

    def test_gives_the_same_answer_twice(self):
        one, two = fit_public(head(), public()), fit_public(head(), public())
        assert torch.equal(one.weight, two.weight)

    def test_does_not_read_rows_without_a_label(self):
        data = public(unlabelled=50)
        spoiled = PublicData(data.features.clone(), data.labels)
        spoiled.features[:50] = 1e6
        one, two = fit_public(head(), data), fit_public(head(), spoiled)
        assert torch.equal(one.weight, two.weight)

    def test_keeps_finite_weights_on_separable_data(self):
        fitted = fit_public(head(), public())
        assert all(torch.isfinite(p).all() for p in fitted.parameters())
        assert isinstance(fitted, nn.Linear)

    def test_too_few_labels_are_refused_with_a_way_out(self):
        with pytest.raises(PlanError, match=r"at least 20 .*got 19\. Take warm_start out"):
            fit_public(head(), public(n=30, unlabelled=11))
