"""Level 2, domain: is this public document about what the private data is about?

A logistic regression on hashed TF-IDF, trained when the step is built, on public examples alone:
private rows never teach it, so what it keeps says nothing about them.

Guarantees: deterministic for one examples file, one decision a document, no state between them.
They stop where the examples do not look like the shards: look at the funnel by source.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression

from tasks.cleaning.base import Cleaner, Document, Drop, OptionError, file_digest

_BUCKETS = 2**17
_LEAST_EXAMPLES = 20  # a class
_CHARACTERS = 1_000  # the examples are short; more would cost time and change few decisions
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Classifier:
    """A trained domain classifier.

    Attributes:
        weights: One weight a bucket, inverse document frequency folded out.
        idf: Inverse document frequency by bucket.
        intercept: Of the logistic regression.
    """

    weights: np.ndarray
    idf: np.ndarray
    intercept: float

    def probability(self, text: str) -> float:
        """Return the probability, in [0, 1], that a text is in the domain."""
        row = _vectorizer().transform([text[:_CHARACTERS]])
        values = row.data * self.idf[row.indices]
        norm = float(np.sqrt(values @ values)) or 1.0
        score = float(values @ self.weights[row.indices]) / norm + self.intercept
        return float(1.0 / (1.0 + np.exp(-score)))


def _vectorizer() -> HashingVectorizer:
    return HashingVectorizer(
        preprocessor=_letters,
        analyzer="char_wb",
        ngram_range=(3, 5),
        n_features=_BUCKETS,
        alternate_sign=False,
        norm=None,
        dtype=np.float64,
    )


def _letters(text: str) -> str:
    """Return the words alone: how a source sets its spaces and stops is no domain.

    With punctuation left in, the classifier learns that one source writes " ." and calls every
    text that does not "out of domain".
    """
    return " ".join(_WORD.findall(text.lower()))


def _example(path: Path, number: int, line: bytes) -> tuple[str, bool]:
    try:
        row = json.loads(line)
        text, in_domain = row["text"], row["in_domain"]
    except (ValueError, TypeError, KeyError) as error:
        msg = (
            f"domain.examples: line {number} of {path} is no example ({type(error).__name__}). "
            'Every line reads {"text": "…", "in_domain": true or false}.'
        )
        raise OptionError(msg) from error
    if not isinstance(text, str) or not isinstance(in_domain, bool):
        msg = (
            f"domain.examples: line {number} of {path} needs a string under text and true or "
            f"false under in_domain; got {type(text).__name__} and {type(in_domain).__name__}."
        )
        raise OptionError(msg)
    return text, in_domain


def train(path: Path) -> Classifier:
    """Return a classifier of the examples in a JSONL file.

    Raises:
        OptionError: The file is missing, malformed, or short of examples of either class.
    """
    if not path.is_file():
        msg = (
            f"domain.examples must name a JSONL file of public examples; {path} does not exist. "
            'Write one {"text": "…", "in_domain": true or false} a line, or take the domain step '
            "out of cleaning.steps."
        )
        raise OptionError(msg)
    with path.open("rb") as file:
        rows = [_example(path, n, line) for n, line in enumerate(file, 1) if line.strip()]
    inside = sum(in_domain for _, in_domain in rows)
    if min(inside, len(rows) - inside) < _LEAST_EXAMPLES:
        msg = (
            f"domain.examples must hold at least {_LEAST_EXAMPLES} examples inside and outside "
            f"the domain; {path} holds {inside} and {len(rows) - inside}. Add public examples."
        )
        raise OptionError(msg)
    counts = csr_matrix(_vectorizer().transform([text[:_CHARACTERS] for text, _ in rows]))
    frequency = np.bincount(counts.indices, minlength=_BUCKETS)
    idf = np.log((1 + len(rows)) / (1 + frequency)) + 1.0
    counts.data *= idf[counts.indices]
    norms = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
    norms[norms == 0] = 1.0
    scaled = csr_matrix(counts.multiply(1.0 / norms[:, None]))
    model = LogisticRegression(C=10.0, class_weight="balanced", solver="lbfgs", max_iter=300)
    model.fit(scaled, np.array([in_domain for _, in_domain in rows]))
    return Classifier(weights=model.coef_[0], idf=idf, intercept=float(model.intercept_[0]))


_lock = threading.Lock()
_trained: dict[str, Classifier] = {}


def classifier(path: Path) -> Classifier:
    """Return the classifier of an examples file, trained once a process and content."""
    if not path.is_file():
        return train(path)  # says what is wrong
    digest = file_digest(path)
    with _lock:
        if digest not in _trained:
            _trained[digest] = train(path)
        return _trained[digest]


class Domain(Cleaner):
    """Drops public documents that are about something else."""

    name = "domain"
    level = "domain"
    record_local = True
    reasons = ("out_of_domain",)
    requires = ("scikit-learn",)

    def __init__(self, *, examples: str | Path, threshold: float = 0.5) -> None:
        if not 0.0 < threshold < 1.0:
            msg = (
                f"domain.threshold must lie strictly between 0 and 1; got {threshold}. 0.5 is the "
                "classifier's own decision; higher keeps fewer documents."
            )
            raise OptionError(msg)
        self._threshold = threshold
        self._classifier = classifier(Path(examples))

    @classmethod
    def identity(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the step's identity, with the examples by content rather than by path."""
        known = super().identity(options)
        path = Path(options.get("examples", ""))
        if path.is_file():
            known["options"] = {**options, "examples": file_digest(path)}
        return known

    def clean(self, document: Document) -> Document | Drop:
        """Return the document unchanged when it belongs to the domain."""
        probability = self._classifier.probability(document.text)
        if probability < self._threshold:
            return Drop("out_of_domain", detail=f"probability {probability:.2f}")
        return document
