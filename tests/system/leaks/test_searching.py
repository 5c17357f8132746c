"""The search finds what is planted, in each form and container, and nothing that only looks alike."""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import json
import sqlite3
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from system.leaks.needles import Needles
from system.leaks.searching import Finding, UnsearchableError, search

WORD, FOREIGN = "quokka731904", "größe-ñandú-731904"
SEED = bytes(range(140, 172))
COUNT, METRIC, MATRIX = 7927, 0.8437162539, [612, 88, 95, 605]
PART = SEED[11:19]


@pytest.fixture
def needles():
    found = Needles()
    found.add_text("word", WORD)
    found.add_text("foreign", FOREIGN)
    found.add_seed("seed", SEED)
    found.add_count("count", COUNT)
    found.add_metric("metric", METRIC)
    found.add_series("matrix", MATRIX)
    return found


@pytest.fixture
def found(tmp_path, needles):
    """Names of the needles found in a file of this content."""

    def look(content, name="file"):
        (tmp_path / name).write_bytes(content)
        return {f.needle for f in search([tmp_path], needles)}

    return look


class TestBytes:
    @pytest.mark.parametrize(
        "form",
        [
            PART,
            b"noise_seed=" + PART.hex().encode(),
            PART.hex().upper().encode(),
            repr(SEED).encode(),
            str(list(SEED)).encode(),
            *(base64.b64encode(b"x" * before + SEED + b"tail") for before in range(3)),
            *(base64.urlsafe_b64encode(b"x" * before + SEED) for before in range(3)),
            base64.encodebytes(b"front matter of the file " + SEED * 4),
        ],
    )
    def test_of_a_seed_are_found_in_every_encoding(self, found, form):
        assert found(b"\x00\xff before " + form + b" after \xfe") == {"seed"}

    def test_seven_of_a_seed_are_not_enough(self, found):
        assert not found(PART[:7] + b" " + PART[:7].hex().encode())

    @pytest.mark.parametrize("start", range(16))
    def test_are_found_wherever_they_begin(self, found, start):
        assert found(b"." * start + PART) == {"seed"}

    @pytest.mark.parametrize(
        "form",
        [
            FOREIGN.encode(),
            FOREIGN.encode("utf-16"),
            json.dumps(FOREIGN).encode(),
            json.dumps(json.dumps({"said": FOREIGN})).encode(),
            b"error: " + json.dumps(FOREIGN).encode(),
            b"GET /?q=gr%C3%B6%C3%9Fe-%C3%B1and%C3%BA-731904",
            repr(FOREIGN.encode()).encode(),
            base64.b64encode(FOREIGN.encode()),
        ],
    )
    def test_of_a_text_are_found_in_every_encoding(self, found, form):
        assert found(form) == {"foreign"}

    def test_of_a_text_that_is_another_are_not_found(self, found):
        assert not found(b"quokka731905 quokka 731904")

    def test_too_few_to_tell_are_no_needle(self, needles):
        with pytest.raises(ValueError, match="at least 8"):
            needles.add_text("short", "quokka")


class TestNumbers:
    @pytest.mark.parametrize(
        "text",
        [
            "7927",
            "rows=7927.",
            "[1,7927,3]",
            '{"n": 7927}',
            "7,927 rows",
            "7927.0",
            "7.927e3",
            "batch_7927.json",
            "\x00\x01 records kept: 7927 \x00",
        ],
    )
    def test_are_found_as_whole_tokens(self, found, text):
        assert found(text.encode()) == {"count"}

    @pytest.mark.parametrize(
        "text",
        [
            "17927",
            "79270",
            "0.7927",
            "7927.5",
            "7,927,000 rows",
            "[7,927]",
            "e7927a",
            "7927ab31f0",
            "792700e814",
            "1b4e28ba-7927-11d2-883f-0016d3cca427",
            '  File "flow.py", line 7927, in run',
            "    flow.py:7927 in run",
            "2026-01-02 03:04:05.7927",
            "2026-01-02 03:04:05.12345601a24feb-7927-7f10-9169-4ecee86d4002Completed",
            "\x00\x017927\x00",
        ],
    )
    def test_that_are_part_of_something_else_are_not(self, found, text):
        assert not found(text.encode())

    @pytest.mark.parametrize("text", ["0.843716", "F1 0.84371625", "84.3716 %", "8.437163e-01"])
    def test_that_are_a_metric_are_found_from_six_digits_on(self, found, text):
        assert found(text.encode()) == {"metric"}

    @pytest.mark.parametrize("text", ["0.84372", "0.843719", "0.8437169999", "843716", "10.843716"])
    def test_that_are_close_to_a_metric_are_not(self, found, text):
        assert not found(text.encode())

    @pytest.mark.parametrize(
        "text", ["[[612, 88], [95, 605]]", "612\n 88\t95;605", "612,88,95,605"]
    )
    def test_that_follow_one_another_are_found_together(self, found, text):
        assert found(text.encode()) == {"matrix"}

    @pytest.mark.parametrize("text", ["[[612, 88], [96, 605]]", "1612, 88, 95, 605", "612, 88"])
    def test_of_another_matrix_are_not(self, found, text):
        assert not found(text.encode())


