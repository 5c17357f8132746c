"""Heads: what is built, and what is refused because it couples records."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from torch import nn

from privacy.errors import PlanError
from privacy.heads import build_head, check_head


class Centred(nn.Module):
    """Subtracts the batch's mean by hand: no layer gives it away."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x - x.mean(dim=0, keepdim=True))


@pytest.fixture
def factory(monkeypatch):
    """Installs a module `made_up_heads` with one factory."""

    def install(make):
        module = types.ModuleType("made_up_heads")
        module.make = make
        monkeypatch.setitem(sys.modules, "made_up_heads", module)
        return "made_up_heads:make"

    return install


class TestBuild:
    def test_linear_starts_at_zero(self):
        head = build_head("linear", feature_dimension=3, classes=4)
        assert head(torch.ones(2, 3)).tolist() == [[0] * 4] * 2

    def test_a_factory_is_called_with_the_dimensions(self, factory):
        spec = factory(lambda d, k: nn.Sequential(nn.LayerNorm(d), nn.Linear(d, k)))
        head = build_head(spec, feature_dimension=5, classes=2)
        assert head(torch.ones(7, 2, 5)).shape == (7, 2, 2)

    @pytest.mark.parametrize(
        "spec", ["", "cubic", "no_such_module_at_all:make", "torch.nn:NoSuchLayer"]
    )
    def test_a_factory_that_cannot_be_found_is_refused(self, spec):
        with pytest.raises(PlanError, match=r"head .*Set training\.head"):
            build_head(spec, feature_dimension=3, classes=2)

    def test_a_factory_of_batch_normalisation_is_refused(self, factory):
        spec = factory(lambda d, k: nn.Sequential(nn.BatchNorm1d(d), nn.Linear(d, k)))
        with pytest.raises(PlanError, match="BatchNorm1d"):
            build_head(spec, feature_dimension=3, classes=2)


class TestCheck:
    @pytest.mark.parametrize("layer", [nn.BatchNorm1d(3), nn.SyncBatchNorm(3)])
    def test_batch_normalisation_is_refused_by_name_with_its_replacement(self, layer):
        head = nn.Sequential(nn.Linear(3, 3), layer)
        with pytest.raises(PlanError, match=rf"1 \({type(layer).__name__}\).*GroupNorm"):
            check_head(head)

    def test_running_statistics_are_refused(self):
        with pytest.raises(PlanError, match="couple records"):
            check_head(nn.Sequential(nn.InstanceNorm1d(3, track_running_stats=True, affine=True)))

    def test_coupling_outside_any_layer_is_refused(self):
        with pytest.raises(PlanError, match="couple records"):
            check_head(Centred())

    def test_coupling_behind_zero_weights_is_refused(self):
        head = Centred()
        for parameter in head.parameters():
            torch.nn.init.zeros_(parameter)
        with pytest.raises(PlanError, match="couple records"):
            check_head(head)

    def test_nothing_to_train_is_refused(self):
        head = nn.Linear(3, 2).requires_grad_(False)
        with pytest.raises(PlanError, match=r"no trainable parameter.*training\.head"):
            check_head(head)

    @pytest.mark.parametrize("layer", [nn.LayerNorm(3), nn.GroupNorm(1, 3), nn.Dropout(0.1)])
    def test_layers_that_treat_each_record_by_itself_pass(self, layer):
        check_head(nn.Sequential(layer, nn.Linear(3, 2)))
