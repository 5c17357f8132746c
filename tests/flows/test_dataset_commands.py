"""`dpmix dataset register`: what it refuses, and that a refusal leaves nothing behind."""

from __future__ import annotations

import pytest

from flows.commands import dataset
from storage.errors import PrivateDataError
from tasks.installation import Installation

TERMS = {"text_column": "body", "label_column": "kind", "classes": ["a", "b"], "records": 1000}


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A private table that dataset ``letters`` has taken in."""
    monkeypatch.setenv("DPMIX_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("DPMIX_RUNS", str(tmp_path / "runs"))
    path = tmp_path / "letters.csv"
    path.write_text("body,kind\n" + "".join(f"letter {k},{'ab'[k % 2]}\n" for k in range(40)))
    dataset.register("letters", path, **TERMS)
    return path


def known():
    installation = Installation.open()
    ledger = [b.name for b in installation.ledger.blocks()], installation.ledger.head()
    return installation.store.datasets(), ledger


def test_the_same_file_under_another_name_is_refused_and_leaves_nothing(table, tmp_path):
    before = known()
    copy = tmp_path / "copy.csv"
    copy.write_bytes(table.read_bytes())
    for file in (table, copy):
        with pytest.raises(PrivateDataError, match="taken in by dataset 'letters'"):
            dataset.register("post", file, **TERMS)
    assert known() == before
    assert not (tmp_path / "var" / "private" / "post").exists()


def test_a_refused_file_opens_no_further_period(table, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("body,kind\nanother,a\n")
    dataset.register("post", other, **TERMS)
    before = known()
    with pytest.raises(PrivateDataError, match="taken in by dataset 'letters'"):
        dataset.register("post", table, period="2030-01")
    assert known() == before


def test_the_same_command_again_changes_nothing(table):
    before = known()
    dataset.register("letters", table, **TERMS)
    assert known() == before


def test_a_missing_file_leaves_nothing(table, tmp_path):
    before = known()
    with pytest.raises(PrivateDataError, match="does not exist"):
        dataset.register("post", tmp_path / "nowhere.csv", **TERMS)
    assert known() == before
