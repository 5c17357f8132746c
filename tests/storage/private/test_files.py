"""Private files: the file may be wrong, aloud; a row may be wrong, in silence."""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import PrivateDataError
from storage.private.files import read_rows

COLUMNS = ("text", "label")


def texts(path):
    return [row["text"] for row in read_rows(path, COLUMNS)]


class TestFormats:
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.csv", "label,text\ngood,one\nbad,two\n"),
            ("a.tsv", "label\ttext\ngood\tone\nbad\ttwo\n"),
            ("a.tab", 'label\ttext\textra\ngood\tone\t"\nbad\ttwo\t\n'),
            ("a.jsonl", '{"text":"one","label":"good"}\n{"label":"bad","text":"two"}\n'),
            ("a.ndjson", '{"text":"one","label":"good","x":[1]}\n\n{"label":"b","text":"two"}'),
        ],
    )
    def test_each_is_read(self, tmp_path, name, content):
        (tmp_path / name).write_text(content)
        assert texts(tmp_path / name) == ["one", "two"]

    def test_parquet_is_read(self, tmp_path):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"text": ["one", "two"], "label": ["a", "b"], "x": [1, 2]}), path)
        assert texts(path) == ["one", "two"]

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.csv", "text,label\none,good\n"),
            ("a.jsonl", '{"text":"one","label":"good"}\n'),
        ],
    )
    def test_a_byte_order_mark_costs_no_row(self, tmp_path, name, content):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + content.encode())
        assert texts(tmp_path / name) == ["one"]

    def test_a_quoted_field_may_hold_lines_and_delimiters(self, tmp_path):
        (tmp_path / "a.csv").write_text('text,label\n"one, and\n""more""",good\n')
        assert texts(tmp_path / "a.csv") == ['one, and\n"more"']


class TestWrongFile:
    def test_a_missing_one_is_named(self, tmp_path):
        with pytest.raises(PrivateDataError, match=r"a\.csv does not exist"):
            texts(tmp_path / "a.csv")

    def test_an_unknown_format_lists_the_known_ones(self, tmp_path):
        (tmp_path / "a.xlsx").write_text("")
        with pytest.raises(PrivateDataError, match=r"'\.xlsx' .*Known: \.csv"):
            texts(tmp_path / "a.xlsx")

    @pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
    def test_a_missing_column_is_named_and_a_first_line_that_may_be_a_row_is_not(
        self, tmp_path, name
    ):
        (tmp_path / name).write_text("my secret\n")
        with pytest.raises(PrivateDataError, match="no column 'text'") as refused:
            texts(tmp_path / name)
        assert "secret" not in str(refused.value)

    def test_a_missing_parquet_column_is_named_with_those_there_are(self, tmp_path):
        pq.write_table(pa.table({"text": ["x"]}), tmp_path / "a.parquet")
        with pytest.raises(PrivateDataError, match="no column 'label'; its columns are text"):
            texts(tmp_path / "a.parquet")

    def test_a_damaged_parquet_is_refused_without_a_word_of_its_rows(self, tmp_path):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"text": ["secret"] * 999, "label": ["x"] * 999}), path)
        content = bytearray(path.read_bytes())
        content[4:40] = b"\xff" * 36
        path.write_bytes(content)
        with pytest.raises(PrivateDataError, match=r"a\.parquet is damaged") as caught:
            texts(path)
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("content", [b"", b"text,label\nno,parquet\n"])
    def test_what_is_no_parquet_is_refused(self, tmp_path, content):
        (tmp_path / "a.parquet").write_bytes(content)
        with pytest.raises(PrivateDataError, match="not a Parquet file"):
            texts(tmp_path / "a.parquet")

    def test_an_empty_csv_lacks_its_columns(self, tmp_path):
        (tmp_path / "a.csv").write_bytes(b"")
        with pytest.raises(PrivateDataError, match="no column 'text'"):
            texts(tmp_path / "a.csv")


class TestWrongRow:
    @pytest.mark.parametrize(
        "row", [b"too few", b"one,too,many", b"", b",,,,,,", b"a\x00", b"\xff\xfe"]
    )
    def test_of_a_csv_is_nothing(self, tmp_path, row):
        (tmp_path / "a.csv").write_bytes(b"text,label\none,good\n" + row + b"\ntwo,bad\n")
        assert texts(tmp_path / "a.csv") == ["one", "two"]

    @pytest.mark.parametrize(
        "row",
        [
            b"{",
            b"[]",
            b"null",
            b'"text"',
            b'{"text":"x"}',
            b"[" * 100_000,
            b"\xff\xfe",
            b"9" * 5000,
            b"\x00",
        ],
    )
    def test_of_a_jsonl_is_nothing(self, tmp_path, row):
        good = [b'{"text":"one","label":"a"}', row, b'{"text":"two","label":"b"}']
        (tmp_path / "a.jsonl").write_bytes(b"\n".join(good))
        assert texts(tmp_path / "a.jsonl") == ["one", "two"]

    def test_of_a_parquet_is_nothing(self, tmp_path):
        spoiled = pa.array([b"one", b"\xff\xfe", b"two"]).view(pa.string())
        table = pa.table({"text": spoiled, "label": ["a", "b", "c"]})
        pq.write_table(table, tmp_path / "a.parquet")
        found = texts(tmp_path / "a.parquet")
        assert [found[0], found[-1]] == ["one", "two"]

    @pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
    @pytest.mark.parametrize(
        "row", [b'"never closed,good', b'{"text":"never closed', b'"', b'a"b"c,"']
    )
    def test_an_unclosed_quote_is_never_an_error(self, tmp_path, name, row):
        head = {"a.csv": b"text,label\none,good\n", "a.tsv": b"text\tlabel\none\tgood\n"}
        (tmp_path / name).write_bytes(
            head.get(name, b'{"text":"one","label":"good"}\n') + row + b"\nlast"
        )
        assert texts(tmp_path / name)[0] == "one"

    def test_of_two_megabytes_is_read(self, tmp_path):
        long = "x" * 2_000_000
        (tmp_path / "a.csv").write_text(f"text,label\n{long},good\ntwo,bad\n")
        assert texts(tmp_path / "a.csv") == [long, "two"]

    @given(st.lists(st.binary(max_size=40), max_size=5))
    def test_whatever_it_holds_is_never_an_error_nor_a_log_line(self, tmp_path, caplog, rows):
        caplog.set_level(logging.DEBUG)
        for name, head in (
            ("a.csv", b"text,label\n"),
            ("a.tsv", b"text\tlabel\n"),
            ("a.jsonl", b""),
        ):
            (tmp_path / name).write_bytes(head + b"\n".join(rows))
            texts(tmp_path / name)
        assert not caplog.records
