"""refresh_public: raw public shards → clean corpus → embeddings → index of neighbours."""

from __future__ import annotations

from prefect import flow

from tasks import shards
from tasks.cleaning.stages import clean_domain, clean_pii, clean_text, finish_corpus, plan_cleaning
from tasks.embedding import EncoderOptions, build_index, embed_corpus
from tasks.public import corpus_folder, index_folder
from tasks.sections import CleaningSection, CorpusSection


@flow(name="refresh-public", flow_run_name="refresh {corpus.name}", persist_result=False)
def refresh_public(
    corpus: CorpusSection,
    cleaning: CleaningSection = CleaningSection(),
    encoder: EncoderOptions = EncoderOptions(),
) -> dict[str, object]:
    """Clean what arrived, embed what is new, index it all.

    Args:
        corpus: Which corpus, and where its raw shards are.
        cleaning: The steps and their options.
        encoder: The frozen encoder.
    """
    folder = corpus_folder(corpus.name)
    plan = plan_cleaning(
        folder, steps=cleaning.steps, options=cleaning.options, workers=cleaning.workers
    )
    with shards.timed(folder, "cleaning"):
        cleaned = []
        for shard in shards.raw_shards(corpus.raw):
            text = clean_text.submit(shard, plan)
            domain = clean_domain.submit(text, plan)
            cleaned.append((text, domain, clean_pii.submit(domain, plan)))
        finished = finish_corpus(shards.gather(cleaned), plan)
    with shards.timed(folder, "embedding"), shards.embedding_bar():
        embedded = embed_corpus(str(folder), encoder)
        index = build_index(str(folder), str(index_folder(corpus.name)), encoder)
    return {
        "corpus": finished["path"],
        "kept": finished["funnel"]["kept"],
        "seen": finished["funnel"]["seen"],
        "dropped": finished["funnel"]["dropped"],
        "step_errors": finished["errors"],
        "embedded": embedded.embedded,
        "index": index.path,
    }
