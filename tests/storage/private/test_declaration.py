"""Declarations of private datasets: what is fixed for life, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from storage.errors import PrivateDataError


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
            ("filter", "pld"),
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

    def test_the_filter_is_agdp_unless_it_is_said(self, declare):
        assert declare().filter == "agdp"
        assert declare(filter="renyi").filter == "renyi"

    def test_one_from_before_filters_could_be_chosen_reads_as_renyi(self, store, declare, tmp_path):
        dataset = declare(filter="renyi")
        path = tmp_path / "private" / dataset.name / "dataset.json"
        value = json.loads(path.read_text())
        del value["filter"]
        path.write_text(json.dumps(value))
        assert store.dataset(dataset.name) == dataset
