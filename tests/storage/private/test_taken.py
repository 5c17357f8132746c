"""One home for a record in a store: the same data under another name brings no new budget."""

from __future__ import annotations

import json
import shutil

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import PrivateDataError
from storage.private import PrivateStore
from storage.private.parsing import Parsed
from storage.private.taken import Taken


@pytest.fixture
def write(tmp_path):
    """Writes (person, text) rows to a file of the given name."""

    def make(name, rows):
        path = tmp_path / name
        lines = [json.dumps({"text": t, "label": "good", "person": p}) + "\n" for p, t in rows]
        path.write_text("".join(lines))
        return path

    return make


@pytest.fixture
def orders(ledger):
    """What children are told to ingest: a file into each of two datasets."""

    def make(store, *pairs):
        return [
            {
                "root": str(store._root),
                "url": ledger.url,
                "dataset": dataset.to_json(),
                "file": str(file),
            }
            for dataset, file in pairs
        ]

    return make


def kept(store, dataset):
    """(unit, text) of every row that a dataset holds, by block."""
    found = {}
    for path in (store._root / dataset.name / "blocks").glob("*/*.parquet"):
        rows = pq.read_table(path).to_pylist()
        found.setdefault(path.parent.name, set()).update((r["unit"], r["text"]) for r in rows)
    return found


def texts(store, dataset):
    return {text for rows in kept(store, dataset).values() for _, text in rows}


def files_of(store):
    return sorted(p for p in store._root.rglob("*") if p.suffix != ".lock")


def spelled(pairs):
    return [(person, f"text number {k}") for person, k in pairs]


def rows_of(*numbers):
    return spelled((f"p{k % 5}", k) for k in numbers)


def contents(store, dataset):
    paths = (store._root / dataset.name / "blocks").glob("*/*.parquet")
    return [c for path in paths for c in pq.read_table(path)["content"].to_pylist()]


class TestRecord:
    @pytest.mark.parametrize("unit", ["record", "person"])
    @pytest.mark.parametrize("copy", [str, str.upper, lambda text: f" {text.replace(' ', '  ')}"])
    def test_stays_with_the_dataset_that_took_it_in_first(
        self, store, declare, write, tmp_path, unit, copy
    ):
        first, second = declare(unit=unit), declare(unit=unit)
        store.ingest(first, write("first.jsonl", rows_of(*range(20))))
        before = kept(store, first)
        again = [(p, copy(t)) for p, t in rows_of(*range(10, 30))]
        store.ingest(second, write("second.jsonl", again))
        assert texts(store, second) == {copy(t) for _, t in rows_of(*range(20, 30))}
        assert kept(store, first) == before

    def test_stays_there_also_when_its_label_differs(self, store, declare, write):
        first, second = declare(), declare()
        store.ingest(first, write("first.jsonl", rows_of(1)))
        path = write("second.jsonl", [])
        path.write_text('{"text": "text number 1", "label": "bad"}\n')
        store.ingest(second, path)
        assert not texts(store, second)

    def test_is_taken_in_again_by_its_home_and_changes_nothing(self, store, declare, write):
        first, second = declare(), declare()
        store.ingest(first, write("first.jsonl", rows_of(1, 2, 3)))
        store.ingest(second, write("second.jsonl", rows_of(3, 4)))
        before = kept(store, first), kept(store, second)
        for dataset, name in ((first, "first"), (second, "second")):
            store.ingest(dataset, store._root.parent / f"{name}.jsonl")
        assert (kept(store, first), kept(store, second)) == before

    def test_that_no_dataset_kept_is_free(self, store, declare, write):
        first, second = declare(classes=("other", "another")), declare()
        store.ingest(first, write("first.jsonl", rows_of(1, 2)))
        store.ingest(second, write("second.jsonl", rows_of(1, 2, 3)))
        assert not texts(store, first)
        assert len(texts(store, second)) == 3

    def test_of_another_persons_is_another_one(self, store, declare, write):
        first, second = declare(unit="person"), declare(unit="person")
        store.ingest(first, write("first.jsonl", [("ann", "the same words")]))
        store.ingest(second, write("second.jsonl", [("bob", "the same words"), ("ann", "others")]))
        assert texts(store, second) == {"the same words", "others"}

    def test_of_another_unit_kind_is_not_compared(self, store, declare, write):
        first, second = declare(unit="person"), declare(unit="record")
        store.ingest(first, write("first.jsonl", rows_of(1, 2)))
        store.ingest(second, write("second.jsonl", rows_of(1, 2, 3)))
        assert len(texts(store, second)) == 3

    def test_of_another_store_is_not_compared(self, new_store, declare, write):
        pair = [(s, declare(store=s)) for s in (new_store(), new_store())]
        file = write("first.jsonl", rows_of(1, 2))
        for store, dataset in pair:
            store.ingest(dataset, file)
            assert len(texts(store, dataset)) == 2
        (one, two) = (set(contents(s, d)) for s, d in pair)
        assert not one & two

    @given(*[st.tuples(st.text(), st.text(min_size=1))] * 2)
    def test_no_two_share_a_hash(self, tmp_path, one, two):
        taken = Taken(tmp_path)
        hashes = [taken.record("person", Parsed("", 0, *record)) for record in (one, two)]
        assert (hashes[0] == hashes[1]) == (one == two)

    def test_is_no_other_one_whose_person_and_text_run_together(self, tmp_path):
        taken = Taken(tmp_path)
        borders = [('a", "b', "c"), ("a", 'b", "c'), ("a\nb", "c"), ("a", "b\nc"), ("", "a b c")]
        pairs = {taken.record("person", Parsed("", 0, *b)) for b in borders}
        surrogates = {taken.record("person", Parsed("", 0, p, "")) for p in ("\ud800", "\ud801")}
        assert len(pairs | surrogates) == len(borders) + 2

    def test_is_kept_out_without_a_word(self, store, declare, write, caplog, capsys):
        first, second = declare(), declare()
        store.ingest(first, write("first.jsonl", rows_of(1, 2)))
        store.ingest(second, write("second.jsonl", rows_of(1, 2, 3)))
        assert not caplog.records
        assert capsys.readouterr() == ("", "")


