"""Cleaned public corpora on disk: raw shards in, Parquet parts and one manifest out.

A corpus is a folder::

    manifest.json                    what the corpus consists of, written last
    parts/<key>/documents.parquet    the kept documents of one shard
    parts/<key>/drops.parquet        every drop of that shard: id, step, reason; never the text
    parts/<key>/part.json            its counts, written last
    work/<key>/<level>.parquet       what the levels hand on, removed when the part is whole

The key is a digest of the shard's name, its content and the cleaning configuration, so that a
second run finds its own results and never somebody else's.

Guarantees: files appear whole or not at all (written aside, then renamed); a killed run leaves the
previous manifest in force; every shard's ``seen`` equals its kept plus its dropped documents, or
nothing is written; the same shards and configuration give byte-identical tables and manifest. They
stop where somebody edits the folder by hand, or where two file systems lie under it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.raw_shards import CorpusError, RawRecord, list_shards, read_raw_shard
from storage.tables import (
    DOCUMENT_SCHEMA,
    DROP_SCHEMA,
    count_rows,
    read_rows,
    table_writer,
    write_json,
)

__all__ = [
    "Corpus",
    "CorpusError",
    "Part",
    "RawRecord",
    "find_part",
    "finish",
    "list_shards",
    "part_key",
    "read_raw_shard",
    "write_part",
]

FORMAT = 1


def part_key(shard: str, shard_digest: str, config: str) -> str:
    """Return the name under which a shard's result is kept."""
    return hashlib.sha256(f"{FORMAT}\0{shard}\0{shard_digest}\0{config}".encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Part:
    """The result of one shard under one configuration.

    Attributes:
        key: Its folder under ``parts``.
        shard: Name of the shard.
        digest: SHA-256 of the shard.
        config: Digest of the cleaning configuration.
        seen: Documents in the shard, malformed lines included.
        kept: Documents in the part.
        dropped: Drops by source, level and reason: ``[[source, level, reason, n], …]``.
        sources: Documents seen by source.
    """

    key: str
    shard: str
    digest: str
    config: str
    seen: int
    kept: int
    dropped: list[list[Any]]
    sources: dict[str, int]


def part_folder(corpus: Path, key: str) -> Path:
    """Return where a part lies."""
    return corpus / "parts" / key


def find_part(corpus: Path, key: str) -> Part | None:
    """Return a part that an earlier run finished, or None."""
    path = part_folder(corpus, key) / "part.json"
    if not path.is_file():
        return None
    return Part(**json.loads(path.read_text(encoding="utf-8")))


def write_part(
    corpus: Path,
    *,
    key: str,
    shard: str,
    digest: str,
    config: str,
    documents: Iterable[Mapping[str, Any]],
    drops: Iterable[Mapping[str, Any]],
    seen: int,
) -> Part:
    """Write a shard's result and return its counts.

    Args:
        corpus: Folder of the corpus.
        key: From `part_key`.
        shard: Name of the shard.
        digest: SHA-256 of the shard.
        config: Digest of the cleaning configuration.
        documents: Rows that hold at least the fields of `DOCUMENT_SCHEMA` before ``shard``.
        drops: Rows of `DROP_SCHEMA`.
        seen: Documents read from the shard, malformed lines included.

    Raises:
        CorpusError: Kept and dropped do not add up to seen: a document was lost or doubled.
    """
    folder = part_folder(corpus, key)
    by_kind: Counter[tuple[str, str, str]] = Counter()
    sources: Counter[str] = Counter()
    carried = [name for name in DOCUMENT_SCHEMA.names if name not in ("shard", "config")]
    with table_writer(folder / "documents.parquet", DOCUMENT_SCHEMA) as kept:
        for row in documents:
            kept.add({name: row[name] for name in carried} | {"shard": shard, "config": config})
            sources[row["source"]] += 1
    with table_writer(folder / "drops.parquet", DROP_SCHEMA) as dropped:
        for row in drops:
            dropped.add(row)
            by_kind[row["source"], row["level"], row["reason"]] += 1
            sources[row["source"]] += 1
    if kept.count + dropped.count != seen:
        msg = (
            f"the counts of shard {shard} do not reconcile: {seen} documents seen, but "
            f"{kept.count} kept and {dropped.count} dropped. Delete {corpus / 'work'} and clean "
            "again; if it happens twice, a cleaning step is at fault."
        )
        raise CorpusError(msg)
    part = Part(
        key=key,
        shard=shard,
        digest=digest,
        config=config,
        seen=seen,
        kept=kept.count,
        dropped=[[*kind, number] for kind, number in sorted(by_kind.items())],
        sources=dict(sorted(sources.items())),
    )
    write_json(folder / "part.json", {name: getattr(part, name) for name in Part.__slots__})
    shutil.rmtree(corpus / "work" / key, ignore_errors=True)
    return part


def finish(corpus: Path, parts: Sequence[Part], *, config: str) -> Corpus:
    """Write the manifest that makes the parts a corpus, and return the corpus.

    Raises:
        CorpusError: No document survived, or a part belongs to another configuration. The previous
            manifest stays in force.
    """
    foreign = [part.shard for part in parts if part.config != config]
    if foreign:
        msg = (
            f"the parts of {', '.join(foreign)} were cleaned with another configuration than "
            f"{config[:12]}. Clean all shards with one profile, then finish."
        )
        raise CorpusError(msg)
    ordered = sorted(parts, key=lambda part: (part.shard, part.key))
    if not any(part.kept for part in ordered):
        raise CorpusError(_nothing_survived(ordered, step_errors(corpus, ordered)))
    manifest = {
        "format": FORMAT,
        "config": config,
        "seen": sum(part.seen for part in ordered),
        "kept": sum(part.kept for part in ordered),
        "parts": [{name: getattr(part, name) for name in Part.__slots__} for part in ordered],
    }
    write_json(corpus / "manifest.json", manifest)
    # What a failed or superseded run left half-way still holds raw text, identifiers included.
    shutil.rmtree(corpus / "work", ignore_errors=True)
    return Corpus.open(corpus)


def step_errors(corpus: Path, parts: Iterable[Part]) -> dict[str, int]:
    """How often which step failed, and on what: ``{"step: exception": n}``; no text among it."""
    found: Counter[str] = Counter()
    for part in parts:
        if any(reason == "cleaner_error" for _, _, reason, _ in part.dropped):
            rows = read_rows(part_folder(corpus, part.key) / "drops.parquet")
            found.update(row["detail"] for row in rows if row["reason"] == "cleaner_error")
    return dict(found.most_common())


def _nothing_survived(parts: Sequence[Part], errors: Mapping[str, int]) -> str:
    reasons: Counter[str] = Counter()
    for part in parts:
        for _, _, reason, number in part.dropped:
            reasons[reason] += number
    seen = sum(part.seen for part in parts)
    if not seen:
        return (
            f"no public document survived cleaning: the {len(parts)} shards hold none. Put public "
            "text into the raw folder and clean again."
        )
    counts = ", ".join(f"{reason} {number}" for reason, number in reasons.most_common())
    return (
        f"no public document survived cleaning: {seen} seen, dropped for {counts}. Look at the "
        "commonest reason: other_language asks for another cleaning.options.language.languages, "
        "out_of_domain for other domain examples or a lower threshold, too_short for a lower "
        "min_chars, cleaner_error for a repaired step"
        + (f" ({', '.join(errors)})." if errors else ".")
    )


class Corpus:
    """A finished corpus, read only.

    Attributes:
        path: Its folder.
        digest: SHA-256 of the manifest: names this very corpus.
        config: Digest of the configuration that cleaned it.
        parts: Its parts, by shard name.
    """

    def __init__(self, path: Path, *, digest: str, config: str, parts: Sequence[Part]) -> None:
        self.path = path
        self.digest = digest
        self.config = config
        self.parts = tuple(parts)

    @classmethod
    def open(cls, path: Path | str) -> Corpus:
        """Return the corpus in a folder.

        Raises:
            CorpusError: There is none, it is of another format, or a part is missing or short.
        """
        path = Path(path)
        try:
            content = (path / "manifest.json").read_bytes()
            manifest = json.loads(content)
            parts = [Part(**part) for part in manifest["parts"]]
        except FileNotFoundError as error:
            msg = f"{path} holds no finished corpus. Run refresh_public; it writes manifest.json."
            raise CorpusError(msg) from error
        except (ValueError, KeyError, TypeError) as error:
            msg = f"{path / 'manifest.json'} is damaged ({error}). Delete it and refresh_public."
            raise CorpusError(msg) from error
        if manifest.get("format") != FORMAT:
            msg = (
                f"{path} is a corpus of format {manifest.get('format')}; this version reads "
                f"{FORMAT}. Run refresh_public again."
            )
            raise CorpusError(msg)
        corpus = cls(
            path,
            digest=hashlib.sha256(content).hexdigest(),
            config=manifest["config"],
            parts=parts,
        )
        corpus._verify()
        return corpus

    def _verify(self) -> None:
        for part in self.parts:
            folder = part_folder(self.path, part.key)
            dropped = sum(number for *_, number in part.dropped)
            for name, promised in (("documents", part.kept), ("drops", dropped)):
                file = folder / f"{name}.parquet"
                try:
                    held = count_rows(file)
                except (OSError, pa.ArrowInvalid) as error:
                    msg = f"{file} is missing or damaged. Delete {folder} and refresh_public."
                    raise CorpusError(msg) from error
                if held != promised:
                    msg = (
                        f"{file} holds {held} rows where the manifest says {promised}. Delete "
                        f"{folder} and refresh_public."
                    )
                    raise CorpusError(msg)
            if part.seen != part.kept + dropped:
                msg = (
                    f"the counts of shard {part.shard} do not reconcile: seen {part.seen}, kept "
                    f"{part.kept}, dropped {dropped}. Delete {folder} and refresh_public."
                )
                raise CorpusError(msg)

    def _table(self, name: str, schema: pa.Schema) -> pa.Table:
        files = [part_folder(self.path, part.key) / f"{name}.parquet" for part in self.parts]
        try:
            return pa.concat_tables([pq.read_table(file, schema=schema) for file in files])
        except (OSError, pa.ArrowException) as error:
            why = " ".join(str(error).split())
            msg = f"corpus {self.path} is damaged ({why}). Remove it and refresh it."
            raise CorpusError(msg) from None

    def documents(self) -> pa.Table:
        """Return the kept documents, of `DOCUMENT_SCHEMA`, in the order of shards and lines."""
        return self._table("documents", DOCUMENT_SCHEMA)

    def drops(self) -> pa.Table:
        """Return the drops, of `DROP_SCHEMA`; no text among them."""
        return self._table("drops", DROP_SCHEMA)

    def funnel(self) -> dict[str, Any]:
        """Return the counts: seen, kept, dropped by reason, and the same by source and level.

        ``{"seen": n, "kept": n, "dropped": {reason: n}, "by_level": {level: n},
        "by_source": {source: {"seen": n, "kept": n, "dropped": {reason: n}}}}``
        """
        reasons: Counter[str] = Counter()
        levels: Counter[str] = Counter()
        sources: dict[str, dict[str, Any]] = {}
        for part in self.parts:
            for source, seen in part.sources.items():
                entry = sources.setdefault(source, {"seen": 0, "kept": 0, "dropped": Counter()})
                entry["seen"] += seen
                entry["kept"] += seen
            for source, level, reason, number in part.dropped:
                reasons[reason] += number
                levels[level] += number
                sources[source]["kept"] -= number
                sources[source]["dropped"][reason] += number
        return {
            "seen": sum(part.seen for part in self.parts),
            "kept": sum(part.kept for part in self.parts),
            "dropped": dict(reasons.most_common()),
            "by_level": dict(levels),
            "by_source": {
                name: entry | {"dropped": dict(entry["dropped"].most_common())}
                for name, entry in sorted(sources.items())
            },
        }
