"""Profiles: what is wrong is named, with its value and the remedy."""

from __future__ import annotations

import inspect

import pytest

from flows.audit import audit
from flows.parameters import ProfileError, Retrain, parameters_of, read_profile
from flows.refresh_public import refresh_public
from flows.retrain import retrain
from flows.services import ROOT

GOOD = {
    "dataset": {"name": "d"},
    "corpus": {"name": "c", "raw": "raw"},
    "training": {"epsilon": 1.0},
}


def changed(section, **values):
    return {**GOOD, section: {**GOOD.get(section, {}), **values}}


@pytest.mark.parametrize("profile", sorted((ROOT / "deploy/profiles").glob("*.yaml")), ids=str)
@pytest.mark.parametrize("flow", ["refresh_public", "retrain", "audit"])
def test_every_shipped_profile_is_valid(profile, flow):
    assert parameters_of(read_profile(profile), flow)


@pytest.mark.parametrize("flow", [retrain, audit])
def test_the_form_asks_for_exactly_what_the_profile_holds(flow):
    assert set(inspect.signature(flow.fn).parameters) == set(Retrain.model_fields)
    assert set(inspect.signature(refresh_public.fn).parameters) == {"corpus", "cleaning", "encoder"}


def test_a_missing_key_is_named():
    profile = {k: v for k, v in GOOD.items() if k != "training"}
    with pytest.raises(ProfileError, match="training is missing"):
        parameters_of(profile, "retrain")
    with pytest.raises(ProfileError, match=r"training\.epsilon is missing"):
        parameters_of({**GOOD, "training": {}}, "retrain")


def test_an_unknown_key_or_section_is_named():
    with pytest.raises(ProfileError, match=r"training\.epsilonn is unknown"):
        parameters_of(changed("training", epsilonn=1), "retrain")
    with pytest.raises(ProfileError, match="unknown section trainnig"):
        parameters_of({**GOOD, "trainnig": {}}, "retrain")


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "much"])
def test_an_impossible_epsilon_is_refused_with_its_value(epsilon):
    with pytest.raises(ProfileError, match=r"training\.epsilon.*got"):
        parameters_of(changed("training", epsilon=epsilon), "retrain")


def test_overrides_reach_their_key_and_bad_ones_are_named(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("training: {epsilon: 1}\n")
    assert read_profile(path, ["training.epsilon=0.5"])["training"]["epsilon"] == 0.5
    with pytest.raises(ProfileError, match=r"section\.key=value"):
        read_profile(path, ["epsilon=0.5"])


def test_a_profile_that_is_no_yaml_is_refused(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("a: [")
    with pytest.raises(ProfileError, match="is not YAML"):
        read_profile(path)
