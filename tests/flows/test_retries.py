"""A run that Prefect tries again: a new release with fresh noise, paid for once more."""

from __future__ import annotations

import csv
import hashlib

import pytest

import tasks.training
from flows.commands import dataset
from flows.parameters import parameters_of
from flows.retrain import retrain
from privacy.noise import NoiseSource
from storage.evidence import public_key, verify
from storage.runs import RunFolder
from tasks.installation import Installation

NAME = "retried"


@pytest.fixture(scope="module")
def registered(installed, movies):
    """A dataset with rows of its own."""
    path = installed / f"{NAME}.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["review", "sentiment"])
        writer.writerows((t[:300], y) for t, y, s in movies[3::160] if s == "imdb")
    dataset.register(
        NAME,
        path,
        text_column="review",
        label_column="sentiment",
        classes=["negative", "positive"],
        records=1000,
        holdout_records=400,
    )


def test_a_retry_draws_fresh_noise_under_a_new_reservation(
    registered, installed, profile, monkeypatch
):
    drawn: list[str] = []
    normal, train = NoiseSource.normal, tasks.training.train_on_private

    def watched(self, count):
        noise = normal(self, count)
        drawn.append(hashlib.sha256(noise.numpy().tobytes()).hexdigest())
        return noise

    def fails_once(*arguments, **options):
        trained = train(*arguments, **options)
        if not failed:
            failed.append(True)
            raise OSError("the disk was full")
        return trained

    failed: list[bool] = []
    monkeypatch.setattr(NoiseSource, "normal", watched)
    monkeypatch.setattr(tasks.training, "train_on_private", fails_once)
    changed = {**profile, "dataset": {"name": NAME}}
    retrain.with_options(retries=1)(**parameters_of(changed, "retrain"))

    assert len(drawn) > 40
    assert len(set(drawn)) == len(drawn)

    installation = Installation.open()
    entries = installation.ledger.history(NAME)
    states = {(e.run_count, e.purpose): e.state for e in entries}
    assert states.pop((1, "mixed model")) == "STARTED"
    assert {s for (attempt, _), s in states.items() if attempt == 1} == {"RELEASED"}
    assert {s for (attempt, _), s in states.items() if attempt == 2} == {"COMMITTED"}
    assert len({e.flow_run_id for e in entries}) == 1

    commitments = []
    for path in installation.settings.runs.glob("*/evidence.jsonl"):
        if RunFolder(path.parent).read("plan")["dataset"] == NAME:
            bodies = verify(path, public_key(installation.key)).bodies
            started = [body for kind, body in bodies if kind == "start"]
            commitments += [b["noise_commitment"] for b in started if b["arm"] != "members"]
    # The mixed model twice, the private-only arm and the evaluation once.
    assert len(commitments) == len(set(commitments)) == 4
