"""The contract of every attack, built in or installed, and the registry."""

from typing import get_args

import numpy as np
import pytest

from privacy.attacks import base, create, names, register
from privacy.attacks.base import Attack, Observation, Publishes, Tier


def _observation():
    rng = np.random.default_rng(0)
    n, classes, d = 12, 3, 20
    before = np.zeros((classes, d))
    return Observation(
        labels=np.arange(n) % classes,
        logits=rng.standard_normal((n, classes)),
        weight_before=before,
        weight_after=before + rng.standard_normal((classes, d)),
        bias_before=np.zeros(classes),
    )


@pytest.fixture(params=names())
def attack(request):
    return create(request.param)


class TestContract:
    def test_gives_one_score_per_example(self, attack):
        seen = _observation()
        scores = attack(seen)
        assert scores.shape == seen.labels.shape
        assert scores.dtype == np.float64
        assert not np.isnan(scores).any()

    def test_is_deterministic_and_leaves_what_it_sees_alone(self, attack):
        seen, untouched = _observation(), _observation()
        np.testing.assert_array_equal(attack(seen), attack(seen))
        for name in attack.needs | {"labels"}:
            np.testing.assert_array_equal(getattr(seen, name), getattr(untouched, name))

    def test_declares_what_it_may_publish(self, attack):
        assert attack.tier in get_args(Tier)
        assert attack.publishes in get_args(Publishes)
        assert attack.tier != "member" or attack.publishes == "restricted"

    def test_names_what_it_misses(self, attack):
        with pytest.raises(ValueError, match=f"needs .*{min(attack.needs)}"):
            attack(Observation(labels=np.zeros(3, dtype=np.int64)))


class _Constant(Attack):
    name = "constant"
    tier = "canary"
    publishes = "release"
    needs = frozenset()

    def score(self, seen):
        return np.zeros(len(seen.labels))


class _EntryPoint:
    def __init__(self, name, loaded):
        self.name, self._loaded = name, loaded

    def load(self):
        return self._loaded


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))

    def install(*entries):
        monkeypatch.setattr(base, "entry_points", lambda group: entries)

    return install


class TestRegistry:
    def test_built_in_attacks_are_there(self):
        assert {"loss_threshold", "dirac_canary"} <= set(names())

    def test_finds_an_installed_attack_by_name(self, registry):
        registry(_EntryPoint("constant", _Constant))
        assert "constant" in names()
        assert isinstance(create("constant"), _Constant)

    def test_an_installed_attack_cannot_replace_a_built_in_one(self, registry):
        registry(_EntryPoint("loss_threshold", _Constant))
        assert not isinstance(create("loss_threshold"), _Constant)

    def test_an_unknown_name_lists_the_known_ones(self):
        with pytest.raises(ValueError, match=r"one of dirac_canary, loss_threshold.*'nothing'"):
            create("nothing")

    def test_a_taken_name_is_refused(self, registry):
        registry()
        with pytest.raises(ValueError, match="'dirac_canary' is taken"):
            register(type("Other", (_Constant,), {"name": "dirac_canary"}))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"tier": "member"}, "must be 'restricted'"),
            ({"tier": "guess"}, "tier must be one of"),
            ({"publishes": "all"}, "publishes must be one of"),
            ({"needs": frozenset({"secrets"})}, "needs must be fields of Observation"),
        ],
    )
    def test_a_contradictory_declaration_is_refused(self, registry, change, message):
        registry()
        with pytest.raises(ValueError, match=message):
            register(type("Wrong", (_Constant,), change))

    def test_an_entry_point_that_is_no_attack_is_refused(self, registry):
        registry(_EntryPoint("constant", dict))
        with pytest.raises(ValueError, match="subclass of Attack"):
            create("constant")

    def test_scores_of_another_shape_or_nan_are_refused(self):
        wrong = type("Wrong", (_Constant,), {"score": lambda self, seen: np.zeros(1)})
        with pytest.raises(ValueError, match="one score per example"):
            wrong()(_observation())
        nan = type("Nan", (_Constant,), {"score": lambda self, seen: np.full(12, np.nan)})
        with pytest.raises(ValueError, match="must not be NaN"):
            nan()(_observation())
