"""The private store: who belongs where for good, and that nothing opens without a grant."""

from __future__ import annotations

import csv
import json
import secrets
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import FencedOut, GrantRefused, LedgerError, PrivateDataError
from storage.ledger import Block, Charge, Ledger
from storage.private import PrivateStore
from storage.private.parsing import normalised

CLASSES = ("bad", "good")


@pytest.fixture
def granted(ledger):
    """A started grant for the named blocks, which it opens."""

    def make(*names):
        for name in names:
            ledger.open_block(
                Block(
                    name=name,
                    dataset=name.split("/", maxsplit=1)[0],
                    role="train",
                    unit="record",
                    claim="record",
                    relation="add/remove",
                    filter="renyi",
                    orders=(2,),
                    epsilon_cap=1.0,
                    delta=1e-5,
                    caps=(10**6,),
                    declared_units=1000,
                )
            )
        charge = Charge(
            purpose="model",
            mechanism={},
            epsilon=1.0,
            delta=1e-5,
            steps=1,
            costs=dict.fromkeys(names, (1,)),
        )
        (row,) = ledger.reserve([charge], flow_run_id=secrets.token_hex(8), run_count=1)
        return ledger.start(row)

    return make


@pytest.fixture
def ingest(store, tmp_path):
    """Writes rows to a CSV file and ingests it."""

    def make(dataset, rows, *, period="", store=store):
        path = tmp_path / f"{secrets.token_hex(4)}.csv"
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["text", "label", "person"])
            writer.writerows([(*row, "")[:3] for row in rows])
        store.ingest(dataset, path, period=period)

    return make


@pytest.fixture
def contents(store, granted):
    """Texts of a period's block and of its hold-out."""

    def make(dataset, period=""):
        names = [dataset.block(period, holdout=h) for h in (False, True)]
        grant = granted(*names)
        return tuple(set(store.read(grant, n).texts) for n in names)

    return make


@pytest.fixture
def twins(new_store, declare):
    """Two stores, each with a dataset of the same keys: only what is ingested differs."""

    def make(**changes):
        pair = [(s, declare(store=s, **changes)) for s in (new_store(), new_store())]
        one, two = (store._root / dataset.name / "keys.json" for store, dataset in pair)
        two.write_text(one.read_text())
        return pair

    return make


PERIODS = ("2030-01", "2030-02", "2030-03")
COPIES = [
    str,
    str.upper,
    str.casefold,
    lambda text: f"  {text}\n",
    lambda text: text.replace(" ", "\t\u00a0 "),
    lambda text: unicodedata.normalize("NFD", text),
    lambda text: unicodedata.normalize("NFKC", text),
    lambda text: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text),
]
"""What a copy may have undergone and still be the same record; the last is full-width."""


def units_of(store, granted, block):
    return {normalised(text) for text in store.read(granted(block), block).texts}


def rows_of(count, start=0):
    return [(f"text number {k}", CLASSES[k % 2]) for k in range(start, start + count)]


class TestSplit:
    @settings(max_examples=8)
    @given(position=st.integers(0, 40), order=st.randoms(use_true_random=False))
    def test_an_inserted_row_moves_nobody_else(self, twins, ingest, granted, position, order):
        rows = rows_of(40)
        more = [*rows[:position], ("a new one", "good"), *rows[position:]]
        order.shuffle(more)
        sides = []
        for (store, dataset), given_rows in zip(twins(), (rows, more), strict=True):
            ingest(dataset, given_rows, store=store)
            names = [dataset.block("", holdout=h) for h in (False, True)]
            grant = granted(*names)
            sides.append([set(store.read(grant, n).texts) - {"a new one"} for n in names])
        assert sides[0] == sides[1]

    def test_takes_about_the_declared_share(self, declare, ingest, contents):
        dataset = declare(records=7000, holdout_records=3000)
        ingest(dataset, rows_of(2000))
        train, holdout = contents(dataset)
        assert len(train) + len(holdout) == 2000
        assert 500 < len(holdout) < 700

    def test_two_datasets_are_cut_differently(self, new_store, declare, ingest, granted):
        cuts = []
        for store in (new_store(), new_store()):
            dataset = declare(store=store)
            ingest(dataset, rows_of(200), store=store)
            block = dataset.block("", holdout=True)
            cuts.append(set(store.read(granted(block), block).texts))
        assert cuts[0] != cuts[1]

    def test_a_person_is_on_one_side_with_all_records(self, store, declare, ingest, granted):
        dataset = declare(unit="person", records_per_unit=9, holdout_records=7000)
        ingest(dataset, [(f"p{p} says {k}", "good", f"p{p}") for p in range(40) for k in range(4)])
        names = [dataset.block("", holdout=h) for h in (False, True)]
        grant = granted(*names)
        sides = [{t.split()[0] for t in store.read(grant, n).texts} for n in names]
        assert all(sides)
        assert not sides[0] & sides[1]


