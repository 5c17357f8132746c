"""Released models are whole, never overwritten, and refused if they are anything else."""

from __future__ import annotations

import json
import math

import pytest
import torch

from storage.models import ModelError, load_model, save_model

CARD = {"classes": ["bad", "größer"], "epsilon": 1.0}


@pytest.fixture
def state():
    return {"weight": torch.arange(6.0).view(2, 3).T, "bias": torch.zeros(2, requires_grad=True)}


@pytest.fixture
def saved(tmp_path, state):
    return save_model(tmp_path / "models" / "m", card=CARD, state=state)


class TestSave:
    def test_comes_back_as_it_was(self, saved, state):
        model = load_model(saved)
        assert {k: model.card[k] for k in CARD} == CARD
        assert model.state.keys() == state.keys()
        assert all(torch.equal(model.state[k], state[k]) for k in state)

    def test_never_overwrites(self, saved, state):
        with pytest.raises(ModelError, match="never overwritten"):
            save_model(saved, card={}, state={})
        assert load_model(saved).card["epsilon"] == 1.0

    def test_leaves_nothing_aside(self, saved):
        assert [p.name for p in saved.parent.iterdir()] == ["m"]

    def test_a_killed_release_is_no_model_and_does_not_stand_in_the_way(self, tmp_path, state):
        (tmp_path / "m.part").mkdir()
        (tmp_path / "m.part" / "model.json").write_text("{")
        save_model(tmp_path / "m", card=CARD, state=state)
        assert load_model(tmp_path / "m").card["epsilon"] == 1.0

    def test_a_card_that_json_cannot_say_leaves_no_model(self, tmp_path, state):
        with pytest.raises(ValueError, match="JSON"):
            save_model(tmp_path / "m", card={"epsilon": math.nan}, state=state)
        assert not (tmp_path / "m").exists()


class TestLoad:
    def test_a_missing_folder_is_refused(self, tmp_path):
        with pytest.raises(ModelError, match="not a released model"):
            load_model(tmp_path / "nothing")

    @pytest.mark.parametrize("name", ["model.json", "weights.safetensors"])
    def test_a_missing_file_is_refused(self, saved, name):
        (saved / name).unlink()
        with pytest.raises(ModelError, match="not a released model"):
            load_model(saved)

    @pytest.mark.parametrize("name", ["model.json", "weights.safetensors"])
    @pytest.mark.parametrize("content", [b"", b"\x80\x04rubbish", b"[]"])
    def test_a_spoiled_file_is_refused(self, saved, name, content):
        (saved / name).write_bytes(content)
        with pytest.raises(ModelError):
            load_model(saved)

    def test_another_schema_is_refused(self, saved):
        card = json.loads((saved / "model.json").read_text())
        (saved / "model.json").write_text(json.dumps({**card, "schema": 99}))
        with pytest.raises(ModelError, match="has schema 99"):
            load_model(saved)
