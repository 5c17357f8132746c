"""A run's folder: whole files or none, and clear words for what is missing."""

from __future__ import annotations

import math

import pytest
import torch

from storage.runs import RunError, RunFolder


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "runs" / "r1")


class TestFiles:
    def test_come_back_as_they_were(self, folder):
        value = {"steps": 3, "names": ["größer"], "inner": {"epsilon": 0.5}}
        folder.write("plan", value)
        assert folder.has("plan")
        assert RunFolder(str(folder.path)).read("plan") == value

    def test_are_replaced_whole(self, folder):
        folder.write("plan", {"a": 1})
        folder.write("plan", {"b": 2})
        assert folder.read("plan") == {"b": 2}
        assert [p.name for p in folder.path.iterdir()] == ["plan.json"]

    def test_a_refused_value_leaves_the_old_one(self, folder):
        folder.write("plan", {"a": 1})
        with pytest.raises(ValueError, match="JSON"):
            folder.write("plan", {"a": math.nan})
        assert folder.read("plan") == {"a": 1}

    def test_a_missing_one_says_that_its_stage_did_not_finish(self, folder):
        assert not folder.has("plan")
        with pytest.raises(RunError, match=r"no plan\.json: an earlier stage did not finish"):
            folder.read("plan")

    def test_the_folder_names_the_run(self, folder):
        assert folder.run_id == "r1"


class TestWeights:
    def test_come_back_as_they_were(self, folder):
        state = {"weight": torch.arange(6.0).view(2, 3).T, "bias": torch.ones(2)}
        folder.write_weights("mixed", state)
        read = folder.read_weights("mixed")
        assert read.keys() == state.keys()
        assert all(torch.equal(read[k], state[k]) for k in state)

    def test_arms_are_listed_by_name(self, folder):
        assert folder.arms() == []
        for arm in ("public", "mixed"):
            folder.write_weights(arm, {"w": torch.zeros(1)})
        assert folder.arms() == ["mixed", "public"]

    def test_of_an_arm_that_was_not_trained_say_so(self, folder):
        with pytest.raises(RunError, match="mixed"):
            folder.read_weights("mixed")
