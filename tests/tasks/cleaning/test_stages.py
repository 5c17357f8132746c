from __future__ import annotations

import json
import logging

import pytest

from storage.corpus import Corpus, CorpusError, list_shards
from tasks.cleaning import stages
from tasks.cleaning.base import Cleaner, CleaningError, Document
from tasks.cleaning.stages import (
    clean_domain,
    clean_pii,
    clean_private,
    clean_text,
    finish_corpus,
    plan_cleaning,
)

GOOD = "The film kept its promise to the end and her performance moved everyone."
OFF = "This router and the battery of the phone failed before the tax bill came."
STEPS = ("html", "repair", "readable", "length", "language", "domain", "pii")


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


@pytest.fixture
def corpus(tmp_path):
    return tmp_path / "corpus"


@pytest.fixture
def plan(corpus, examples):
    return plan_cleaning(corpus, steps=STEPS, options={"domain": {"examples": str(examples)}})


def write(folder, name, rows):
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    (folder / name).write_text("".join(line + "\n" for line in lines))


def refresh(raw, plan):
    works = []
    for shard in list_shards(raw):
        work = clean_text.fn(shard, plan)
        work = clean_domain.fn(work, plan)
        works.append(clean_pii.fn(work, plan))
    return finish_corpus.fn(works, plan)


ROWS = [
    {"text": f"<p>{GOOD}</p>", "source": "films", "label": "positive"},
    {"text": OFF, "source": "goods"},
    {"text": "kurz", "source": "films"},
    {"text": f'{GOOD} <a href="mailto:sam.poe%40example.org">me</a>', "source": "films"},
    "{not json",
]


class TestRefreshing:
    def test_every_document_is_kept_or_dropped_for_a_reason_at_its_level(self, raw, plan, corpus):
        write(raw, "a.jsonl", ROWS)
        funnel = refresh(raw, plan)["funnel"]
        assert (funnel["seen"], funnel["kept"]) == (5, 1)
        assert funnel["dropped"] == {
            "malformed_line": 1, "out_of_domain": 1, "pii_email": 1, "too_short": 1,
        }  # fmt: skip
        assert funnel["by_level"] == {"text": 2, "domain": 1, "pii": 1}
        assert funnel["by_source"]["films"]["kept"] == 1
        (row,) = Corpus.open(corpus).documents().to_pylist()
        assert (row["text"], row["label"], row["language"]) == (GOOD, "positive", "en")
        assert (row["shard"], row["config"]) == ("a.jsonl", plan.config)

    def test_no_text_of_a_dropped_document_is_left_on_disk(self, raw, plan, corpus):
        write(raw, "a.jsonl", ROWS)
        refresh(raw, plan)
        assert Corpus.open(corpus).drops().column_names == [
            "id", "shard", "source", "level", "step", "reason", "detail",
        ]  # fmt: skip
        assert not list((corpus / "work").rglob("*.parquet"))

    def test_a_second_run_cleans_nothing(self, raw, plan, monkeypatch):
        write(raw, "a.jsonl", ROWS)
        first = refresh(raw, plan)
        monkeypatch.setattr(stages, "_in_pool", None)
        second = refresh(raw, plan)
        assert second == first | {"reused": 1}

    def test_only_a_changed_shard_is_cleaned_again(self, raw, plan):
        write(raw, "a.jsonl", ROWS)
        write(raw, "b.jsonl", ROWS)
        refresh(raw, plan)
        write(raw, "b.jsonl", ROWS[:2])
        assert refresh(raw, plan)["reused"] == 1

    def test_other_options_clean_again(self, raw, plan, corpus, examples):
        write(raw, "a.jsonl", ROWS)
        refresh(raw, plan)
        options = {"domain": {"examples": str(examples)}, "length": {"min_chars": 3}}
        assert refresh(raw, plan_cleaning(corpus, steps=STEPS, options=options))["reused"] == 0

    def test_a_run_cut_short_resumes_to_the_same_bytes(self, raw, plan, tmp_path, examples):
        write(raw, "a.jsonl", ROWS)
        shard = list_shards(raw)[0]
        clean_domain.fn(clean_text.fn(shard, plan), plan)  # and then the process is killed
        resumed = refresh(raw, plan)
        other = plan_cleaning(
            tmp_path / "other", steps=STEPS, options={"domain": {"examples": str(examples)}}
        )
        assert refresh(raw, other)["digest"] == resumed["digest"]

    def test_an_empty_shard_is_seen_as_empty(self, raw, plan):
        write(raw, "a.jsonl", ROWS)
        write(raw, "b.jsonl", [])
        assert refresh(raw, plan)["shards"] == {"a.jsonl": 5, "b.jsonl": 0}

    def test_a_shard_that_is_not_json_is_refused_and_leaves_nothing(self, raw, plan, corpus):
        write(raw, "a.jsonl", ["<html>", "<body>", "words"])
        with pytest.raises(CorpusError, match=r"a\.jsonl is not JSON Lines.*line 1"):
            refresh(raw, plan)
        assert not list(corpus.rglob("*.parquet"))

    def test_a_two_megabyte_document_is_one_drop(self, raw, plan):
        write(raw, "a.jsonl", [ROWS[0], {"text": "word " * 420_000}])
        assert refresh(raw, plan)["funnel"]["dropped"] == {"repetition": 1}

    def test_invalid_utf8_costs_the_document_not_the_shard(self, raw, plan):
        broken = b'{"text": "' + b"\xff\xfe\xe9 " * 40 + b'film"}\n'
        (raw / "a.jsonl").write_bytes(json.dumps(ROWS[0]).encode() + b"\n" + broken)
        assert refresh(raw, plan)["funnel"]["dropped"] == {"unreadable": 1}

    def test_nothing_survives_says_why_and_keeps_the_old_corpus(self, raw, plan, corpus):
        write(raw, "a.jsonl", ROWS)
        before = refresh(raw, plan)["digest"]
        write(raw, "a.jsonl", [{"text": "kurz"}, {"text": OFF}])
        with pytest.raises(CorpusError, match=r"no public document survived.*too_short 1"):
            refresh(raw, plan)
        assert Corpus.open(corpus).digest == before

    def test_worker_processes_give_the_same_corpus(self, raw, plan, tmp_path):
        write(raw, "a.jsonl", ROWS)
        parallel = plan_cleaning(
            tmp_path / "parallel", steps=STEPS, options=plan.options, workers=1
        )
        assert refresh(raw, parallel)["digest"] == refresh(raw, plan)["digest"]


