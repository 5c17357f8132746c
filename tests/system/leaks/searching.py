"""Searches folders for needles: every file, its name, and what is packed inside.

Looked into: SQLite with its write-ahead log (row by row, and the raw pages, where deleted rows linger),
gzip, ZIP and what is built on it, Parquet, NumPy arrays, JSON and JSON Lines (strings that hold JSON
again, too). Other compressed formats and damaged files are an error rather than a blind spot.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import sqlite3
import tempfile
import zipfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from system.leaks.needles import Found, Needles

_CLOSED = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstandard", b"7z\xbc\xaf": "7-Zip"}

Content = bytes | NDArray[np.generic]


class UnsearchableError(RuntimeError):
    """A file that cannot be looked into: what it holds is not known."""


@dataclass(frozen=True, order=True)
class Finding:
    """One needle in one place.

    Attributes:
        where: The file, and the part of it.
        needle: The needle's name.
        encoding: The form it was found in.
    """

    where: str
    needle: str
    encoding: str


def search(
    folders: Iterable[Path], needles: Needles, *, exempt: Collection[Path] = ()
) -> list[Finding]:
    """Everything found under `folders`, in order.

    Args:
        folders: Walked without following links.
        needles: What to look for.
        exempt: Folders that are left out, by their whole path.

    Raises:
        UnsearchableError: A file is damaged, or compressed in a format that is not looked into.
    """
    return sorted(
        {
            Finding(where, needle, encoding)
            for folder in folders
            for path in files(folder, exempt=exempt)
            for where, found in _search_file(path, needles)
            for needle, encoding in found
        }
    )


def files(folder: Path, *, exempt: Collection[Path] = ()) -> Iterator[Path]:
    """Every file, link and socket under a folder, and every empty folder."""
    for place, inner, names in os.walk(folder):
        inner[:] = [name for name in inner if Path(place, name) not in exempt]
        yield from (Path(place, name) for name in names or ([] if inner else [""]))


def _search_file(path: Path, needles: Needles) -> Iterator[tuple[str, Found]]:
    yield f"name of {path}", needles.found_in(os.fsencode(path))
    if path.is_symlink():
        yield f"target of {path}", needles.found_in(os.fsencode(path.readlink()))
    elif path.is_file():
        for where, content in _contents(str(path), path.read_bytes()):
            search_in = needles.found_in if isinstance(content, bytes) else needles.found_among
            yield where, search_in(content)  # type: ignore[operator]


def _contents(where: str, data: bytes) -> Iterator[tuple[str, Content]]:
    """The bytes themselves, and what is packed in them."""
    yield where, data
    closed = next((name for magic, name in _CLOSED.items() if data.startswith(magic)), None)
    if closed:
        raise UnsearchableError(f"{where} is {closed}, which is not looked into. Teach the search.")
    try:
        if data.startswith(b"SQLite format 3\0"):
            yield from _rows(where, data)
        elif data.startswith(b"\x1f\x8b"):
            yield from _contents(f"{where} unpacked", gzip.decompress(data))
        elif data.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for name in archive.namelist():
                    yield f"name of {where}:{name}", name.encode()
                    yield from _contents(f"{where}:{name}", archive.read(name))
        elif data.startswith(b"PAR1"):
            yield from _columns(where, pq.read_table(io.BytesIO(data)))
        elif data.startswith(b"\x93NUMPY"):
            yield where, np.load(io.BytesIO(data), allow_pickle=False).ravel()
        else:
            yield where, "\n".join(_json_leaves(data)).encode("utf-8", "surrogatepass")
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, sqlite3.Error) as error:
        raise UnsearchableError(f"{where} is damaged: {error}") from error


def _rows(where: str, data: bytes) -> Iterator[tuple[str, Content]]:
    """Each row of each table as one text, its log replayed; on a copy, which opening may change."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        copy.write_bytes(data)
        log = Path(f"{where}-wal")
        if log.is_file():
            shutil.copy(log, f"{copy}-wal")
        with closing(sqlite3.connect(copy)) as database:
            # Text that is no UTF-8 shall be searched as well.
            database.text_factory = bytes
            names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for (table,) in names.fetchall():
                quoted = table.decode().replace('"', '""')
                found = database.execute(f'SELECT * FROM "{quoted}"')
                for number, row in enumerate(found, start=1):
                    place = f"{where}:{table.decode()}:row {number}"
                    values = [v for v in row if isinstance(v, bytes)]
                    numbers = [repr(v).encode() for v in row if isinstance(v, int | float)]
                    yield place, b"\n".join([*values, *numbers])
                    for value in values:
                        yield from list(_contents(place, value))[1:]


def _columns(where: str, table: pa.Table) -> Iterator[tuple[str, Content]]:
    for name in table.column_names:
        column = table.column(name)
        while pa.types.is_nested(column.type) and not pa.types.is_struct(column.type):
            column = pc.list_flatten(column)
        place = f"{where}:{name}"
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            yield place, column.drop_null().to_numpy()
        else:
            values = [v if isinstance(v, bytes) else str(v).encode() for v in column.to_pylist()]
            yield place, b"\n".join(values)


def _json_leaves(data: bytes) -> Iterator[str]:
    """Strings, numbers and keys of JSON, or of each line that is JSON; nothing of other text."""
    value = _json(data)
    if value is not None:
        yield from _leaves(value)
        return
    for line in data.splitlines():
        if line[:1] in (b"{", b"["):
            yield from _leaves(_json(line))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (str(key) for key in value)
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
        return
    yield str(value)
    inner = _json(value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else None
    if inner is not None:
        yield from _leaves(inner)


def _json(data: bytes) -> Any:
    """A JSON object, list or string; None for anything else."""
    if data.lstrip()[:1] not in (b"{", b"[", b'"'):
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
