"""The fixed feature map: one record at a time, on public statistics alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privacy.errors import PlanError
from privacy.features import FeatureMap, whiten


def public(n=500, d=6, seed=0):
    rows = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    return rows * torch.arange(1, d + 1) + 3


def fitted(exponent=0.5, scale=10.0):
    result = FeatureMap(6, scale=scale, preconditioned=True)
    result.set(whiten(public(), exponent=exponent))
    return result


class TestWhiten:
    def test_full_whitening_leaves_hardly_a_preferred_direction(self):
        rows = public(n=5000)
        found = whiten(rows, exponent=1.0)
        variances = torch.linalg.eigvalsh(torch.cov(((rows - found.mean) @ found.matrix).T))
        assert float(variances.max() / variances.min()) < 2
        before = torch.linalg.eigvalsh(torch.cov(rows.T))
        assert float(before.max() / before.min()) > 20

    def test_a_direction_that_public_text_never_uses_does_not_blow_up(self):
        rows = public()
        rows[:, 0] = 1.0
        assert float(whiten(rows, exponent=1.0).matrix.abs().max()) < 10

    def test_too_few_rows_are_refused_with_a_way_out(self):
        with pytest.raises(PlanError, match=r"at least 20 .*got 19\. Take it out of"):
            whiten(public(n=19), exponent=0.5)


class TestFeatureMap:
    @given(st.integers(0, 10_000), st.floats(0.1, 100))
    def test_features_have_the_declared_norm(self, seed, scale):
        norms = fitted(scale=scale)(public(n=20, seed=seed)).norm(dim=1)
        assert torch.allclose(norms, torch.full_like(norms, scale), rtol=1e-4)

    @given(st.permutations(range(8)))
    def test_a_records_features_depend_on_that_record_alone(self, order):
        rows, features = public(n=8), fitted()
        assert torch.equal(features(rows)[list(order)], features(rows[list(order)]))
        alone = torch.cat([features(row[None]) for row in rows])
        assert torch.allclose(features(rows), alone, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("preconditioned", [True, False])
    def test_nothing_left_of_a_text_stays_nothing(self, preconditioned):
        features = fitted() if preconditioned else FeatureMap(6, scale=10, preconditioned=False)
        rows = public(n=3)
        rows[1] = 0
        rows[2] = float("nan")
        seen = features(rows)
        assert torch.isfinite(seen[0]).all()
        assert not seen[1].any()
        assert torch.isnan(seen[2]).all()

    def test_without_a_preconditioner_it_only_scales(self):
        rows = public()
        assert torch.equal(FeatureMap(6, scale=3, preconditioned=False)(rows), 3 * rows)

    def test_holds_nothing_that_is_trained(self):
        assert not list(fitted().parameters())

    @pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
    def test_a_scale_that_is_none_is_refused(self, scale):
        with pytest.raises(PlanError, match=r"feature_scale .*Set training\.feature_scale"):
            FeatureMap(6, scale=scale, preconditioned=False)