class TestPlanning:
    def test_a_wrong_step_is_refused_before_any_document(self, corpus):
        with pytest.raises(CleaningError, match="nonsense"):
            plan_cleaning(corpus, steps=["nonsense"])

    @pytest.mark.parametrize("workers", [-1, 1_000])
    def test_worker_counts_have_bounds(self, corpus, workers):
        with pytest.raises(CleaningError, match="workers"):
            plan_cleaning(corpus, steps=["length"], workers=workers)


class Neighbourly(Cleaner):
    """Looks at more than one record."""

    name = "neighbourly"
    level = "text"
    record_local = False

    def clean(self, document: Document) -> Document:
        return document


class Secretive(Cleaner):
    """Raises with the text in its message."""

    name = "secretive"
    level = "text"
    record_local = True

    def clean(self, document: Document) -> Document:
        if "secret" in document.text:
            raise ValueError(document.text)
        return document


class TestPrivateRows:
    def test_rows_are_cleaned_in_place_and_unusable_ones_are_empty(self):
        rows = ["<b>Fine</b> &amp; well said, all of it.", "", "😀", None, 3.5]
        assert clean_private(rows, ["html", "repair", "readable"]) == [
            "Fine & well said, all of it.", "", "", "", "",
        ]  # fmt: skip

    def test_a_failing_row_is_empty_and_nothing_is_said(self, monkeypatch, caplog, capsys):
        monkeypatch.setattr(stages, "build", lambda *_: [Secretive()])
        with caplog.at_level(logging.DEBUG):
            assert clean_private(["a secret", "open"], ["secretive"]) == ["", "open"]
        assert not caplog.records
        assert capsys.readouterr() == ("", "")

    def test_one_row_does_not_change_another(self):
        steps = ["html", "repair", "readable", "language"]
        alone = clean_private([GOOD], steps)
        assert clean_private([GOOD, OFF, "😀"], steps)[:1] == alone

    def test_a_step_that_sees_several_records_is_refused(self, monkeypatch):
        monkeypatch.setattr(stages, "build", lambda *_: [Neighbourly()])
        with pytest.raises(CleaningError, match=r"neighbourly.*more than one record"):
            clean_private(["x"], ["neighbourly"])
