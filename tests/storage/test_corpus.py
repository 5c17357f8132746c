from __future__ import annotations

import json

import pytest

from storage.corpus import (
    Corpus,
    CorpusError,
    find_part,
    finish,
    list_shards,
    part_key,
    read_raw_shard,
    write_part,
)
from storage.tables import DROP_SCHEMA, SchemaError, TableError, read_rows, table_writer


def document(name: str, source: str = "films") -> dict:
    return {
        "id": name, "raw": name, "text": f"text {name}", "label": "", "source": source,
        "language": "en", "flags": [],
    }  # fmt: skip


def drop(name: str, reason: str = "too_short", source: str = "films") -> dict:
    return {
        "id": name, "shard": "a.jsonl", "source": source, "level": "text", "step": "length",
        "reason": reason, "detail": "",
    }  # fmt: skip


def part(corpus, *, shard="a.jsonl", kept=("1", "2"), drops=("3",), seen=None, config="c"):
    return write_part(
        corpus,
        key=part_key(shard, "digest", config),
        shard=shard,
        digest="digest",
        config=config,
        documents=[document(name) for name in kept],
        drops=[drop(name) for name in drops],
        seen=len(kept) + len(drops) if seen is None else seen,
    )


class TestReadingRawShards:
    def read(self, tmp_path, content: bytes):
        path = tmp_path / "a.jsonl"
        path.write_bytes(content)
        return list(read_raw_shard(path))

    def test_an_empty_shard_holds_nothing(self, tmp_path):
        assert self.read(tmp_path, b"") == self.read(tmp_path, b"\n \n") == []

    def test_source_and_label_are_the_lines_own(self, tmp_path):
        (record,) = self.read(tmp_path, b'\xef\xbb\xbf{"text": "x", "source": "s", "label": 1}')
        assert (record.text, record.source, record.label) == ("x", "s", "1")

    def test_a_line_without_source_has_its_shards_name(self, tmp_path):
        (record,) = self.read(tmp_path, b'{"text": "x", "source": null}\n')
        assert record.source == "a"

    @pytest.mark.parametrize(
        "line", [b"{broken", b"[1]", b"null", b'{"text": 3}', b'{"body": "x"}', b"[" * 100_000]
    )
    def test_a_malformed_line_is_marked_and_the_rest_is_read(self, tmp_path, line):
        good = b'{"text": "x"}\n'
        records = self.read(tmp_path, good + line + b"\n" + good)
        assert [record.malformed for record in records] == [False, True, False]
        assert records[1].line == 2

    def test_mostly_malformed_is_another_format(self, tmp_path):
        with pytest.raises(CorpusError, match=r"a\.jsonl is not JSON Lines: 2 of 3.*line 2"):
            self.read(tmp_path, b'{"text": "x"}\nname,text\n1,hello\n')

    def test_invalid_utf8_and_lone_surrogates_are_read_as_valid_text(self, tmp_path):
        records = self.read(tmp_path, b'{"text": "a\xffb"}\n{"text": "c\\ud83dd"}\n')
        assert [record.text for record in records] == ["a\ufffdb", "cd"]
        for record in records:
            record.text.encode("utf-8")

    def test_a_missing_shard_is_named(self, tmp_path):
        with pytest.raises(CorpusError, match=r"nowhere\.jsonl cannot be read"):
            list(read_raw_shard(tmp_path / "nowhere.jsonl"))

    def test_a_folder_without_shards_is_refused(self, tmp_path):
        with pytest.raises(CorpusError, match="holds no"):
            list_shards(tmp_path)
        with pytest.raises(CorpusError, match="does not exist"):
            list_shards(tmp_path / "nowhere")


class TestWritingParts:
    def test_counts_that_do_not_reconcile_are_refused(self, tmp_path):
        with pytest.raises(CorpusError, match=r"a\.jsonl do not reconcile: 9 .* 2 kept and 1"):
            part(tmp_path, seen=9)
        assert find_part(tmp_path, part_key("a.jsonl", "digest", "c")) is None

    def test_a_part_is_found_again_under_its_key_alone(self, tmp_path):
        written = part(tmp_path)
        assert find_part(tmp_path, written.key) == written
        assert find_part(tmp_path, part_key("a.jsonl", "digest", "d")) is None

    def test_a_row_with_another_field_is_refused(self, tmp_path):
        with (
            pytest.raises(SchemaError, match="text"),
            table_writer(tmp_path / "drops.parquet", DROP_SCHEMA) as writer,
        ):
            writer.add(drop("1") | {"text": "not here"})
        assert not list(tmp_path.iterdir())


