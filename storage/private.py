"""The private store: datasets, their blocks, and the one door to their rows.

What is guaranteed. `PrivateStore.read` opens a block only for a `ReadGrant` that the ledger confirms at
that moment: a started, unexpired, unfenced row that names the block. Every unit's id is a keyed hash of
the unit alone (its person key, else its text), never of its position, and is bound to one block at
first ingestion, for good: the same text in next month's file stays where it was. The hold-out is cut by
a second keyed hash of the unit, with a rate fixed when the dataset is declared, so one inserted row
never re-splits anyone. What is declared (columns, classes, n) is public; nothing here counts rows for
anyone.

When it stops holding: whoever can read the folder can read the rows. It is created for its owner alone
(mode 0700); encryption at rest is the disk's business.

The unit `person`: with a period, a unit is (person, period), and the block's claim says so; without
one, every file of the dataset feeds the same block, and at most `records_per_unit` records of a person
are used, chosen by a keyed hash of the record.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import PrivateDataError
from storage.files import one_at_a_time, write_whole
from storage.ledger import Ledger, ReadGrant
from storage.private_files import read_rows

_SCHEMA = pa.schema(
    [("unit", pa.string()), ("order", pa.string()), ("text", pa.string()), ("label", pa.int32())]
)
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")
_PERIOD = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_UNITS = ("record", "person")
_MAXIMUM_CHARACTERS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A private dataset's declaration; public, frozen at its first registration.

    Attributes:
        name: Lower-case name.
        text_column: Column of the text.
        label_column: Column of the label.
        person_column: Column of the person key; empty for unit ``record``.
        period_column: Column that must equal the declared period; empty if there is none.
        classes: Declared class names, in order.
        unit: ``record`` or ``person``.
        records_per_unit: Most records of one unit that are used.
        records: n of a training block, declared; what later files are assumed to hold.
        holdout_records: n of its hold-out, declared; 0 for none.
        epsilon_cap: ε_total of a training block.
        holdout_epsilon_cap: ε_total of a hold-out block.
        delta: δ of both.
        ledger_id: The ledger that gates it.
    """

    name: str
    text_column: str
    label_column: str
    person_column: str = ""
    period_column: str = ""
    classes: tuple[str, ...]
    unit: str
    records_per_unit: int
    records: int
    holdout_records: int
    epsilon_cap: float
    holdout_epsilon_cap: float
    delta: float
    ledger_id: str
    filter: str = "agdp"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise PrivateDataError(
                f"dataset name must be lower-case letters, digits, '.', '_' or '-'; got {self.name!r}."
            )
        if self.unit not in _UNITS:
            raise PrivateDataError(f"unit must be one of {', '.join(_UNITS)}; got {self.unit!r}.")
        if (self.unit == "person") != bool(self.person_column):
            raise PrivateDataError(
                f"unit {self.unit!r} and person_column {self.person_column!r} do not match: unit person "
                "needs --person-column, unit record takes none."
            )
        for name, least in (("records", 1), ("holdout_records", 0), ("records_per_unit", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise PrivateDataError(f"{name} must be a whole number >= {least}; got {value}.")
        caps = [self.epsilon_cap] + [self.holdout_epsilon_cap] * (self.holdout_records > 0)
        if not all(math.isfinite(cap) and cap > 0 for cap in caps):
            raise PrivateDataError(f"ε caps must be finite and > 0; got {caps}.")
        if not 0 < self.delta < 1:
            raise PrivateDataError(f"delta must lie between 0 and 1; got {self.delta}.")
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise PrivateDataError(
                f"classes must be at least two different names; got {list(self.classes)}. Declare "
                "them with --classes a,b."
            )

    @property
    def holdout_share(self) -> float:
        """Share of units that the keyed hash sends to the hold-out, in [0, 1)."""
        return self.holdout_records / (self.records + self.holdout_records)

    def block(self, period: str, *, holdout: bool = False) -> str:
        """Name of the block of a period ('' means the only one), or of its hold-out.

        Raises:
            PrivateDataError: The period's name could be read as another block's.
        """
        if period and (period == "all" or not _PERIOD.fullmatch(period)):
            raise PrivateDataError(
                f"period must be at most 100 letters, digits, '.', '_' or '-', not '.' first, and not "
                f"'all', which names the block without a period; got {period!r}."
            )
        base = f"{self.name}/{period or 'all'}"
        return f"{base}/holdout" if holdout else base

    def claim(self, period: str) -> str:
        """What a block's ε speaks of."""
        if self.unit == "person" and period:
            return "(person, period)"
        return self.unit


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

    def datasets(self) -> list[str]:
        """Names of the declared datasets."""
        return sorted(p.parent.name for p in self._root.glob("*/dataset.json"))

    def dataset(self, name: str) -> Dataset:
        """A declaration.

        Raises:
            PrivateDataError: There is none, or it belongs to another ledger.
        """
        path = self._root / name / "dataset.json"
        if not _NAME.fullmatch(name) or not path.is_file():
            known = ", ".join(self.datasets()) or "none"
            raise PrivateDataError(
                f"dataset {name!r} is not registered; registered: {known}. Run `dpmix dataset register`."
            )
        value = json.loads(path.read_text())
        dataset = Dataset(**{**value, "classes": tuple(value["classes"])})
        if dataset.ledger_id != self._ledger.id:
            raise PrivateDataError(
                f"dataset {name!r} is gated by ledger {dataset.ledger_id}, not by {self._ledger.id}: "
                "this ledger is new or another one. Point DPMIX_LEDGER_URL at the right one."
            )
        return dataset

    def declare(self, dataset: Dataset) -> Dataset:
        """Write a declaration, or confirm that it is the one that stands.

        Raises:
            PrivateDataError: It stands with other terms.
        """
        folder = self._root / dataset.name
        path = folder / "dataset.json"
        if path.is_file():
            standing = self.dataset(dataset.name)
            if standing != dataset:
                changed = [k for k, v in asdict(dataset).items() if v != asdict(standing)[k]]
                raise PrivateDataError(
                    f"dataset {dataset.name!r} is registered with other values of "
                    f"{', '.join(changed)}; they are fixed for its life. Use those, or another name."
                )
            return standing
        folder.mkdir(mode=0o700, exist_ok=True)
        keys = {name: secrets.token_hex(32) for name in ("unit", "split", "order", "cache")}
        write_whole(folder / "keys.json", json.dumps(keys).encode(), mode=0o600)
        write_whole(path, json.dumps(asdict(dataset), indent=2).encode(), mode=0o600)
        return dataset

    def ingest(self, dataset: Dataset, path: Path, *, period: str = "") -> None:
        """Bind a file's units to the period's block or its hold-out, and keep their rows.

        Says nothing about the rows: not how many, not which were malformed.

        Raises:
            PrivateDataError: The *file* or the period's name is unusable.
        """
        with one_at_a_time(self._root / dataset.name / "ingest.lock"):
            self._ingest(dataset, path, period)

    def _ingest(self, dataset: Dataset, path: Path, period: str) -> None:
        keys = self._keys(dataset.name)
        bound = self._bound_units(dataset.name)
        homes = {h: dataset.block(period, holdout=h) for h in (False, True)}
        columns = (
            dataset.text_column,
            dataset.label_column,
            dataset.person_column,
            dataset.period_column,
        )
        rows: dict[str, list[tuple[str, str, str, int]]] = {name: [] for name in homes.values()}
        index = {name: i for i, name in enumerate(dataset.classes)}
        for row in read_rows(path, tuple(c for c in columns if c)):
            parsed = _parse(row, dataset, period, index)
            if parsed is None:
                continue
            text, label, person = parsed
            unit = _unit_id(keys["unit"], dataset, period, person, text)
            home = homes[_fraction(keys["split"], unit) < dataset.holdout_share]
            if bound.get(unit, home) != home:
                continue
            rows[home].append(
                (unit, _digest(keys["order"], f"{unit}\n{text}\n{label}"), text, label)
            )
        for block, found in rows.items():
            self._keep(block, found)

    def read(self, grant: ReadGrant, block: str) -> PrivateRows:
        """A block's rows, for the holder of a grant that names it.

        Rows come in the order of their keyed hashes, at most `records_per_unit` a unit.

        Raises:
            GrantRefused, FencedOut: The ledger does not confirm the grant.
        """
        self._ledger.check_grant(grant, block)
        dataset = self.dataset(block.split("/", maxsplit=1)[0])
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
        name = block.split("/", maxsplit=1)[0]
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

    def _keep(self, block: str, rows: list[tuple[str, str, str, int]]) -> None:
        known = set(self._table(block)["order"].to_pylist())
        fresh = {r[1]: r for r in rows if r[1] not in known}
        records = [dict(zip(_SCHEMA.names, r, strict=True)) for r in fresh.values()]
        table = pa.Table.from_pylist(records, schema=_SCHEMA)
        folder = self._folder(block)
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        target = folder / f"{secrets.token_hex(8)}.parquet"
        temporary = target.with_suffix(".part")
        pq.write_table(table, temporary)
        temporary.replace(target)


def _parse(
    row: Any, dataset: Dataset, period: str, index: dict[str, int]
) -> tuple[str, int, str] | None:
    """(text, label, person), or None for a malformed row."""
    text = row.get(dataset.text_column)
    label = index.get(_field(row, dataset.label_column))
    person = _field(row, dataset.person_column)
    if not isinstance(text, str) or not text.strip() or label is None:
        return None
    if dataset.person_column and not person:
        return None
    if dataset.period_column and _field(row, dataset.period_column) != period:
        return None
    text = text[:_MAXIMUM_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
    return text, label, person


def _field(row: Any, column: str) -> str:
    """A row's value as text; '' if there is none, or it is a list or an object."""
    value = row.get(column)
    return "" if value is None or isinstance(value, list | dict) else str(value).strip()


def _unit_id(key: str, dataset: Dataset, period: str, person: str, text: str) -> str:
    if dataset.unit == "person":
        return _digest(key, f"person\n{period}\n{person}")
    return _digest(key, f"record\n{text}")


def _digest(key: str, value: str) -> str:
    # A lone surrogate is no text, but it can stand in a person key, and must not raise.
    return hmac.digest(bytes.fromhex(key), value.encode(errors="surrogatepass"), "sha256").hex()


def _fraction(key: str, unit: str) -> float:
    return int.from_bytes(hashlib.sha256(bytes.fromhex(_digest(key, unit))).digest()[:7]) / 2**56
