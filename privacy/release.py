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
    """Unweighted mean over classes of F1, in [0, 1]; negative (noised) counts read as zero."""
    counts = np.clip(np.asarray(confusion, dtype=np.float64), 0, None)
    return float(_macro_f1(counts[None])[0])


def accuracy(confusion: NDArray[np.floating] | Counts) -> float:
    """Share of the diagonal, in [0, 1]."""
    counts = np.clip(np.asarray(confusion, dtype=np.float64), 0, None)
    return float(np.trace(counts) / max(counts.sum(), 1e-12))


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
    counts = np.clip(confusion.astype(np.float64), 0, None)
    cells = counts.ravel() / max(counts.sum(), 1e-12)
    sampled = generator.multinomial(records, cells / cells.sum(), size=draws).astype(np.float64)
    noised = sampled + sigma * generator.standard_normal(sampled.shape)
    scores = _macro_f1(np.clip(noised, 0, None).reshape(draws, *confusion.shape))
    # Basic bootstrap: reflecting the quantiles takes out the bias that clipping at zero brings.
    centre = macro_f1(confusion)
    low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2])
    return max(0.0, float(2 * centre - high)), min(1.0, float(2 * centre - low))


def _macro_f1(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    right = np.diagonal(counts, axis1=1, axis2=2)
    total = counts.sum(axis=1) + counts.sum(axis=2)
    return np.where(total > 0, 2 * right / np.maximum(total, 1e-12), 0.0).mean(axis=1)
