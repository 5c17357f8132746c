"""Raw public shards, and how the public stages show their progress and time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from storage.corpus import CorpusError
from storage.files import write_whole
from tasks.embedding import embedding_progress
from tasks.progress import stage


def raw_shards(folder: str) -> list[Path]:
    """The raw shards of a folder, by name.

    Raises:
        CorpusError: The folder holds none.
    """
    found = sorted(Path(folder).glob("*.jsonl"))
    if not found:
        raise CorpusError(
            f"corpus.raw = {folder} holds no *.jsonl shard. Put the raw public text there, one JSON "
            'object with "text" and "source" a line.'
        )
    return found


def gather(chains: Sequence[Sequence[Any]]) -> list[Any]:
    """The last result of each shard's chain of submitted tasks, in order, shown as a bar.

    Raises:
        Exception: What the first failed task of a chain raised; those behind it never ran.
    """
    results = []
    with stage("cleaning public shards", len(chains)) as update:
        for chain in chains:
            results.append([future.result() for future in chain][-1])
            update(len(results), len(chains))
    return results


@contextmanager
def timed(corpus: Path, name: str) -> Iterator[None]:
    """Keep the seconds of a *public* stage beside the corpus, for the report."""
    started = time.monotonic()
    yield
    path = corpus / "seconds.json"
    seconds = json.loads(path.read_text()) if path.is_file() else {}
    seconds[name] = round(time.monotonic() - started, 1)
    write_whole(path, json.dumps(seconds).encode())


@contextmanager
def embedding_bar() -> Iterator[None]:
    """Show the embedding of public texts as a bar."""
    with stage("embedding public text", 1) as update, embedding_progress(update):
        yield