class TestBinding:
    def test_the_same_text_next_month_stays_where_it_was(self, declare, ingest, contents):
        dataset = declare()
        ingest(dataset, rows_of(50), period="2030-01")
        before = contents(dataset, "2030-01")
        ingest(dataset, rows_of(80), period="2030-02")
        assert contents(dataset, "2030-01") == before
        later = set.union(*contents(dataset, "2030-02"))
        assert later == {text for text, _ in rows_of(30, start=50)}

    def test_the_same_text_with_another_label_is_the_same_unit(
        self, store, declare, ingest, granted
    ):
        dataset = declare(holdout_records=0)
        ingest(dataset, [("twice", "bad"), ("twice", "good")])
        rows = store.read(granted(dataset.block("")), dataset.block(""))
        assert rows.texts == ["twice"]

    def test_ingesting_a_file_again_changes_nothing(self, store, declare, ingest, granted):
        dataset = declare(unit="person")
        rows = [(f"{k}", "good", f"p{k % 7}") for k in range(50)]
        ingest(dataset, rows)
        name = dataset.block("")
        before = store.read(granted(name), name)
        ingest(dataset, rows)
        assert store.read(granted(name), name) == before

    def test_a_persons_periods_are_units_of_their_own_and_the_claim_says_so(self, declare):
        dataset = declare(unit="person")
        assert dataset.claim("2030-01") == "(person, period)"
        assert dataset.claim("") == "person"

    @pytest.mark.parametrize("period", ["2030/holdout", "2030+01", "a/b", "all"])
    def test_a_period_that_could_name_another_block_is_refused(self, declare, ingest, period):
        with pytest.raises(PrivateDataError, match="period"):
            ingest(declare(), rows_of(3), period=period)

    @settings(max_examples=12)
    @given(
        st.permutations(range(12)),
        st.lists(st.sampled_from(COPIES), min_size=12, max_size=12),
        st.integers(0, 12),
    )
    def test_a_recut_recased_or_respaced_copy_stays_where_it_was(
        self, new_store, declare, ingest, granted, order, copies, cut
    ):
        store = new_store()
        dataset = declare(store=store, records=1000, holdout_records=1000)
        rows = rows_of(12)
        ingest(dataset, rows, period="2030-01", store=store)
        names = [dataset.block(p, holdout=h) for p in PERIODS for h in (False, True)]
        before = {n: units_of(store, granted, n) for n in names}
        changed = [(copies[k](rows[k][0]), rows[k][1]) for k in order]
        assert sum(map(len, before.values())) == 12
        ingest(dataset, changed[:cut], period="2030-02", store=store)
        ingest(dataset, changed[cut:], period="2030-03", store=store)
        assert {n: units_of(store, granted, n) for n in names} == before

    @pytest.mark.parametrize("copy", COPIES)
    def test_a_copy_is_no_second_record(self, store, declare, ingest, granted, copy):
        dataset = declare(holdout_records=0)
        ingest(dataset, [("Straße of ﬁlms", "good"), (copy("Straße of ﬁlms"), "bad")])
        assert len(store.read(granted(dataset.block("")), dataset.block("")).texts) == 1


