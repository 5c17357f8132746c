"""The private store: datasets, their blocks, and the one door to their rows.

What is guaranteed. `PrivateStore.read` opens a block only for a `ReadGrant` that the ledger confirms at
that moment: a started, unexpired, unfenced row that names the block. Every unit's id is a keyed hash of
the unit alone (its person key, else its normalised text), never of its position, and is bound to one
block at first ingestion, for good: the same text in next month's file stays where it was, also re-cased
or re-spaced. The hold-out is cut by a second keyed hash of the unit, with a rate fixed when the dataset
is declared, so one inserted row never re-splits anyone. What is declared (columns, classes, n) is
public; nothing here counts rows for anyone.

In the whole store a record has one home: what one dataset has taken in, another keeps out (see
`storage.private.taken`). A block's rows of a file are kept whole or not at all, and known rows are not
kept twice. So a killed ingestion is finished by ingesting the same file again, with the rows of one that
was never disturbed; two at once wait for each other.

When it stops holding: whoever can read the folder can read the rows. It is created for its owner alone
(mode 0700); encryption at rest is the disk's business.

The unit `person`: with a period, a unit is (person, period), and the block's claim says so; without
one, every file of the dataset feeds the same block, and at most `records_per_unit` records of a person
are used, chosen by a keyed hash of the record.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import PrivateDataError
from storage.files import one_at_a_time, remove_unfinished, whole, write_whole
from storage.ledger import Ledger, ReadGrant
from storage.private import ledger_head
from storage.private.dataset import NAME, Dataset
from storage.private.files import read_rows
from storage.private.parsing import digest, fraction, parse, unit_id
from storage.private.silence import in_silence
from storage.private.taken import Taken

_SCHEMA = pa.schema(
    [
        ("unit", pa.string()),
        ("order", pa.string()),
        ("text", pa.string()),
        ("label", pa.int32()),
        ("content", pa.string()),
    ]
)
_Kept = tuple[str, str, str, int, str]
"""A row as `_SCHEMA` names its parts."""


@dataclass(frozen=True)
class PrivateRows:
    """A block's rows. Sensitive: discard after use.

    Attributes:
        texts: Raw texts.
        labels: Class index a row.
        units: Unit index a row, 0-based and contiguous; at most `records_per_unit` rows share one.
    """

    texts: list[str]
    labels: list[int]
    units: list[int]


class PrivateStore:
    """The trust zone on disk.

    Args:
        root: Folder; created with mode 0700.
        ledger: Confirms grants.
    """

    def __init__(self, root: Path, ledger: Ledger) -> None:
        self._root = root
        self._ledger = ledger
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o700)
        self._taken = Taken(root)

    def datasets(self) -> list[str]:
        """Names of the declared datasets."""
        return sorted(p.parent.name for p in self._root.glob("*/dataset.json"))

    def dataset(self, name: str) -> Dataset:
        """A declaration, of a dataset whose ledger has forgotten nothing.

        Raises:
            PrivateDataError: There is none, it belongs to another ledger, or its ledger is older than
                what it has seen (see `storage.private.ledger_head`).
        """
        dataset = self.declaration(name)
        ledger_head.check(self._root / name, self._ledger)
        return dataset

    def declaration(self, name: str) -> Dataset:
        """A declaration as it stands; rows are read behind `dataset` only.

        Raises:
            PrivateDataError: There is none, or it belongs to another ledger.
        """
        path = self._root / name / "dataset.json"
        if not NAME.fullmatch(name) or not path.is_file():
            known = ", ".join(self.datasets()) or "none"
            raise PrivateDataError(
                f"dataset {name!r} is not registered; registered: {known}. Run `dpmix dataset register`."
            )
        dataset = Dataset.from_json(path.read_text())
        if dataset.ledger_id != self._ledger.id:
            raise PrivateDataError(
                f"dataset {name!r} is gated by ledger {dataset.ledger_id}, not by {self._ledger.id}: "
                "this ledger is new or another one. Point DPMIX_LEDGER_URL at the right one."
            )
        return dataset

    def reconciling(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Hold other reconciliations off; once this is through, take the ledger as it then stands."""
        return ledger_head.reconciling(self._root / self.declaration(name).name, self._ledger)

    @contextlib.contextmanager
    def registration(self, name: str, path: Path) -> Iterator[None]:
        """Hold other registrations off while a dataset declares, opens and ingests a file.

        Raises:
            PrivateDataError: The file is missing, or another dataset has taken it in; nothing was
                written.
        """
        with one_at_a_time(self._root / "register.lock"):
            self._taken.require_free(path, name)
            yield

    def _one_writer(self) -> contextlib.AbstractContextManager[None]:
        return one_at_a_time(self._root / "ingest.lock")

    def declare(self, dataset: Dataset) -> Dataset:
        """Write a declaration, or confirm that it is the one that stands.

        Raises:
            PrivateDataError: It stands with other terms.
        """
        folder = self._root / dataset.name
        folder.mkdir(mode=0o700, exist_ok=True)
        # Of two that declare at once, the second must find the first one's keys, not replace them.
        with self._one_writer():
            path = folder / "dataset.json"
            if path.is_file():
                return self._confirm(dataset)
            keys = {name: secrets.token_hex(32) for name in ("unit", "split", "order", "cache")}
            write_whole(folder / "keys.json", json.dumps(keys).encode(), mode=0o600)
            ledger_head.remember(folder, self._ledger)
            write_whole(path, dataset.to_json().encode(), mode=0o600)
            return dataset

    def _confirm(self, dataset: Dataset) -> Dataset:
        standing = self.dataset(dataset.name)
        if standing != dataset:
            changed = [k for k, v in asdict(dataset).items() if v != asdict(standing)[k]]
            raise PrivateDataError(
                f"dataset {dataset.name!r} is registered with other values of "
                f"{', '.join(changed)}; they are fixed for its life. Use those, or another name."
            )
        return standing

    def ingest(self, dataset: Dataset, path: Path, *, period: str = "") -> None:
        """Bind a file's units to the period's block or its hold-out, and keep their rows.

        Says nothing about the rows: not how many, not which were malformed. Killed in the middle, it
        may have kept one block's rows and not yet the other's; the same file again adds the rest.

        Raises:
            PrivateDataError: The *file* or the period's name is unusable, another dataset has taken the
                file in, or the ledger has forgotten what the dataset has seen.
        """
        folder = self._root / dataset.name
        ledger_head.check(folder, self._ledger)
        with self._one_writer(), in_silence():
            ledger_head.remove_leftovers(folder)
            for block in (folder / "blocks").glob("*"):
                remove_unfinished(block)
            self._ingest(dataset, path, period)

    def _ingest(self, dataset: Dataset, path: Path, period: str) -> None:
        mark = self._taken.require_free(path, dataset.name)
        rows = self._sorted(dataset, path, period)
        # Only now: a file that could not be read is nobody's.
        self._taken.claim(mark, dataset.name)
        for block, found in rows.items():
            self._keep(block, found)

    def _sorted(self, dataset: Dataset, path: Path, period: str) -> dict[str, list[_Kept]]:
        """A file's rows by the block that each is bound to; those with another home are left out."""
        keys = self._keys(dataset.name)
        bound, elsewhere = self._bound_units(dataset.name), self._taken.elsewhere(dataset)
        homes = {h: dataset.block(period, holdout=h) for h in (False, True)}
        columns = (
            dataset.text_column,
            dataset.label_column,
            dataset.person_column,
            dataset.period_column,
        )
        rows: dict[str, list[_Kept]] = {name: [] for name in homes.values()}
        index = {name: i for i, name in enumerate(dataset.classes)}
        for row in read_rows(path, tuple(c for c in columns if c)):
            parsed = parse(row, dataset, period, index)
            if parsed is None:
                continue
            text, label = parsed.text, parsed.label
            unit = unit_id(keys["unit"], dataset, period, parsed)
            home = homes[fraction(keys["split"], unit) < dataset.holdout_share]
            content = self._taken.record(dataset.unit, parsed)
            if content in elsewhere or bound.get(unit, home) != home:
                continue
            order = digest(keys["order"], f"{unit}\n{text}\n{label}")
            rows[home].append((unit, order, text, label, content))
        return rows

    def read(self, grant: ReadGrant, block: str) -> PrivateRows:
        """A block's rows, for the holder of a grant that names it.

        Rows come in the order of their keyed hashes, at most `records_per_unit` a unit.

        Raises:
            GrantRefused, FencedOut: The ledger does not confirm the grant.
        """
        self._ledger.check_grant(grant, block)
        dataset = self.dataset(block.split("/", maxsplit=1)[0])
        ledger_head.remember(self._root / dataset.name, self._ledger)
        table = self._table(block).sort_by([("unit", "ascending"), ("order", "ascending")])
        texts: list[str] = []
        labels: list[int] = []
        units: list[int] = []
        used: dict[str, int] = {}
        taken: dict[str, int] = {}
        for row in table.to_pylist():
            unit = row["unit"]
            if taken.get(unit, 0) >= dataset.records_per_unit:
                continue
            taken[unit] = taken.get(unit, 0) + 1
            texts.append(row["text"])
            labels.append(row["label"])
            units.append(used.setdefault(unit, len(used)))
        return PrivateRows(texts, labels, units)

    def cache(self, grant: ReadGrant, block: str) -> tuple[Path, bytes]:
        """Folder and key of what may be derived from a block and kept, for the holder of a grant."""
        self._ledger.check_grant(grant, block)
        name = self.dataset(block.split("/", maxsplit=1)[0]).name
        folder = self._root / name / "cache"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder, bytes.fromhex(self._keys(name)["cache"])

    def restricted(self, dataset: str) -> Path:
        """Folder of what must never leave: member audits and the like."""
        folder = self._root / self.dataset(dataset).name / "restricted"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def _keys(self, name: str) -> dict[str, str]:
        keys: dict[str, str] = json.loads((self._root / name / "keys.json").read_text())
        return keys

    def _folder(self, block: str) -> Path:
        name, rest = block.split("/", maxsplit=1)
        return self._root / name / "blocks" / rest.replace("/", "+")

    def _table(self, block: str) -> pa.Table:
        parts = sorted(self._folder(block).glob("*.parquet"))
        tables = [pq.read_table(p, schema=_SCHEMA) for p in parts]
        return pa.concat_tables(tables) if tables else _SCHEMA.empty_table()

    def _bound_units(self, name: str) -> dict[str, str]:
        bound: dict[str, str] = {}
        for path in sorted((self._root / name / "blocks").glob("*/*.parquet")):
            block = f"{name}/{path.parent.name.replace('+', '/')}"
            for unit in pq.read_table(path, columns=["unit"])["unit"].to_pylist():
                bound[unit] = block
        return bound

    def _keep(self, block: str, rows: list[_Kept]) -> None:
        known = set(self._table(block)["order"].to_pylist())
        fresh = {r[1]: r for r in rows if r[1] not in known}
        if not fresh:
            return
        records = [dict(zip(_SCHEMA.names, r, strict=True)) for r in fresh.values()]
        table = pa.Table.from_pylist(records, schema=_SCHEMA)
        folder = self._folder(block)
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        with whole(folder / f"{secrets.token_hex(8)}.parquet", mode=0o600) as stream:
            pq.write_table(table, stream)
