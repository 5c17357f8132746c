"""Ingestions that are killed, and ingestions side by side: the rows are those of one after the other."""

from __future__ import annotations

import shutil
import signal
from itertools import count

import pyarrow.parquet as pq
import pytest

from storage.private import PrivateStore


@pytest.fixture
def write(tmp_path):
    """Writes rows (person, number) to a file of the given name."""

    def make(name, rows):
        path = tmp_path / name
        lines = [f"p{p} says {k},{('bad', 'good')[k % 2]},p{p}\n" for p, k in rows]
        path.write_text("text,label,person\n" + "".join(lines))
        return path

    return make


@pytest.fixture
def order(tmp_path, ledger):
    """What a child is told to ingest."""

    def make(dataset, file, *, root=None, **more):
        return {
            "root": str(root or tmp_path / "private"),
            "url": ledger.url,
            "dataset": dataset.to_json(),
            "file": str(file),
            **more,
        }

    return make


def kept(root, dataset):
    """Every row that lies in a dataset's blocks, by block."""
    found = {}
    for path in (root / dataset.name / "blocks").glob("*/*.parquet"):
        found.setdefault(path.parent.name, []).extend(pq.read_table(path).to_pylist())
    return {
        block: sorted(rows, key=lambda row: (row["unit"], row["order"]))
        for block, rows in found.items()
    }


def unfinished(root):
    return [p for pattern in (".tmp-*", "*.part") for p in root.rglob(pattern)]


def check_bound_once(found):
    """No row lies twice anywhere, and no unit in two blocks."""
    for rows in found.values():
        assert len({row["order"] for row in rows}) == len(rows)
    homes = [{row["unit"] for row in rows} for rows in found.values()]
    assert sum(map(len, homes)) == len(set().union(*homes))


ROWS = [(p, k) for p in range(30) for k in range(2)]
OVERLAPPING = [(p, k) for p in range(15, 45) for k in range(1, 3)]


@pytest.fixture(params=["record", "person"])
def dataset(request, store, declare, write):
    """A dataset with one record in it, so that every key is there."""
    declared = declare(unit=request.param, records=1000, holdout_records=1000)
    store.ingest(declared, write("zeroth.csv", [(99, 9)]))
    return declared


class TestKilled:
    def test_before_any_change_the_same_file_again_gives_the_rows_of_one_ingestion(
        self, children, dataset, order, store, ledger, tmp_path, write
    ):
        root = tmp_path / "private"
        store.ingest(dataset, write("first.csv", ROWS))
        shutil.copytree(root, tmp_path / "before")
        before = kept(root, dataset)
        file = write("second.csv", OVERLAPPING)
        store.ingest(dataset, file)
        undisturbed = kept(root, dataset)
        assert {len(rows) for rows in undisturbed.values()} != {len(r) for r in before.values()}

        left = []
        for point in count(1):
            shutil.rmtree(root)
            shutil.copytree(tmp_path / "before", root)
            (status,) = children(order(dataset, file, kill_at=point))
            if status == 0:
                break
            assert status == signal.SIGKILL, point
            found = kept(root, dataset)
            check_bound_once(found)
            left.append((found != before, found != undisturbed, bool(unfinished(root))))
            PrivateStore(root, ledger).ingest(dataset, file)
            assert kept(root, dataset) == undisturbed, point
            assert not unfinished(root), point
        assert kept(root, dataset) == undisturbed
        # Some kills fell between the two blocks, and some in the middle of a file.
        assert (True, True) in {outcome[:2] for outcome in left}
        assert any(unfinished_file for *_, unfinished_file in left)

    def test_what_it_left_is_never_read_and_goes_with_the_next_ingestion(
        self, dataset, store, tmp_path, write
    ):
        root = tmp_path / "private"
        store.ingest(dataset, write("first.csv", ROWS))
        before = kept(root, dataset)
        folders = [root / dataset.name, *(root / dataset.name / "blocks").iterdir()]
        for folder in folders:
            for name in (".tmp-1-ab", ".tmp-1-ab.parquet.part", "cd.part"):
                (folder / name).write_bytes(b"PAR1 half a file")
        store.ingest(dataset, write("first.csv", ROWS))
        assert kept(root, dataset) == before
        assert not unfinished(root)


class TestAtOnce:
    ROUNDS = 4

    @pytest.mark.parametrize("second", [ROWS, OVERLAPPING], ids=["same", "overlapping"])
    def test_two_files_of_one_block_give_the_rows_of_one_after_the_other(
        self, children, dataset, order, store, tmp_path, write, second
    ):
        root = tmp_path / "private"
        files = [write("first.csv", ROWS), write("second.csv", second)]
        shutil.copytree(root, tmp_path / "before")
        for file in files:
            store.ingest(dataset, file)
        one_by_one = kept(root, dataset)
        for _ in range(self.ROUNDS):
            shutil.rmtree(root)
            shutil.copytree(tmp_path / "before", root)
            assert children(*(order(dataset, file) for file in files)) == [0, 0]
            assert kept(root, dataset) == one_by_one

    def test_two_periods_that_overlap_give_the_rows_of_one_of_the_two_orders(
        self, children, dataset, order, ledger, tmp_path, write
    ):
        root = tmp_path / "private"
        files = {
            "2030-01": write("first.csv", ROWS),
            "2030-02": write("second.csv", OVERLAPPING),
        }
        shutil.copytree(root, tmp_path / "before")
        orders = []
        for periods in (list(files), list(files)[::-1]):
            again = tmp_path / periods[0]
            shutil.copytree(tmp_path / "before", again)
            for period in periods:
                PrivateStore(again, ledger).ingest(dataset, files[period], period=period)
            orders.append(kept(again, dataset))
        for _ in range(self.ROUNDS):
            shutil.rmtree(root)
            shutil.copytree(tmp_path / "before", root)
            told = [order(dataset, file, period=period) for period, file in files.items()]
            assert children(*told) == [0, 0]
            check_bound_once(kept(root, dataset))
            assert kept(root, dataset) in orders

    def test_two_that_declare_the_dataset_as_well_share_its_keys(
        self, children, dataset, order, tmp_path, write
    ):
        file = write("first.csv", ROWS)
        for number in range(self.ROUNDS):
            root = tmp_path / f"fresh-{number}"
            told = order(dataset, file, root=root)
            assert children(told, told, told) == [0, 0, 0]
            found = kept(root, dataset)
            check_bound_once(found)
            assert sum(map(len, found.values())) == len(ROWS)
