from __future__ import annotations

import pytest

from tasks.cleaning.base import Document, Drop, OptionError, build
from tasks.cleaning.domain import train


def step(examples, **options):
    return build(["domain"], {"domain": {"examples": str(examples), **options}})[0]


def test_it_keeps_the_domain_and_drops_the_rest(examples):
    domain = step(examples)
    assert isinstance(domain.clean(Document.of("The film and her performance moved me.")), Document)
    drop = domain.clean(Document.of("The router and the battery of this phone failed."))
    assert isinstance(drop, Drop)
    assert drop.reason == "out_of_domain"


def test_punctuation_and_case_are_no_domain(examples):
    model = train(examples)
    assert model.probability("The film .  Her PERFORMANCE !") == model.probability(
        "the film, her performance"
    )


def test_training_is_deterministic(examples):
    first, second = train(examples), train(examples)
    assert first.probability("this movie") == second.probability("this movie")


def test_a_higher_threshold_keeps_fewer(examples):
    document = Document.of("This player kept the movie in the battery.")
    outcomes = [
        isinstance(step(examples, threshold=threshold).clean(document), Document)
        for threshold in (0.001, 0.999)
    ]
    assert outcomes == [True, False]


@pytest.mark.parametrize("threshold", [0.0, 1.0, -1.0, float("nan")])
def test_a_threshold_outside_its_bounds_is_refused(examples, threshold):
    with pytest.raises(OptionError, match="threshold"):
        step(examples, threshold=threshold)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        ("not json\n", "line 1"),
        ('{"text": "a"}\n', "line 1"),
        ('{"text": "a", "in_domain": "yes"}\n', "true or false"),
        ('{"text": "a", "in_domain": true}\n' * 30, "at least 20"),
    ],
    ids=["missing", "not-json", "missing-key", "not-bool", "one-sided"],
)
def test_bad_examples_are_refused_with_the_remedy(tmp_path, content, message):
    path = tmp_path / "examples.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(OptionError, match=message):
        step(path)
