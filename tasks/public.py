"""Public vectors, labels and neighbours of a cleaned, embedded corpus, as tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from privacy.mixing import Neighbours, PublicData, build
from privacy.plan import MixingPlan
from storage.corpus import Corpus
from storage.embeddings import PublicIndex
from storage.settings import Settings
from tasks.embedding import EncoderOptions, cache_of, encoder_of

Vectors = npt.NDArray[np.float32]


def corpus_folder(name: str) -> Path:
    """Where the cleaned corpus of that name lies."""
    return Settings().corpora / name


def index_folder(name: str) -> Path:
    """Where the index over that corpus lies."""
    return Settings().embeddings / "indexes" / name


@dataclass(frozen=True)
class PublicSet:
    """A corpus as training sees it.

    Attributes:
        vectors: (m, d) float32.
        labels: (m,) class index, −1 where a document has none of the declared classes.
        index: Nearest neighbours among `vectors`.
        digest: Hex digest of vectors' order, labels and encoder.
    """

    vectors: Vectors
    labels: npt.NDArray[np.int64]
    index: PublicIndex
    digest: str

    @property
    def data(self) -> PublicData:
        """As tensors, for the mixing strategies."""
        return PublicData(torch.from_numpy(self.vectors), torch.from_numpy(self.labels))

    @property
    def labelled(self) -> npt.NDArray[np.int64]:
        """Rows that carry a declared class."""
        return np.flatnonzero(self.labels >= 0)

    def views(self, plan: MixingPlan, records: Vectors) -> torch.Tensor:
        """Views of records under the plan's strategies, (n, d) → (n, V, d); the record first."""
        rows = torch.from_numpy(records)
        strategies = build(plan)
        neighbours = None
        if len(records) and any(s.needs_neighbours for s in strategies):
            places, similarities = self.index.neighbours(records, plan.neighbours)
            neighbours = Neighbours(
                torch.from_numpy(self.vectors[places]), torch.from_numpy(similarities)
            )
        views = [rows.unsqueeze(1)]
        if len(records):
            views += [s.views(rows, neighbours)[:, 1:] for s in strategies]
        return torch.cat(views, dim=1)


def load_public(name: str, encoder: EncoderOptions, classes: Sequence[str]) -> PublicSet:
    """The corpus `name`, embedded.

    Raises:
        CorpusError: It has not been cleaned yet.
        EmbeddingError: It has not been embedded by this encoder, or the index is another one's.
    """
    loaded = encoder_of(encoder)
    documents = Corpus.open(corpus_folder(name)).documents()
    cache = cache_of(encoder, loaded)
    vectors = cache.lookup(cache.keys(documents.column("text").to_pylist()))
    index = PublicIndex.open(index_folder(name), encoder_digest=loaded.digest)
    known = {label: i for i, label in enumerate(classes)}
    labels = np.array(
        [known.get(label, -1) for label in documents.column("label").to_pylist()], dtype=np.int64
    )
    content = hashlib.sha256(vectors.tobytes() + labels.tobytes() + loaded.digest.encode())
    return PublicSet(vectors, labels, index, content.hexdigest())
