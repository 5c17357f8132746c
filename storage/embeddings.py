"""Embeddings on disk: a content-addressed cache in Parquet, and a FAISS index of the public ones.

`EmbeddingCache` guarantees: a text is embedded once, whichever process did it, and any number may
add at the same time. What is read was written whole: a part is named by the SHA-256 of its bytes
and appears by an atomic rename; one that no longer matches its name is set aside (``*.damaged``)
and its texts count as missing. Vectors of two encoders never meet: each (encoder, tokens) has a
folder with a manifest. Every vector has unit norm or is exactly zero (a text without a token).

`PublicIndex` guarantees: exact below 200,000 vectors, approximate above; its metric is the cosine;
a query's answer depends on that query and the index alone; it opens only over its own vectors.

They stop holding when someone edits the manifest, or a part *and* its name: this protects against
accidents, not against an owner of the folder. A private store gives `EmbeddingCache` a folder of
its own and an HMAC as ``key``; no message here quotes a key, a text or a vector.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from storage.encoder import (
    EmbeddingError,
    Encoder,
    Vectors,
    checked_rows,
    read_json,
    thread_budget,
    unit_rows,
    vectors_digest,
)
from storage.files import write_whole

__all__ = ["EmbeddingCache", "EmbeddingError", "PublicIndex", "text_key", "vectors_digest"]

_SCHEMA_VERSION = 1
_CONVENTION = {"schema_version": 1, "metric": "inner_product", "normalised": True}
_ROWS_PER_PART = 65_536  # about 100 MB at 384 dimensions: one row group
_EXACT_UNTIL = 200_000
_POINTS_PER_CLUSTER = 39  # FAISS trains a cluster on no fewer
_ABANDONED_AFTER = 3_600.0  # seconds; a temporary file this old has no writer any more


def text_key(text: str) -> str:
    """The public key of a text: SHA-256 of its UTF-8 form, 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class EmbeddingCache:
    """Vectors by the key of their text, for one encoder and one number of tokens.

    Attributes:
        folder: ``root/<first 16 digits of the encoder's digest>-<max_tokens>``.
        dimension: Length of a vector.
        damaged: Names of the parts set aside because their bytes no longer match their name.
    """

    def __init__(
        self,
        root: Path | str,
        *,
        encoder_digest: str,
        max_tokens: int,
        dimension: int,
        key: Callable[[str], str] = text_key,
    ) -> None:
        """Open the cache, or create it.

        Args:
            root: Folder that holds the caches of all encoders.
            encoder_digest: SHA-256 of the model's files.
            max_tokens: Tokens of a text that are read.
            dimension: Length of a vector.
            key: Text to key; an HMAC for private texts.

        Raises:
            EmbeddingError: The folder was filled by another encoder, or its manifest is unreadable.
        """
        self.folder = Path(root).absolute() / f"{encoder_digest[:16]}-{max_tokens}"
        self.dimension = dimension
        self.damaged: tuple[str, ...] = ()
        self._key = key
        self._where: dict[str, tuple[str, int]] = {}
        self._seen: set[str] = set()
        vector = pa.list_(pa.float32(), dimension)
        key_field = pa.field("key", pa.string(), nullable=False)
        self._schema = pa.schema([key_field, pa.field("vector", vector, nullable=False)])
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob(".tmp-*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED_AFTER:
                    path.unlink()
        manifest = {"encoder_digest": encoder_digest, "max_tokens": max_tokens}
        manifest |= {"dimension": dimension, "normalised": True, "schema_version": _SCHEMA_VERSION}
        self._agree(manifest)
        self._refresh()

    @classmethod
    def for_encoder(
        cls, root: Path | str, encoder: Encoder, *, key: Callable[[str], str] = text_key
    ) -> EmbeddingCache:
        """The cache of an encoder; see the constructor."""
        return cls(
            root,
            encoder_digest=encoder.digest,
            max_tokens=encoder.max_tokens,
            dimension=encoder.dimension,
            key=key,
        )

    def __len__(self) -> int:
        """Number of different keys known to be on disk."""
        return len(self._where)

    def keys(self, texts: Iterable[str]) -> list[str]:
        """The keys of texts, in their order."""
        return [self._key(text) for text in texts]

    def missing(self, keys: Iterable[str]) -> list[str]:
        """Keys without a vector on disk, other processes' included; each once, in their order."""
        self._refresh()
        return [key for key in dict.fromkeys(keys) if key not in self._where]

    def add(self, keys: Sequence[str], vectors: Vectors) -> int:
        """Write vectors whose keys are new; a key that has one keeps it.

        Args:
            keys: One a vector; of repeated keys the first counts.
            vectors: Shape ``(len(keys), dimension)``; rows of unit norm (±1e-3) or exactly zero.

        Returns:
            Number of vectors written.

        Raises:
            EmbeddingError: Shape, norm or a non-finite value is wrong; nothing was written then.
        """
        rows = checked_rows(vectors, self.dimension)
        if len(keys) != len(rows):
            got = f"{len(keys)} keys and {len(rows)} vectors"
            raise EmbeddingError(f"keys and vectors must pair; got {got}. Pass one key a vector.")
        first = {key: place for place, key in reversed(list(enumerate(keys)))}
        new = self.missing(keys)
        for start in range(0, len(new), _ROWS_PER_PART):
            chunk = new[start : start + _ROWS_PER_PART]
            values = np.ascontiguousarray(rows[[first[key] for key in chunk]])
            column = pa.FixedSizeListArray.from_arrays(
                pa.array(values.reshape(-1)), type=self._schema.field("vector").type
            )
            table = pa.Table.from_arrays(
                [pa.array(chunk, pa.string()), column], schema=self._schema
            )
            sink = pa.BufferOutputStream()
            # Unit vectors hardly compress, and never repeat.
            pq.write_table(table, sink, compression="none", use_dictionary=False)
            content = sink.getvalue().to_pybytes()
            name = f"part-{hashlib.sha256(content).hexdigest()}.parquet"
            write_whole(self.folder / name, content)
        self._refresh()
        return len(new)

    def lookup(self, keys: Sequence[str]) -> Vectors:
        """Vectors of keys, in their order; repeated keys are allowed.

        Args:
            keys: Keys that have a vector on disk.

        Returns:
            Shape ``(len(keys), dimension)``, float32.

        Raises:
            EmbeddingError: A key has no vector, or a part was damaged since the cache was opened.
        """
        if self.missing(keys):
            raise EmbeddingError(
                f"keys must all be in the cache {self.folder}; some are not. Embed what "
                "`missing` returns and `add` it first."
            )
        wanted: dict[str, tuple[list[int], list[int]]] = {}
        for place, key in enumerate(keys):
            name, row = self._where[key]
            places, rows = wanted.setdefault(name, ([], []))
            places.append(place)
            rows.append(row)
        out = np.empty((len(keys), self.dimension), dtype=np.float32)
        for name, (places, rows) in wanted.items():
            table = self._part(name, ["vector"])
            if table is None:
                raise EmbeddingError(
                    f"{self.folder / name} no longer matches the checksum in its name. Delete "
                    "it and run again; its texts will be embedded anew."
                )
            flat = table.column("vector").combine_chunks().flatten().to_numpy()
            out[places] = flat.reshape(-1, self.dimension)[rows]
        return out

    def _refresh(self) -> None:
        for path in sorted(self.folder.glob("part-*.parquet")):
            if path.name in self._seen:
                continue
            self._seen.add(path.name)
            table = self._part(path.name, ["key"])
            if table is None:
                self.damaged = (*self.damaged, path.name)
                with contextlib.suppress(OSError):  # read-only, or another process was faster
                    path.rename(path.with_suffix(".damaged"))
                continue
            for row, key in enumerate(table.column("key").to_pylist()):
                # Of two writers' parts the smaller name wins: every process reads the same vector.
                if key not in self._where or path.name < self._where[key][0]:
                    self._where[key] = (path.name, row)

    def _part(self, name: str, columns: list[str]) -> Any:
        try:
            content = (self.folder / name).read_bytes()
        except OSError:
            return None
        if f"part-{hashlib.sha256(content).hexdigest()}.parquet" != name:
            return None
        part = pq.ParquetFile(pa.BufferReader(content))
        if not part.schema_arrow.equals(self._schema):
            raise EmbeddingError(
                f"{self.folder / name} must have the columns {self._schema}; it has "
                f"{part.schema_arrow}. Delete it and run again."
            )
        return part.read(columns=columns)

    def _agree(self, expected: dict[str, Any]) -> None:
        path = self.folder / "manifest.json"
        if not path.exists():
            write_whole(path, json.dumps(expected, indent=2, sort_keys=True).encode())
        found = read_json(path, "Delete the folder that holds it; it will be embedded anew.")
        if found != expected:
            raise EmbeddingError(
                f"the cache {self.folder} belongs to another embedding: its manifest must be "
                f"{expected}; got {found}. Delete that folder, or configure the encoder that "
                "filled it."
            )


class PublicIndex:
    """Nearest public vectors by cosine.

    Attributes:
        path: Folder of the index.
        metadata: What ``index.json`` states: count, metric, kind, digests.
    """

    def __init__(self, path: Path, metadata: dict[str, Any], index: Any) -> None:
        self.path = path
        self.metadata = metadata
        self._index = index

    @classmethod
    def build(
        cls,
        vectors: Vectors,
        path: Path | str,
        *,
        encoder_digest: str,
        exact_until: int = _EXACT_UNTIL,
    ) -> PublicIndex:
        """Build an index, save and return it; a killed build leaves the former one in place.

        Args:
            vectors: Shape ``(n, d)``, n ≥ 1, public; rows of unit norm or zero. Row i is index i.
            path: Folder to save to.
            encoder_digest: Digest of the encoder that made the vectors.
            exact_until: Number of vectors from which on an inverted file replaces the exact search.

        Raises:
            EmbeddingError: No vectors, wrong shape, norms off or non-finite values.
        """
        import faiss  # noqa: PLC0415 - brings its own thread pool; only those who search need it

        folder = Path(path).absolute()
        rows = checked_rows(vectors)
        if not len(rows):
            raise EmbeddingError(
                "vectors must hold at least one row; got 0. No public document survived "
                "cleaning: loosen the profile's cleaning section, or add public data."
            )
        faiss.omp_set_num_threads(thread_budget())
        count, dimension = rows.shape
        index: Any = faiss.IndexFlatIP(dimension)
        kind = "flat"
        if count >= exact_until and count >= 2 * _POINTS_PER_CLUSTER:
            clusters = min(int(4 * count**0.5), count // _POINTS_PER_CLUSTER)
            index = faiss.IndexIVFFlat(index, dimension, clusters, faiss.METRIC_INNER_PRODUCT)
            index.cp.spherical = True
            index.train(rows)
            index.nprobe = min(clusters, max(16, clusters // 32))
            kind = f"ivf{clusters}"
        index.add(rows)
        content = faiss.serialize_index(index).tobytes()
        digest = hashlib.sha256(content).hexdigest()
        metadata = {
            **_CONVENTION,
            "count": count,
            "dimension": dimension,
            "kind": kind,
            "encoder_digest": encoder_digest,
            "vectors_digest": vectors_digest(rows),
            "file": f"index-{digest[:32]}.faiss",
            "file_digest": digest,
        }
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / metadata["file"], content)
        write_whole(folder / "index.json", json.dumps(metadata, indent=2, sort_keys=True).encode())
        for former in folder.glob("index-*.faiss"):
            if former.name != metadata["file"]:
                former.unlink(missing_ok=True)
        return cls(folder, metadata, index)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        expected_digest: str | None = None,
        encoder_digest: str | None = None,
    ) -> PublicIndex:
        """The index saved in a folder.

        Args:
            path: Folder it was saved to.
            expected_digest: `vectors_digest` of the vectors it must stand over; None: any.
            encoder_digest: Encoder that must have made them; None: any.

        Raises:
            EmbeddingError: Absent, damaged, or built from other vectors or by another encoder.
        """
        import faiss  # noqa: PLC0415 - see build

        folder = Path(path).absolute()
        remedy = "Build it again: `dpmix run refresh_public`."
        metadata = read_json(folder / "index.json", remedy)
        expected = {"vectors_digest": expected_digest, "encoder_digest": encoder_digest}
        for name, value in (_CONVENTION | expected).items():
            got = metadata.get(name)
            if value is not None and got != value:
                raise EmbeddingError(f"{name} of {folder} must be {value}; got {got}. {remedy}")
        file = folder / str(metadata.get("file"))
        content = file.read_bytes() if file.is_file() else b""
        if hashlib.sha256(content).hexdigest() != metadata.get("file_digest"):
            raise EmbeddingError(f"{file} is absent or does not match its checksum. {remedy}")
        return cls(folder, metadata, faiss.deserialize_index(np.frombuffer(content, np.uint8)))

    def __len__(self) -> int:
        """Number of public vectors."""
        return int(self.metadata["count"])

    def neighbours(self, queries: Vectors, k: int) -> tuple[npt.NDArray[np.int64], Vectors]:
        """The k nearest public vectors of each query.

        Queries are private, so no value of a row raises: each is scaled to unit norm, and a zero
        or non-finite one is answered with k valid indices at similarity 0.

        Args:
            queries: Shape ``(n, d)``.
            k: From 1 to the number of public vectors.

        Returns:
            Indices ``(n, k)`` in [0, N), and cosines ``(n, k)`` in [-1, 1], the largest first.

        Raises:
            EmbeddingError: k or the shape is out of range.
        """
        import faiss  # noqa: PLC0415 - see build

        dimension = int(self.metadata["dimension"])
        if not 1 <= k <= len(self):
            raise EmbeddingError(
                f"k must lie in [1, {len(self)}], the number of public vectors; got {k}. Lower "
                "the number of neighbours in the profile, or add public data."
            )
        if queries.ndim != 2 or queries.shape[1] != dimension:
            got = f"got {queries.shape}. Embed them with the encoder of the index."
            raise EmbeddingError(f"queries must have the shape (n, {dimension}); {got}")
        rows = unit_rows(queries)
        faiss.omp_set_num_threads(thread_budget())
        # Above this number of queries FAISS multiplies matrices, whose rounding depends on how
        # many queries there are: one record more would move the others' similarities.
        faiss.cvar.distance_compute_blas_threshold = 2**31 - 1
        cosines, indices = self._index.search(rows, k)
        short = (indices < 0).any(axis=1)
        if short.any():  # the probed clusters held fewer than k: probe them all
            everywhere = faiss.SearchParametersIVF()
            everywhere.nprobe = self._index.nlist
            cosines[short], indices[short] = self._index.search(rows[short], k, params=everywhere)
        return indices.astype(np.int64), np.clip(cosines, -1.0, 1.0).astype(np.float32)
