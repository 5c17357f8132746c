"""The embedding tasks, called as plain functions over a fake corpus and a fake encoder."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.embeddings import EmbeddingError, PublicIndex
from storage.encoder import unit_rows
from tasks import embedding
from tasks.embedding import EncoderOptions, build_index, embed_corpus, embedding_progress


class FakeEncoder:
    """Vectors drawn from the text's own bytes; counts what it embeds."""

    digest, max_tokens, dimension = "c" * 64, 96, 16

    def __init__(self, fail_at=None):
        self.embedded = 0
        self.fail_at = fail_at

    def encode(self, texts, *, on_batch=None):
        self.embedded += len(texts)
        if self.fail_at is not None and self.embedded > self.fail_at:
            raise KeyboardInterrupt
        rows = [np.random.default_rng(list(text.encode())).normal(size=16) for text in texts]
        if on_batch:
            on_batch(len(texts))
        return unit_rows(np.array(rows, dtype=np.float32))


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    class FakeCorpus:
        @classmethod
        def open(cls, path):
            return SimpleNamespace(documents=lambda: pq.read_table(path / "part.parquet"))

    monkeypatch.setattr(embedding, "Corpus", FakeCorpus)

    def write(texts):
        folder = tmp_path / "corpus"
        folder.mkdir(exist_ok=True)
        ids = [str(i) for i in range(len(texts))]
        table = pa.table({"id": ids, "text": pa.array(texts, pa.string())})
        pq.write_table(table, folder / "part.parquet")
        return str(folder)

    return write


@pytest.fixture
def encoder(monkeypatch):
    fake = FakeEncoder()
    monkeypatch.setattr(embedding, "encoder_of", lambda options: fake)
    return fake


@pytest.fixture
def options(tmp_path):
    return EncoderOptions(cache=str(tmp_path / "cache"))


def test_embeds_each_different_text_once_and_nothing_again(corpus, encoder, options):
    folder = corpus(["one", "two", "one"])
    first = embed_corpus.fn(folder, options)
    assert (first.documents, first.embedded) == (3, 2)
    second = embed_corpus.fn(folder, options)
    assert (second.documents, second.embedded) == (3, 0)
    assert encoder.embedded == 2
    assert second.path == first.path


def test_embeds_only_what_a_grown_corpus_adds(corpus, encoder, options):
    embed_corpus.fn(corpus(["one", "two"]), options)
    assert embed_corpus.fn(corpus(["two", "three", "one"]), options).embedded == 1


def test_an_interrupted_run_loses_only_its_last_part(corpus, monkeypatch, options):
    folder = corpus([f"text {i}" for i in range(2_500)])
    monkeypatch.setattr(embedding, "encoder_of", lambda options: FakeEncoder(fail_at=2_000))
    with pytest.raises(KeyboardInterrupt):
        embed_corpus.fn(folder, options)
    monkeypatch.setattr(embedding, "encoder_of", lambda options: FakeEncoder())
    assert embed_corpus.fn(folder, options).embedded == 500


def test_progress_reaches_the_hook_and_ends_at_the_total(corpus, encoder, options):
    seen = []
    with embedding_progress(lambda done, total: seen.append((done, total))):
        embed_corpus.fn(corpus([f"text {i}" for i in range(1_500)]), options)
    assert seen == [(1_000, 1_500), (1_500, 1_500)]


def test_index_follows_the_corpus_row_by_row(corpus, encoder, options, tmp_path):
    texts = ["one", "two", "three", "two"]
    folder = corpus(texts)
    embed_corpus.fn(folder, options)
    built = build_index.fn(folder, str(tmp_path / "index"), options)
    assert (built.documents, built.built, built.kind) == (4, True, "flat")
    index = PublicIndex.open(built.path, expected_digest=built.vectors_digest)
    nearest, cosines = index.neighbours(encoder.encode(["three"]), 1)
    assert nearest.tolist() == [[2]]
    assert cosines[0, 0] == pytest.approx(1.0, abs=1e-6)


def test_index_is_rebuilt_only_when_the_corpus_changed(corpus, encoder, options, tmp_path):
    where = str(tmp_path / "index")
    folder = corpus(["one", "two"])
    embed_corpus.fn(folder, options)
    assert build_index.fn(folder, where, options).built
    assert not build_index.fn(folder, where, options).built
    corpus(["two", "one"])
    assert build_index.fn(folder, where, options).built


def test_index_over_an_unembedded_corpus_names_the_remedy(corpus, encoder, options, tmp_path):
    with pytest.raises(EmbeddingError, match="Embed what"):
        build_index.fn(corpus(["one"]), str(tmp_path / "index"), options)


def test_empty_corpus_embeds_nothing_and_has_no_index(corpus, encoder, options, tmp_path):
    folder = corpus([])
    assert embed_corpus.fn(folder, options).documents == 0
    with pytest.raises(EmbeddingError, match="No public document survived"):
        build_index.fn(folder, str(tmp_path / "index"), options)


def test_absent_encoder_names_the_remedy(corpus, options, tmp_path):
    absent = options.model_copy(update={"folder": str(tmp_path / "nowhere")})
    with pytest.raises(EmbeddingError, match="make setup"):
        embed_corpus.fn(corpus(["one"]), absent)


def test_neither_task_persists_or_caches_its_result():
    for task in (embed_corpus, build_index):
        assert task.persist_result is False
        assert task.retries == 0
        assert type(task.cache_policy).__name__ == "_None"
