"""Parquet tables of public text: their frozen schemas, written and read in batches.

Guarantees: a file appears whole or not at all (written aside, synced, renamed); rows carry exactly
the fields of the schema; memory stays bounded by a few thousand rows. They stop where the target
folder lies across two file systems.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import StorageError

# One frozen schema a table: inference would give an all-empty column the type null, and the next
# shard could not be joined to it.
STAGE_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("raw", pa.string()),
        ("text", pa.string()),
        ("source", pa.string()),
        ("label", pa.string()),
        ("language", pa.string()),
        ("flags", pa.list_(pa.string())),
    ]
)
DOCUMENT_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.string()),
        ("label", pa.string()),
        ("source", pa.string()),
        ("language", pa.string()),
        ("flags", pa.list_(pa.string())),
        ("shard", pa.string()),
        ("config", pa.string()),
    ]
)
DROP_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("shard", pa.string()),
        ("source", pa.string()),
        ("level", pa.string()),
        ("step", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)
_BATCH = 2_000


class TableError(StorageError):
    """Raised when a table's file is damaged."""


class SchemaError(StorageError):
    """Raised when a row's fields are not those of the table it is written to."""


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Give a path to write to; it takes its place at the end, or vanishes on an exception."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    aside = Path(name)
    try:
        yield aside
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.chmod(0o644)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, keys sorted, so that equal values are equal bytes."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    with written_aside(path) as aside:
        aside.write_text(text + "\n", encoding="utf-8")


class TableWriter:
    """Writes rows of one schema to one Parquet file, a few thousand at a time."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._rows: list[Mapping[str, Any]] = []
        self.count = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row.

        Raises:
            SchemaError: The row's fields are not the schema's; pyarrow would drop new ones.
        """
        if set(row) != set(self._schema.names):
            fields = ", ".join(sorted(set(row) ^ set(self._schema.names)))
            msg = f"a row and its table's schema differ in: {fields}. Write the schema's fields."
            raise SchemaError(msg)
        self._rows.append(row)
        self.count += 1
        if len(self._rows) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows = []

    def close(self) -> None:
        """Write what is left and the footer."""
        self._flush()
        self._writer.close()


@contextmanager
def table_writer(path: Path, schema: pa.Schema) -> Iterator[TableWriter]:
    """Give a writer of a table that appears whole or not at all."""
    with written_aside(path) as aside:
        writer = TableWriter(aside, schema)
        try:
            yield writer
        finally:
            writer.close()


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, a few thousand in memory at a time."""
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH):
                yield from batch.to_pylist()
    except (OSError, pa.ArrowException) as error:
        why = " ".join(str(error).split())
        msg = f"{path} is damaged and cannot be read ({why}). Remove it and refresh the corpus."
        raise TableError(msg) from None


def count_rows(path: Path) -> int:
    """Return how many rows a Parquet file says it holds."""
    return int(pq.read_metadata(path).num_rows)