class TestTwoFilesAtOnce:
    def test_a_unit_is_bound_to_one_block(self, store, declare, ingest, granted):
        dataset = declare()
        periods = [f"2030-{month:02}" for month in range(1, 7)]
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda p: ingest(dataset, rows_of(300), period=p), periods))
        names = [dataset.block(p, holdout=h) for p in periods for h in (False, True)]
        grant = granted(*names)
        found = [text for name in names for text in store.read(grant, name).texts]
        assert len(found) == len(set(found)) == 300


class TestContributionBound:
    @settings(max_examples=6)
    @given(st.permutations(range(8)))
    def test_the_chosen_records_do_not_depend_on_their_order(self, twins, granted, ingest, order):
        pair = twins(unit="person", records_per_unit=3, holdout_records=0)
        (one, whole), (two, parts) = pair
        rows = [(f"text {k}", "good", "ann") for k in range(8)]
        ingest(whole, rows, store=one)
        for k in order:  # even when they come in files of their own
            ingest(parts, [rows[k]], store=two)
        chosen = [s.read(granted(d.block("")), d.block("")).texts for s, d in pair]
        assert chosen[0] == chosen[1]
        assert len(chosen[0]) == 3

    def test_no_unit_has_more_than_its_bound(self, store, declare, ingest, granted):
        dataset = declare(unit="person", records_per_unit=2, holdout_records=0)
        ingest(dataset, [(f"p{k % 5} {k}", "good", f"p{k % 5}") for k in range(50)])
        rows = store.read(granted(dataset.block("")), dataset.block(""))
        assert sorted(rows.units) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        for unit in range(5):
            same = [t.split()[0] for t, u in zip(rows.texts, rows.units, strict=True) if u == unit]
            assert len(set(same)) == 1

    def test_rows_do_not_come_in_the_files_order(self, store, declare, ingest, granted):
        dataset = declare(holdout_records=0)
        ingest(dataset, rows_of(50))
        texts = store.read(granted(dataset.block("")), dataset.block("")).texts
        assert texts != [text for text, _ in rows_of(50)]


class TestNormalised:
    @given(st.text())
    def test_doing_it_again_changes_nothing(self, text):
        assert normalised(normalised(text)) == normalised(text)

    @given(st.text())
    def test_case_and_space_do_not_matter(self, text):
        once = normalised(text)
        assert normalised(f" {once.replace(' ', '  ')} ") == once
        assert normalised(text.casefold()) == once

    def test_other_words_are_another_record(self):
        assert normalised("a b") != normalised("ab")


class TestMalformedRows:
    @pytest.mark.parametrize(
        "row",
        [
            {"text": "x", "label": "unheard of", "person": "p"},
            {"text": "", "label": "good", "person": "p"},
            {"text": "  ", "label": "good", "person": "p"},
            {"text": 7, "label": "good", "person": "p"},
            {"text": None, "label": "good", "person": "p"},
            {"text": "x", "label": None, "person": "p"},
            {"text": "x", "label": ["good"], "person": "p"},
            {"text": "x", "label": {}, "person": "p"},
            {"text": "x", "label": "good", "person": ""},
            {"text": "x", "label": "good", "person": None},
            {"text": "x", "label": "good"},
        ],
    )
    def test_are_nothing_at_all(self, store, declare, granted, tmp_path, capsys, caplog, row):
        found = self._read(store, declare, granted, tmp_path, json.dumps(row))
        assert found.texts == ["fine"]
        assert not caplog.records
        assert capsys.readouterr() == ("", "")

    @pytest.mark.parametrize(
        "line",
        [
            '{"text":"\\ud800 lone","label":"good","person":"p"}',
            '{"text":"x","label":"good","person":"\\ud800"}',
            '{"text":"x","label":"\\ud800","person":"p"}',
            '{"text":"nul \\u0000","label":"good","person":"p"}',
            '{"text":"x","label":"good","person":["p"]}',
            f'{{"text":"x","label":{"[" * 900}1{"]" * 900},"person":"p"}}',
        ],
    )
    def test_are_never_an_error(self, store, declare, granted, tmp_path, line):
        assert "fine" in self._read(store, declare, granted, tmp_path, line).texts

    def test_of_two_megabytes_are_cut_not_refused(self, store, declare, granted, tmp_path):
        line = json.dumps({"text": "y" * 2_000_000, "label": "good", "person": "q"})
        assert len(self._read(store, declare, granted, tmp_path, line).texts) == 2

    def test_a_person_numbered_zero_counts_like_any_other(self, store, declare, granted, tmp_path):
        line = json.dumps({"text": "zero", "label": "good", "person": 0})
        found = self._read(store, declare, granted, tmp_path, line)
        assert set(found.texts) == {"fine", "zero"}

    @staticmethod
    def _read(store, declare, granted, tmp_path, line):
        dataset = declare(unit="person", holdout_records=0)
        path = tmp_path / "rows.jsonl"
        path.write_text(f'{line}\n{{"text":"fine","label":"good","person":"z"}}\n')
        store.ingest(dataset, path)
        return store.read(granted(dataset.block("")), dataset.block(""))

    def test_a_row_of_another_period_is_nothing(self, store, declare, granted, tmp_path):
        dataset = declare(period_column="month", holdout_records=0)
        path = tmp_path / "rows.csv"
        path.write_text("text,label,month\none,good,2030-01\ntwo,good,2030-02\n")
        store.ingest(dataset, path, period="2030-01")
        name = dataset.block("2030-01")
        assert store.read(granted(name), name).texts == ["one"]