class TestContainers:
    def test_a_file_s_name_is_searched(self, found, tmp_path):
        (tmp_path / f"page-{WORD}").mkdir()
        assert found(b"", name="batch-7927.txt") == {"word", "count"}

    def test_a_link_s_target_is_searched_and_not_followed(self, tmp_path, needles):
        (tmp_path / "link").symlink_to(f"/nowhere/{WORD}")
        assert [f.needle for f in search([tmp_path], needles)] == ["word"]

    def test_gzip_is_unpacked(self, found):
        assert found(gzip.compress(WORD.encode() * 9)) == {"word"}

    def test_zip_is_unpacked_and_what_is_in_it(self, found):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("inner.gz", gzip.compress(PART.hex().encode()))
            archive.writestr(f"{WORD}.txt", "")
        assert found(packed.getvalue()) == {"seed", "word"}

    def test_arrays_are_compared_as_numbers(self, found):
        packed = io.BytesIO()
        np.savez_compressed(packed, sizes=np.array([[1, COUNT]]), scores=np.array([METRIC]))
        assert found(packed.getvalue()) == {"count", "metric"}

    def test_parquet_is_decompressed_column_by_column(self, tmp_path, needles):
        table = {
            "text": ["other", f"said {WORD}"],
            "size": [None, COUNT],
            "vectors": [[1.0, METRIC], [0.5]],
            "nested": [{"n": [FOREIGN]}, None],
        }
        pq.write_table(pa.table(table), tmp_path / "t.parquet", compression="zstd")
        found = {f.where.rpartition(":")[2]: f.needle for f in search([tmp_path], needles)}
        wanted = {"text": "word", "size": "count", "vectors": "metric", "nested": "foreign"}
        assert wanted.items() <= found.items()

    def test_json_in_json_is_read(self, found):
        inner = json.dumps({"a": [{"b": json.dumps({FOREIGN: COUNT})}]})
        assert found(b'{"first": 1}\n' + json.dumps([inner]).encode()) == {"foreign", "count"}

    @pytest.mark.parametrize(
        "content",
        [
            gzip.compress(b"x" * 99, mtime=0)[:-9],
            b"PK\x03\x04 no",
            b"PAR1 no",
            b"BZh91AY",
            b"\xfd7zXZ\x00",
        ],
    )
    def test_one_that_cannot_be_looked_into_is_an_error(self, found, content):
        with pytest.raises(UnsearchableError):
            found(content)

    def test_an_exempt_folder_alone_is_left_out(self, tmp_path, needles):
        for name in ("private", "public"):
            (tmp_path / name / "deep").mkdir(parents=True)
            (tmp_path / name / "deep" / "rows.txt").write_text(WORD)
        findings = search([tmp_path], needles, exempt=[tmp_path / "private"])
        assert findings == [Finding(str(tmp_path / "public/deep/rows.txt"), "word", "raw")]


class TestDatabases:
    @pytest.fixture
    def database(self, tmp_path):
        with contextlib.closing(sqlite3.connect(tmp_path / "some.db")) as opened:
            opened.execute("PRAGMA journal_mode = WAL")
            opened.execute("PRAGMA secure_delete = OFF")
            opened.execute('CREATE TABLE "odd ""name" (a, b)')
            yield opened

    @pytest.mark.parametrize(
        ("value", "needle"),
        [
            (f"x {WORD}", "word"),
            (json.dumps({"said": FOREIGN}), "foreign"),
            (gzip.compress(WORD.encode(), mtime=0), "word"),
            (COUNT, "count"),
            (METRIC, "metric"),
            (PART, "seed"),
        ],
    )
    def test_every_column_of_every_row_is_read(self, database, tmp_path, needles, value, needle):
        database.execute('INSERT INTO "odd ""name" VALUES (?, ?)', ("first", 1))
        database.execute('INSERT INTO "odd ""name" VALUES (?, ?)', ("second", value))
        database.commit()
        found = search([tmp_path], needles)
        assert any('odd "name:row 2' in f.where and f.needle == needle for f in found)
        assert {f.needle for f in found} == {needle}

    def test_what_was_deleted_is_found_in_the_raw_pages(self, database, tmp_path, needles):
        database.execute('INSERT INTO "odd ""name" VALUES (?, 0)', (WORD,))
        database.commit()
        database.execute('DELETE FROM "odd ""name"')
        database.commit()
        assert {f.needle for f in search([tmp_path], needles)} == {"word"}

    def test_a_number_is_looked_for_in_rows_and_not_in_pages(self, database, tmp_path, needles):
        database.execute('INSERT INTO "odd ""name" VALUES (?, 0)', ("-7927-",))
        database.commit()
        (found,) = search([tmp_path], needles)
        assert found.where.endswith("row 1")

    def test_searching_changes_nothing(self, database, tmp_path, needles):
        database.execute('INSERT INTO "odd ""name" VALUES (?, 0)', (WORD,))
        database.commit()
        before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
        search([tmp_path], needles)
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
