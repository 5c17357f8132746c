"""Figures fit for release: macro-F1 and its interval from *noised* confusion matrices.

Everything here is post-processing of a charged release (or of public counts, with sigma 0): it may be
repeated and changed at will. Un-noised counts of private rows must never reach this module's callers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privacy.errors import PlanError

Counts = NDArray[np.int64]


def confusion_matrix(
    truth: NDArray[np.int64], predicted: NDArray[np.int64], classes: int
) -> Counts:
    """(K, K) counts, rows true classes, columns predicted. Sensitive if the rows are private.

    A record moves exactly one cell by one; labels outside [0, K) count nowhere.
    """
    valid = (truth >= 0) & (truth < classes)
    cells = truth[valid] * classes + predicted[valid]
    return np.bincount(cells, minlength=classes * classes).reshape(classes, classes)


def macro_f1(confusion: NDArray[np.floating] | Counts) -> float:
    """Unweighted mean over classes of F1, in [0, 1].

    Sums are taken over *signed* noised counts, which keeps them unbiased: cutting single cells at zero
    first would add an error for every empty cell.
    """
    return float(_macro_f1(np.asarray(confusion, dtype=np.float64)[None])[0])


def accuracy(confusion: NDArray[np.floating] | Counts) -> float:
    """Share of the diagonal, in [0, 1]."""
    counts = np.asarray(confusion, dtype=np.float64)
    total = counts.sum()
    return float(np.clip(np.trace(counts) / total, 0, 1)) if total > 0 else 0.0


def macro_f1_interval(
    confusion: Counts,
    *,
    sigma: float,
    records: int,
    level: float = 0.95,
    draws: int = 2000,
    rng: np.random.Generator | None = None,
) -> tuple[float, float]:
    """Parametric bootstrap interval that allows for sampling *and* for the noise added.

    Args:
        confusion: (K, K) noised counts.
        sigma: Scale of the noise in each cell; 0 for public counts.
        records: Declared number of records behind them.
        level: Coverage aimed at, in (0, 1).
        draws: Bootstrap draws.
        rng: For tests; fresh entropy by default.
    """
    if not 0 < level < 1 or records < 1:
        raise PlanError(f"level must lie in (0, 1) and records be >= 1; got {level}, {records}.")
    generator = rng or np.random.default_rng()
    centre = macro_f1(confusion)
    cells = _plausible(confusion)
    truth = float(_macro_f1((cells * records)[None])[0])
    sampled = generator.multinomial(records, cells.ravel(), size=draws).astype(np.float64)
    noised = (sampled + sigma * generator.standard_normal(sampled.shape)).reshape(
        draws, *confusion.shape
    )
    # Errors of the bootstrap world around its own truth, carried over to ours.
    low, high = np.quantile(_macro_f1(noised) - truth, [(1 - level) / 2, (1 + level) / 2])
    return max(0.0, float(centre - high)), min(1.0, float(centre - low))


def _plausible(confusion: Counts) -> NDArray[np.float64]:
    """Cell probabilities with the noised diagonal and row sums; the rest of a row spread evenly.

    Off the diagonal most cells hold less than the noise: taken one by one and cut at zero, they would
    add up to errors that nobody made.
    """
    counts = confusion.astype(np.float64)
    classes = len(counts)
    right = np.clip(np.diagonal(counts), 0, None)
    rows = np.maximum(counts.sum(axis=1), right)
    spread = np.repeat(((rows - right) / (classes - 1))[:, None], classes, axis=1)
    np.fill_diagonal(spread, right)
    total = spread.sum()
    return spread / total if total > 0 else np.full_like(spread, 1 / spread.size)


def _macro_f1(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    right = np.clip(np.diagonal(counts, axis1=1, axis2=2), 0, None)
    total = counts.sum(axis=1) + counts.sum(axis=2)
    scores = np.where(total > 0, 2 * right / np.maximum(total, 1e-12), 0.0)
    return np.clip(scores, 0, 1).mean(axis=1)