class TestNeighbours:
    ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 6)), max_size=10)

    @pytest.mark.parametrize("unit", ["record", "person"])
    @settings(max_examples=12)
    @given(
        held=ROWS, rows=ROWS, new=st.integers(0, 6), is_held=st.booleans(),
        places=st.lists(st.integers(0, 9), min_size=1),
    )  # fmt: skip
    def test_that_differ_in_one_unit_differ_in_one_unit_behind_the_filter(
        self, new_store, declare, write, unit, held, rows, new, is_held, places
    ):
        # A person, or a text, that no other row has.
        added = ("z", new) if unit == "person" else ("a", 9 + new)
        more = list(rows)
        for place in places:  # copies of it, anywhere in the file
            more.insert(place, added)
        store = new_store()
        other, dataset = (declare(store=store, unit=unit) for _ in range(2))
        store.ingest(other, write("held.jsonl", spelled([*held, ("q", 99), *[added] * is_held])))
        worlds = []
        for name, given_rows in (("rows", rows), ("more", more)):
            root = store._root.with_name(f"{store._root.name}-{name}")
            shutil.copytree(store._root, root)
            world = PrivateStore(root, store._ledger)
            world.ingest(dataset, write(f"{name}.jsonl", spelled([*given_rows, ("q", 98)])))
            worlds.append(kept(world, dataset))
        fewer, all_of_them = worlds
        changed = [
            row
            for block in {*fewer, *all_of_them}
            for row in fewer.get(block, set()) ^ all_of_them.get(block, set())
        ]
        assert [text for _, text in changed] == ([] if is_held else [f"text number {added[1]}"])

    def test_a_record_taken_out_of_every_file_changes_one_block(self, new_store, declare, write):
        def world(*numbers):
            store = new_store()
            pair = [declare(store=store, name=name) for name in ("first", "second")]
            store.ingest(pair[0], write("first.jsonl", rows_of(0, *numbers)))
            store.ingest(pair[1], write("second.jsonl", rows_of(1, *numbers)))
            return [texts(store, dataset) for dataset in pair]

        with_it, without = world(7), world()
        assert [len(a ^ b) for a, b in zip(with_it, without, strict=True)] == [1, 0]