class TestFinishing:
    def test_documents_and_drops_come_in_the_order_of_shards(self, tmp_path):
        parts = [part(tmp_path, shard="b.jsonl", kept=("4",), drops=()), part(tmp_path)]
        corpus = finish(tmp_path, parts, config="c")
        assert corpus.documents()["id"].to_pylist() == ["1", "2", "4"]
        assert corpus.drops()["reason"].to_pylist() == ["too_short"]
        assert "raw" not in corpus.documents().column_names

    def test_the_funnel_adds_up(self, tmp_path):
        funnel = finish(tmp_path, [part(tmp_path)], config="c").funnel()
        assert funnel == {
            "seen": 3,
            "kept": 2,
            "dropped": {"too_short": 1},
            "by_level": {"text": 1},
            "by_source": {"films": {"seen": 3, "kept": 2, "dropped": {"too_short": 1}}},
        }

    def test_nothing_survived_names_the_reasons_and_leaves_no_manifest(self, tmp_path):
        with pytest.raises(CorpusError, match=r"no public document survived.*too_short 2"):
            finish(tmp_path, [part(tmp_path, kept=(), drops=("1", "2"))], config="c")
        assert not (tmp_path / "manifest.json").exists()

    def test_no_document_at_all_is_said_differently(self, tmp_path):
        with pytest.raises(CorpusError, match="the 1 shards hold none"):
            finish(tmp_path, [part(tmp_path, kept=(), drops=())], config="c")

    def test_parts_of_another_configuration_are_refused(self, tmp_path):
        with pytest.raises(CorpusError, match=r"a\.jsonl.*another configuration"):
            finish(tmp_path, [part(tmp_path)], config="other")

    def test_the_digest_depends_on_content_alone(self, tmp_path):
        first = finish(tmp_path / "x", [part(tmp_path / "x")], config="c")
        second = finish(tmp_path / "y", [part(tmp_path / "y")], config="c")
        assert first.digest == second.digest


class TestOpening:
    def finished(self, tmp_path) -> Corpus:
        return finish(tmp_path, [part(tmp_path)], config="c")

    def test_a_folder_without_manifest_is_no_corpus(self, tmp_path):
        part(tmp_path)  # as a killed run leaves it
        with pytest.raises(CorpusError, match="no finished corpus"):
            Corpus.open(tmp_path)

    @pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": 1'])
    def test_a_damaged_manifest_is_named(self, tmp_path, content):
        self.finished(tmp_path)
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(CorpusError, match=r"manifest\.json is damaged"):
            Corpus.open(tmp_path)

    def test_another_format_is_named(self, tmp_path):
        self.finished(tmp_path)
        path = tmp_path / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
        with pytest.raises(CorpusError, match="format 99"):
            Corpus.open(tmp_path)

    def test_a_missing_or_half_written_table_is_named(self, tmp_path):
        table = next(self.finished(tmp_path).path.rglob("documents.parquet"))
        whole = table.read_bytes()
        table.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(CorpusError, match=r"documents\.parquet is missing or damaged"):
            Corpus.open(tmp_path)
        table.unlink()
        with pytest.raises(CorpusError, match=r"documents\.parquet is missing or damaged"):
            Corpus.open(tmp_path)

    def test_a_damaged_page_is_named(self, tmp_path):
        corpus = self.finished(tmp_path)
        table = next(corpus.path.rglob("documents.parquet"))
        content = bytearray(table.read_bytes())
        content[4:24] = b"\xff" * 20
        table.write_bytes(content)
        with pytest.raises(CorpusError, match=r"is damaged .*Remove it and refresh"):
            Corpus.open(tmp_path).documents()
        with pytest.raises(TableError, match=r"documents\.parquet is damaged"):
            list(read_rows(table))

    def test_a_manifest_that_does_not_reconcile_is_refused(self, tmp_path):
        self.finished(tmp_path)
        path = tmp_path / "manifest.json"
        manifest = json.loads(path.read_text())
        manifest["parts"][0]["seen"] += 1
        path.write_text(json.dumps(manifest))
        with pytest.raises(CorpusError, match="do not reconcile"):
            Corpus.open(tmp_path)