class TestGate:
    @pytest.fixture
    def filled(self, declare, ingest):
        dataset = declare()
        ingest(dataset, rows_of(20))
        return dataset

    def test_a_grant_of_another_block_opens_nothing(self, store, filled, granted):
        grant = granted(filled.block(""))
        for use in (store.read, store.cache):
            with pytest.raises(GrantRefused):
                use(grant, filled.block("", holdout=True))

    def test_a_forged_grant_opens_nothing(self, store, filled, granted):
        grant = replace(granted(filled.block("")), token="0" * 64)
        for use in (store.read, store.cache):
            with pytest.raises(GrantRefused):
                use(grant, filled.block(""))

    def test_a_settled_grant_opens_nothing(self, store, ledger, filled, granted):
        grant = granted(filled.block(""))
        ledger.commit(grant)
        with pytest.raises(FencedOut):
            store.read(grant, filled.block(""))

    def test_no_grant_opens_nothing(self, store, filled):
        with pytest.raises((AttributeError, TypeError)):
            store.read(None, filled.block(""))

    def test_another_ledger_opens_nothing(self, tmp_path, store, filled, granted):
        grant = granted(filled.block(""))
        other = PrivateStore(tmp_path / "private", Ledger(f"sqlite:///{tmp_path / 'new.db'}"))
        with pytest.raises(PrivateDataError, match=r"gated by ledger .*DPMIX_LEDGER_URL"):
            other.dataset(filled.name)
        with pytest.raises(LedgerError):
            other.read(grant, filled.block(""))

    def test_the_cache_key_is_fixed_for_a_dataset_and_its_own(
        self, store, filled, declare, ingest, granted
    ):
        other = declare()
        one = store.cache(granted(filled.block("")), filled.block(""))
        assert store.cache(granted(filled.block("")), filled.block("")) == one
        assert store.cache(granted(other.block("")), other.block(""))[1] != one[1]

    def test_everything_lies_in_a_folder_for_its_owner_alone(self, tmp_path, store, filled):
        assert (tmp_path / "private").stat().st_mode & 0o777 == 0o700
        keys = tmp_path / "private" / filled.name / "keys.json"
        assert keys.stat().st_mode & 0o077 == 0
        assert store.restricted(filled.name).stat().st_mode & 0o077 == 0

    def test_an_open_folder_is_closed(self, tmp_path, ledger):
        (tmp_path / "wide").mkdir(mode=0o755)
        PrivateStore(tmp_path / "wide", ledger)
        assert (tmp_path / "wide").stat().st_mode & 0o777 == 0o700
