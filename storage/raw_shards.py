"""Raw public shards as they arrive: folders of JSON Lines files, read robustly.

Guarantees: one damaged line costs one record, invalid UTF-8 costs its characters, an over-long line
is cut at 16 MiB, memory stays bounded by one line; what is yielded is valid UTF-8. They stop at a
file of which most lines are no JSON: that is refused as a whole, by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from storage.errors import StorageError

_LONGEST_LINE = 16 * 2**20
_SURROGATES = re.compile(r"[\ud800-\udfff]")


class CorpusError(StorageError):
    """Raised when raw shards or a corpus on disk cannot be used as they are."""


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One line of a raw shard.

    Attributes:
        line: Its number, from 1.
        text: The document; of a malformed line, the line itself.
        source: As the line states it, else the shard's name.
        label: As the line states it, else empty.
        malformed: True when the line is no JSON object with a string under ``text``.
    """

    line: int
    text: str
    source: str
    label: str = ""
    malformed: bool = False


def list_shards(folder: Path | str) -> list[Path]:
    """Return the ``*.jsonl`` shards of a folder by name.

    Raises:
        CorpusError: The folder does not exist or holds none.
    """
    path = Path(folder)
    shards = sorted(path.glob("*.jsonl")) if path.is_dir() else []
    if not shards:
        found = "holds no *.jsonl file" if path.is_dir() else "does not exist"
        msg = (
            f"the folder of raw public shards, {path}, {found}. Put JSON Lines files there, one "
            '{"text": "…", "source": "…"} a line, or point the profile at the right folder.'
        )
        raise CorpusError(msg)
    return shards


def read_raw_shard(path: Path | str) -> Iterator[RawRecord]:
    """Yield the records of a JSON Lines shard, one at a time.

    Invalid UTF-8 is read with replacement characters (the readable step decides), blank lines are
    skipped, a malformed line is yielded as such. An empty file yields nothing.

    Raises:
        CorpusError: The file cannot be read, or more than half of its lines are malformed: it is
            something else than JSON Lines. Raised at the end, so write nothing down before it.
    """
    path = Path(path)
    lines = malformed = first = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(_lines(file), 1):
                if not line.strip():
                    continue
                record = _parse(line, number=number, source=path.stem)
                lines += 1
                if record.malformed:
                    malformed += 1
                    first = first or number
                yield record
    except OSError as error:
        msg = f"the raw shard {path} cannot be read ({error.strerror}). Check path and permissions."
        raise CorpusError(msg) from error
    if malformed * 2 > lines:
        msg = (
            f"{path} is not JSON Lines: {malformed} of {lines} lines are malformed, the first is "
            f'line {first}. Every line must be one JSON object such as {{"text": "…", "source": '
            '"…"}. Convert the file, or take it out of the folder.'
        )
        raise CorpusError(msg)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield lines, cutting what is longer than any document so that memory stays bounded."""
    start = True
    while line := file.readline(_LONGEST_LINE):
        whole = line
        while not line.endswith(b"\n") and (line := file.readline(_LONGEST_LINE)):
            continue
        yield whole.removeprefix(b"\xef\xbb\xbf") if start else whole
        start = False


def _parse(line: bytes, *, number: int, source: str) -> RawRecord:
    text = line.decode("utf-8", errors="replace")
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        return RawRecord(line=number, text=text, source=source, malformed=True)
    return RawRecord(
        line=number,
        text=_SURROGATES.sub("", row["text"]),
        source=_field(row.get("source")) or source,
        label=_field(row.get("label")),
    )


def _field(value: Any) -> str:
    return _SURROGATES.sub("", str(value)) if isinstance(value, str | int | float) else ""