class TestFile:
    def test_that_another_dataset_took_in_is_refused_with_its_name_and_a_remedy(
        self, store, declare, write
    ):
        first, second = declare(), declare()
        store.ingest(first, write("first.jsonl", rows_of(1, 2)))
        copy = write("renamed.jsonl", rows_of(1, 2))
        before = files_of(store)
        for use in (
            lambda: store.ingest(second, copy),
            lambda: store.registration(second.name, copy).__enter__(),
        ):
            with pytest.raises(
                PrivateDataError, match=rf"by dataset '{first.name}'.*Use dataset '{first.name}'"
            ) as refused:
                use()
            assert "text number" not in str(refused.value)
        assert files_of(store) == before

    def test_is_refused_whatever_the_unit_kind(self, store, declare, write):
        first, second = declare(unit="person"), declare(unit="record")
        file = write("first.jsonl", rows_of(1, 2))
        store.ingest(first, file)
        with pytest.raises(PrivateDataError, match="has been taken in by dataset"):
            store.ingest(second, file)

    def test_may_be_registered_again_by_its_own_dataset(self, store, declare, write):
        first, file = declare(), write("first.jsonl", rows_of(1, 2))
        for _ in range(2):
            with store.registration(first.name, file):
                store.ingest(first, file)
        assert len(texts(store, first)) == 2

    def test_that_could_not_be_read_is_nobodys(self, store, declare, tmp_path):
        first, second = declare(text_column="body"), declare()
        path = tmp_path / "rows.csv"
        path.write_text("text,label\none,good\n")
        with pytest.raises(PrivateDataError, match="no column 'body'"):
            store.ingest(first, path)
        store.ingest(second, path)
        assert texts(store, second) == {"one"}

    def test_that_is_missing_is_named(self, store, tmp_path):
        with (
            pytest.raises(PrivateDataError, match=r"nowhere\.csv does not exist"),
            store.registration("new", tmp_path / "nowhere.csv"),
        ):
            pass


class TestAtOnce:
    def test_of_two_datasets_each_record_has_one_home(
        self, children, orders, store, declare, write
    ):
        for number in range(4):
            pair = [declare(name=f"{side}-{number}") for side in ("left", "right")]
            rows = [[(f"p{k}", f"{number}: {k}") for k in range(*r)] for r in ((60,), (30, 90))]
            files = [write(f"{d.name}.jsonl", r) for d, r in zip(pair, rows, strict=True)]
            assert children(*orders(store, *zip(pair, files, strict=True))) == [0, 0]
            found = [texts(store, dataset) for dataset in pair]
            assert sorted(map(len, found)) == [30, 60]  # one came first and has all of its file
            assert len(found[0] | found[1]) == 90

    def test_of_two_that_want_the_same_file_one_is_refused(
        self, children, orders, store, declare, write
    ):
        pair = [declare(), declare()]
        file = write("same.jsonl", rows_of(*range(30)))
        statuses = children(*orders(store, *((dataset, file) for dataset in pair)))
        assert sorted(statuses) == [0, 4 << 8]
        assert sorted(len(texts(store, dataset)) for dataset in pair) == [0, 30]


class TestKept:
    def test_the_key_is_for_its_owner_alone(self, store, declare, write):
        store.ingest(declare(), write("first.jsonl", rows_of(1)))
        assert (store._root / "taken.key").stat().st_mode & 0o777 == 0o600

    def test_a_lost_key_is_no_way_around(self, store, ledger, declare, write):
        first, second = declare(), declare()
        store.ingest(first, write("first.jsonl", rows_of(1)))
        (store._root / "taken.key").unlink()
        with pytest.raises(PrivateDataError, match=r"has lost taken\.key"):
            PrivateStore(store._root, ledger).ingest(second, write("second.jsonl", rows_of(1, 2)))

    def test_a_part_from_before_there_were_hashes_is_read_and_not_compared(
        self, store, declare, write
    ):
        first, second = declare(holdout_records=0), declare(holdout_records=0)
        store.ingest(first, write("first.jsonl", rows_of(1, 2)))
        (part,) = (store._root / first.name / "blocks").glob("*/*.parquet")
        pq.write_table(pq.read_table(part).drop_columns(["content"]), part)
        store.ingest(first, write("more.jsonl", rows_of(2, 3)))
        assert len(store._table(first.block(""))) == 3
        store.ingest(second, write("second.jsonl", rows_of(1, 2, 3)))
        assert texts(store, second) == {"text number 1", "text number 2"}
