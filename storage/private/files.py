"""Private source files, read row by row; a malformed row is nothing at all.

Formats by suffix: .csv, .tsv/.tab, .jsonl/.ndjson, .parquet. What is wrong with the *file* (missing,
no such column, no Parquet) is an error, because the schema is public. What is wrong with a *row*
never is: it contributes zero, without an exception, a count or a log line.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import PrivateDataError

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_JSON_LINES = (".jsonl", ".ndjson")

Row = Mapping[str, object]


def read_rows(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """Rows of a private file as mappings that hold at least `columns`.

    Args:
        path: The file; its suffix names the format.
        columns: Names that every well-formed row must have.

    Raises:
        PrivateDataError: The file is missing, of an unknown format, or lacks a column.
    """
    require_file(path)
    if path.suffix in _DELIMITERS:
        return _delimited(path, columns, _DELIMITERS[path.suffix])
    if path.suffix in _JSON_LINES:
        return _json_lines(path, columns)
    if path.suffix == ".parquet":
        return _parquet(path, columns)
    known = ", ".join([*_DELIMITERS, *_JSON_LINES, ".parquet"])
    raise PrivateDataError(f"format {path.suffix!r} of {path.name} is unknown. Known: {known}.")


def require_file(path: Path) -> None:
    """Refuse a path at which no file lies.

    Raises:
        PrivateDataError: Naming it.
    """
    if not path.is_file():
        raise PrivateDataError(f"file {path} does not exist. Give the path of the private table.")


def _require(path: Path, present: list[str], columns: tuple[str, ...], *, quoted: str) -> None:
    for column in columns:
        if column not in present:
            raise PrivateDataError(
                f"{path.name} has no column {column!r}{quoted}. Name the right one with the --…-column "
                "options, and see that the file begins with the names of its columns."
            )


def _header(reader: Iterator[list[str]]) -> list[str]:
    """The first line of a delimited file. Never quoted: in a file without a header it is a row."""
    try:
        return next(reader, [])
    except csv.Error:
        return []


def _delimited(path: Path, columns: tuple[str, ...], delimiter: str) -> Iterator[Row]:
    csv.field_size_limit(2**31 - 1)
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        reader = csv.reader(stream, delimiter=delimiter, quoting=quoting)
        header = _header(reader)
        _require(path, header, columns, quoted="")
        while True:
            try:
                values = next(reader)
            except StopIteration:
                return
            except csv.Error:
                continue
            if len(values) == len(header):
                yield dict(zip(header, values, strict=True))


def _json_lines(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", errors="replace") as stream:
        for line in stream:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            # There is no header, so a record without the column is malformed, not the file.
            if isinstance(value, dict) and all(c in value for c in columns):
                yield value


def _parquet(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    try:
        table = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError):
        raise PrivateDataError(f"{path.name} is not a Parquet file. Check the suffix.") from None
    names = table.schema_arrow.names
    _require(path, names, columns, quoted=f"; its columns are {', '.join(names)}")
    try:
        for batch in table.iter_batches(columns=list(columns)):
            values = [_values(column) for column in batch.columns]
            for row in zip(*values, strict=True):
                yield dict(zip(batch.schema.names, row, strict=True))
    except (pa.ArrowException, OSError):
        # Arrow's own words may quote data.
        raise PrivateDataError(
            f"{path.name} is damaged and cannot be read whole. Export it again."
        ) from None


def _values(column: pa.Array) -> list[object]:
    """A column's values; None for one that Python cannot hold, such as text that is no UTF-8."""
    try:
        values: list[object] = column.to_pylist()
    except (ValueError, OverflowError, pa.ArrowException):
        return [_value(scalar) for scalar in column]
    return values


def _value(scalar: pa.Scalar) -> object:
    try:
        value: object = scalar.as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        return None
    return value
