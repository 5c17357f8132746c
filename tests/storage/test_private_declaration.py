"""Declarations of private datasets: what is fixed for life, and what is refused."""

from __future__ import annotations

import secrets
from dataclasses import replace

import pytest

from storage.errors import PrivateDataError
from storage.ledger import Ledger
from storage.private import Dataset, PrivateStore


@pytest.fixture
def ledger(tmp_path):
    return Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")


@pytest.fixture
def store(tmp_path, ledger):
    return PrivateStore(tmp_path / "private", ledger)


@pytest.fixture
def declare(store, ledger):
    """Declares a dataset of a fresh name; keywords change its terms."""

    def make(**changes):
        values = {
            "name": f"reviews-{secrets.token_hex(4)}",
            "text_column": "text",
            "label_column": "label",
            "classes": ("bad", "good"),
            "unit": "record",
            "records_per_unit": 1,
            "records": 7000,
            "holdout_records": 3000,
            "epsilon_cap": 4.0,
            "holdout_epsilon_cap": 1.0,
            "delta": 1e-5,
            "ledger_id": ledger.id,
        }
        if changes.get("unit") == "person":
            values |= {"person_column": "person", "records_per_unit": 3}
        return store.declare(Dataset(**{**values, **changes}))

    return make


class TestDeclaration:
    def test_is_kept(self, store, declare):
        dataset = declare()
        assert store.dataset(dataset.name) == dataset
        assert store.datasets() == [dataset.name]
        assert store.declare(dataset) == dataset

    @pytest.mark.parametrize(
        ("name", "value"),
        [("classes", ("good", "bad")), ("holdout_records", 5000), ("epsilon_cap", 100.0)],
    )
    def test_is_fixed_for_life(self, store, declare, name, value):
        with pytest.raises(PrivateDataError, match=f"other values of {name}"):
            store.declare(replace(declare(), **{name: value}))

    def test_an_unknown_dataset_lists_the_known_ones(self, store, declare):
        known = declare().name
        for name in ("nothing", "../ledger.db", ""):
            with pytest.raises(PrivateDataError, match=f"not registered; registered: {known}"):
                store.dataset(name)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("name", "../evil"),
            ("name", "Upper"),
            ("name", ""),
            ("unit", "person"),
            ("unit", "sentence"),
            ("person_column", "person"),
            ("records", 0),
            ("records", float("nan")),
            ("holdout_records", -1),
            ("holdout_records", float("nan")),
            ("classes", ("one",)),
            ("classes", ("a", "a")),
            ("records_per_unit", 0),
            ("epsilon_cap", float("nan")),
            ("delta", float("nan")),
        ],
    )
    def test_a_wrong_value_is_refused(self, declare, name, value):
        good = declare()
        with pytest.raises(PrivateDataError):
            replace(good, **{name: value})

    def test_a_wrong_file_is_an_error_that_quotes_no_row(self, store, declare, tmp_path):
        path = tmp_path / "rows.csv"
        path.write_text("body,label\na secret,good\n")
        with pytest.raises(PrivateDataError, match="no column 'text'") as refused:
            store.ingest(declare(), path)
        assert "secret" not in str(refused.value)
