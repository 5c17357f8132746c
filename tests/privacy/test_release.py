"""Figures from noised confusion matrices: unbiased, and with intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest

from privacy.errors import PlanError
from privacy.mechanisms import noised_counts
from privacy.release import accuracy, confusion_matrix, macro_f1, macro_f1_interval


def exact(classes, records, right, rng):
    cells = np.full((classes, classes), (1 - right) / (classes * (classes - 1)))
    np.fill_diagonal(cells, right / classes)
    return rng.multinomial(records, cells.ravel()).reshape(classes, classes)


def test_counts_each_record_once_and_a_foreign_label_nowhere():
    counts = confusion_matrix(np.array([0, 1, 1, -1, 5]), np.array([0, 0, 1, 0, 1]), 2)
    assert counts.tolist() == [[1, 0], [1, 1]]


def test_without_noise_it_is_the_usual_macro_f1():
    counts = np.array([[8, 2], [1, 9]])
    assert macro_f1(counts) == pytest.approx((16 / 19 + 18 / 21) / 2)
    assert accuracy(counts) == 0.85


@pytest.mark.parametrize(("classes", "records", "sigma"), [(2, 1500, 6.0), (20, 3700, 6.0)])
def test_the_interval_holds_the_point_and_covers_the_truth(classes, records, sigma):
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(60):
        counts = exact(classes, records, 0.75, rng)
        noised = noised_counts(counts, sigma=sigma, randbelow=lambda n: int(rng.integers(n)))
        low, high = macro_f1_interval(noised, sigma=sigma, records=records, draws=400, rng=rng)
        assert low <= macro_f1(noised) <= high
        covered += low <= 0.75 <= high
    assert covered >= 48  # 95 % intervals: fewer than 48 of 60 has a chance below 1e-6


def test_noise_does_not_pull_the_score_of_many_classes_down():
    rng = np.random.default_rng(3)
    counts = exact(20, 3700, 0.75, rng)
    scores = [
        macro_f1(noised_counts(counts, sigma=6.0, randbelow=lambda n: int(rng.integers(n))))
        for _ in range(40)
    ]
    assert np.mean(scores) == pytest.approx(macro_f1(counts), abs=0.015)


def test_a_level_or_a_count_out_of_range_is_refused():
    with pytest.raises(PlanError, match="level"):
        macro_f1_interval(np.eye(2, dtype=int), sigma=1.0, records=10, level=1.0)
