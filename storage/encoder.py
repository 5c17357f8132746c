"""The frozen text encoder, loaded from a folder, offline.

Guarantees:
    - No network: the model is read from a folder and nowhere else.
    - Record-local: on a CPU the row of a text is a function of that text alone, bit for bit. Every
      text is padded to a multiple of eight tokens *of its own length* and only texts of equal
      padded length share a batch, so neither the order nor the company of a text shows in its
      row. Inserting one private record therefore changes no other record's features.
    - Every row is finite and has unit norm, or is exactly zero: a text without a single token, or
      one that the model maps to something non-finite, becomes a zero row and never an exception.

They stop holding:
    - on a GPU, whose kernels may choose another order of summation for another batch size: rows of
      one text then differ in the last bits of a float32;
    - across machines. ``precision="auto"`` takes bfloat16 products (accumulated in float32) where
      the CPU multiplies them natively, about twice as fast: rows differ from the float32 ones by
      1 - cosine below 1e-3 (1e-4 was the worst measured). Ask for ``"float32"`` to rule that out.

A text is read up to 32 characters a token, whitespace runs counted as one: a document of several
megabytes costs no more than a page.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from storage.errors import StorageError

Vectors = npt.NDArray[np.float32]
Precision = Literal["auto", "float32", "bfloat16"]

_BATCH_ROWS = 64
_BATCH_TOKENS = {"cpu": 2_048, "cuda": 65_536}  # on a CPU: what stays in its cache
_LENGTH_STEP = 8
_NORM_TOLERANCE = 1e-3
_CHARACTERS_PER_TOKEN = 32


class EmbeddingError(StorageError):
    """Raised when an encoder, a cache of embeddings or an index is absent, unfit or damaged."""


def thread_budget() -> int:
    """Threads that torch and FAISS may each use; they never compute at the same time.

    Returns:
        ``OMP_NUM_THREADS`` where it is a positive integer, else the number of CPUs this process
        may run on.
    """
    declared = os.environ.get("OMP_NUM_THREADS", "")
    if declared.isdigit() and int(declared) > 0:
        return int(declared)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.lru_cache(maxsize=256)
def _file_digest(path: str, _size: int, _mtime_ns: int) -> str:
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def folder_digest(folder: Path) -> str:
    """SHA-256 over names and contents of a model's files, documentation and hidden files left out.

    Args:
        folder: The model's folder.

    Returns:
        64 hexadecimal digits; hashed once per process as long as sizes and times stay the same.
    """
    names = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_file()
        and path.suffix != ".md"
        and not any(part.startswith((".", "__")) for part in path.relative_to(folder).parts)
    }
    total = hashlib.sha256()
    for name in sorted(names):
        state = names[name].stat()
        content = _file_digest(str(names[name]), state.st_size, state.st_mtime_ns)
        total.update(f"{name}\0{content}\n".encode())
    return total.hexdigest()


class Encoder:
    """A frozen sentence encoder; cheap to construct, loaded when it first encodes.

    Attributes:
        folder: Where the model lies.
        max_tokens: Tokens of a text that are read, special ones included.
        precision: ``auto``, ``float32`` or ``bfloat16``; see the module.
        digest: SHA-256 of the model's files: the identity of the embedding.
        dimension: Length of a vector.
    """

    def __init__(
        self, folder: Path | str, *, max_tokens: int = 96, precision: Precision = "auto"
    ) -> None:
        """Check the folder; load nothing heavy.

        Args:
            folder: Folder of a sentence-transformers model (``modules.json`` and weights).
            max_tokens: From 8 to the model's number of positions (512 as a rule).
            precision: Of matrix products on a CPU.

        Raises:
            EmbeddingError: No model there, or ``max_tokens`` or ``precision`` out of range.
        """
        self.folder = Path(folder).absolute()
        if not (self.folder / "modules.json").is_file():
            raise EmbeddingError(
                f"encoder folder must hold a sentence-transformers model; {self.folder} has no "
                "modules.json. Run `make setup` to fetch the encoder, work in the project's folder or "
                "set DPMIX_DATA, or name its folder in the profile."
            )
        positions = int(self._config("config.json").get("max_position_embeddings", 512))
        if not 8 <= max_tokens <= positions:
            raise EmbeddingError(
                f"max_tokens must lie in [8, {positions}] for the model in {self.folder}; got "
                f"{max_tokens}. Set it in the profile."
            )
        if precision not in ("auto", "float32", "bfloat16"):
            raise EmbeddingError(
                f"precision must be auto, float32 or bfloat16; got {precision!r}. Leave it out "
                "for auto."
            )
        self.max_tokens = max_tokens
        self.precision: Precision = precision
        self._model: Any = None
        self._lock = threading.Lock()

    @property
    def digest(self) -> str:
        """SHA-256 of the model's files, 64 hexadecimal digits."""
        return folder_digest(self.folder)

    @functools.cached_property
    def dimension(self) -> int:
        """Length of a vector, read from the model's own description where it states one."""
        modules = json.loads((self.folder / "modules.json").read_text(encoding="utf-8"))
        for module in reversed(modules):
            config = self._config(Path(module["path"]) / "config.json")
            for name in ("out_features", "word_embedding_dimension", "embedding_dimension"):
                if module["path"] and name in config:
                    return int(config[name])
        return int(self._loaded().get_embedding_dimension())

    def encode(
        self, texts: Sequence[str], *, on_batch: Callable[[int], None] | None = None
    ) -> Vectors:
        """Embed texts.

        Args:
            texts: Any strings; empty and malformed ones (lone surrogates) are allowed.
            on_batch: Called after every batch with the number of texts finished in it; the numbers
                add up to ``len(texts)``. On private texts it may show declared totals only.

        Returns:
            Shape ``(len(texts), dimension)``, float32, in the order of ``texts``; rows of unit
            norm, or zero for a text without a token.

        Raises:
            EmbeddingError: The model cannot be loaded.
        """
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        done = 0
        for places, vectors in self._batches(texts):
            rows[places] = unit_rows(vectors)
            done += len(places)
            if on_batch:
                on_batch(len(places))
        if on_batch and done < len(texts):
            on_batch(len(texts) - done)  # those without a token: nothing to compute
        return rows

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Vectors]]:
        if not texts:
            return
        import torch  # noqa: PLC0415 - seconds to import; a run that embeds nothing never pays them

        model = self._loaded()
        tokenizer, device = model.tokenizer, model.device.type
        budget = _BATCH_TOKENS.get(device, _BATCH_TOKENS["cpu"])
        rows_at_most = _BATCH_ROWS if device == "cpu" else 1_024
        tokens: list[list[int]] = tokenizer(
            [_readable(text, self.max_tokens * _CHARACTERS_PER_TOKEN) for text in texts],
            truncation=True,
            max_length=self.max_tokens,
            return_attention_mask=False,
            return_token_type_ids=False,
        )["input_ids"]
        special = tokenizer.num_special_tokens_to_add()
        by_length: dict[int, list[int]] = {}
        for place, ids in enumerate(tokens):
            if len(ids) > special:
                padded = min(-(-len(ids) // _LENGTH_STEP) * _LENGTH_STEP, self.max_tokens)
                by_length.setdefault(padded, []).append(place)
        for length in sorted(by_length, reverse=True):  # the longest first: memory shows at once
            step = max(1, min(rows_at_most, budget // length))
            for start in range(0, len(by_length[length]), step):
                places = by_length[length][start : start + step]
                padded_ids = torch.full((len(places), length), int(tokenizer.pad_token_id or 0))
                mask = torch.zeros((len(places), length), dtype=torch.long)
                for row, place in enumerate(places):
                    padded_ids[row, : len(tokens[place])] = torch.tensor(tokens[place])
                    mask[row, : len(tokens[place])] = 1
                features = {"input_ids": padded_ids.to(device), "attention_mask": mask.to(device)}
                with torch.inference_mode(), self._products(device):
                    vectors = model(features)["sentence_embedding"].float().cpu().numpy()
                yield places, vectors

    def _products(self, device: str) -> contextlib.AbstractContextManager[object]:
        import torch  # noqa: PLC0415 - see above

        # Without the instruction bfloat16 is emulated, and slower than float32.
        native = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
        automatic = self.precision == "auto" and device == "cpu" and native()
        if self.precision == "bfloat16" or automatic:
            return torch.autocast(device, torch.bfloat16)
        return contextlib.nullcontext()

    def _loaded(self) -> Any:
        with self._lock:
            if self._model is None:
                self._model = _load(self.folder, self.max_tokens)
        return self._model

    def _config(self, name: Path | str) -> dict[str, Any]:
        path = self.folder / name
        found: dict[str, Any] = {}
        if path.is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
        return found


@functools.lru_cache(maxsize=4)
def load_encoder(
    folder: Path | str, *, max_tokens: int = 96, precision: Precision = "auto"
) -> Encoder:
    """The encoder of a folder, one instance a process: its weights are loaded once.

    Args:
        folder: See `Encoder`.
        max_tokens: See `Encoder`.
        precision: See `Encoder`.

    Returns:
        The shared instance.

    Raises:
        EmbeddingError: See `Encoder`.
    """
    return Encoder(folder, max_tokens=max_tokens, precision=precision)


def _load(folder: Path, max_tokens: int) -> Any:
    # Read when the libraries are imported: nothing is fetched, and nothing is printed over ours.
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    os.environ.update(HF_HUB_DISABLE_PROGRESS_BARS="1", TRANSFORMERS_VERBOSITY="error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its warning after a fork
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(thread_budget())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        model = SentenceTransformer(str(folder), device=device, local_files_only=True)
    except Exception as error:
        raise EmbeddingError(
            f"the encoder in {folder} cannot be loaded ({type(error).__name__}: {error}). "
            "Delete the folder and run `make setup` to fetch it anew."
        ) from error
    model.max_seq_length = max_tokens
    return model.eval()


def _readable(text: str, characters: int) -> str:
    # Cut first, generously: splitting megabytes to keep a page would be the slowest step of all.
    words = " ".join(text[: 8 * characters].split())[:characters]
    return words.encode("utf-8", "replace").decode("utf-8")


def unit_rows(vectors: Vectors) -> Vectors:
    """Scale every row to unit norm on its own; a zero or non-finite row becomes zero.

    Args:
        vectors: Shape ``(n, d)``.

    Returns:
        Shape ``(n, d)``, float32. No value raises: the rows may be private.
    """
    finite = np.isfinite(vectors).all(axis=1, keepdims=True)
    wide = np.where(finite, vectors, 0.0).astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0).astype(np.float32)


def vectors_digest(vectors: Vectors) -> str:
    """SHA-256 over shape, values and order of vectors, 64 hexadecimal digits."""
    content = np.ascontiguousarray(vectors, dtype="<f4")
    total = hashlib.sha256(f"float32 {content.shape}\n".encode())
    total.update(content.data)
    return total.hexdigest()


def checked_rows(vectors: Vectors, dimension: int | None = None) -> Vectors:
    """The rows themselves, once they are seen to be what an encoder returns.

    Args:
        vectors: Shape ``(n, dimension)``.
        dimension: Length of a row; None: any.

    Returns:
        The same values, float32 and contiguous.

    Raises:
        EmbeddingError: Wrong shape, a non-finite value, or a norm that is neither 1 (±1e-3) nor 0.
    """
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or (dimension is not None and rows.shape[1] != dimension):
        raise EmbeddingError(
            f"vectors must have the shape (n, {dimension or 'd'}); got {rows.shape}. Use the "
            "encoder that the cache was opened for."
        )
    if not np.isfinite(rows).all():
        raise EmbeddingError(
            "vectors must be finite; a row holds NaN or infinity. Make them with Encoder.encode."
        )
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    if ((np.abs(norms - 1.0) > _NORM_TOLERANCE) & (norms != 0.0)).any():
        raise EmbeddingError(
            f"vectors must have unit norm within {_NORM_TOLERANCE}, or be zero; a row has not. "
            "Make them with Encoder.encode, which normalises."
        )
    return rows


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """A JSON object from a file; what is no such thing raises an `EmbeddingError` with a remedy."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EmbeddingError(f"{path} cannot be read ({type(error).__name__}). {remedy}") from error
    if not isinstance(found, dict):
        raise EmbeddingError(f"{path} must hold a JSON object. {remedy}")
    return found
