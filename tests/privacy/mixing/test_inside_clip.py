"""Views lean on one record and on public data, and on nothing else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privacy.errors import PlanError
from privacy.mixing import InsideClip, Neighbours
from privacy.mixing.inside_clip import kernel
from privacy.plan import MixingPlan


def unit_rows(*shape, seed):
    rows = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(rows, dim=-1)


def find(records, public, k=3):
    """The k nearest of `public`, one record at a time."""
    similarities, indices = (records @ public.T).topk(k, dim=1)
    return Neighbours(public[indices], similarities)


@pytest.fixture
def strategy():
    return InsideClip(MixingPlan(strategies=("inside_clip",)))


class TestViews:
    @given(st.integers(0, 1000), st.permutations(range(6)))
    def test_do_not_depend_on_where_the_record_stands(self, strategy, seed, order):
        records, public = unit_rows(6, 4, seed=seed), unit_rows(9, 4, seed=seed + 1)
        views = strategy.views(records, find(records, public))
        shuffled = strategy.views(records[list(order)], find(records[list(order)], public))
        torch.testing.assert_close(shuffled, views[list(order)])

    @given(st.integers(0, 1000), st.integers(0, 5))
    def test_never_look_at_another_private_record(self, strategy, seed, changed):
        records, public = unit_rows(6, 4, seed=seed), unit_rows(9, 4, seed=seed + 1)
        other = records.clone()
        other[changed] = unit_rows(4, seed=seed + 2)
        before = strategy.views(records, find(records, public))
        after = strategy.views(other, find(other, public))
        rest = torch.arange(6) != changed
        torch.testing.assert_close(before[rest], after[rest])

    def test_a_changed_public_neighbour_moves_mixtures_alone(self, strategy):
        records, public = unit_rows(6, 4, seed=1), unit_rows(9, 4, seed=2)
        found = find(records, public)
        moved = Neighbours(found.features.clone(), found.similarities)
        moved.features[2] = unit_rows(3, 4, seed=3)
        before, after = strategy.views(records, found), strategy.views(records, moved)
        assert torch.equal(before[:, 0], after[:, 0])
        different = [not torch.equal(b, a) for b, a in zip(before, after, strict=True)]
        assert different == [k == 2 for k in range(6)]

    def test_begin_with_the_record_itself(self, strategy):
        records, public = unit_rows(6, 4, seed=4), unit_rows(9, 4, seed=5)
        assert torch.equal(strategy.views(records, find(records, public))[:, 0], records)

    @given(st.integers(0, 1000), st.floats(0.01, 1), st.floats(0.01, 5))
    def test_are_no_longer_than_one(self, seed, weight, temperature):
        strategy = InsideClip(MixingPlan(weight=weight, temperature=temperature))
        records, public = unit_rows(6, 4, seed=seed), unit_rows(9, 4, seed=seed + 1)
        views = strategy.views(records, find(records, public))
        assert float(views.norm(dim=-1).max()) <= 1 + 1e-5

    def test_need_public_neighbours(self, strategy):
        with pytest.raises(PlanError, match="needs public neighbours; build the public index"):
            strategy.views(unit_rows(2, 4, seed=6), None)


class TestKernel:
    def test_of_equal_neighbours_is_their_mean(self):
        features = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
        mixture = kernel(Neighbours(features, torch.tensor([[0.3, 0.3]])), temperature=0.2)
        torch.testing.assert_close(mixture, torch.tensor([[0.5, 0.5]]))

    def test_at_a_low_temperature_is_the_nearest(self):
        features = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
        mixture = kernel(Neighbours(features, torch.tensor([[0.9, 0.3]])), temperature=0.01)
        torch.testing.assert_close(mixture, torch.tensor([[1.0, 0.0]]))
