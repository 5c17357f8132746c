"""Private rows on their way to training: read by grant, cleaned, embedded, cached behind the grant.

Everything here is sensitive. Nothing is counted, timed, logged or raised about a row; a row that is
malformed, or that a cleaner drops, becomes a zero vector, which contributes nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privacy.errors import PrivacyError
from storage.embeddings import EmbeddingCache
from storage.errors import StorageError
from storage.files import write_whole
from storage.ledger import ReadGrant
from tasks.cleaning.stages import clean_private
from tasks.embedding import EncoderOptions, encoder_of
from tasks.installation import Installation


class PrivateStageError(RuntimeError):
    """A private stage failed; what it said is kept in the restricted folder, not here."""


@contextmanager
def trust_zone(installation: Installation, dataset: str, run_id: str) -> Iterator[None]:
    """Keep the text of unexpected errors inside: it may quote private rows or their number.

    Our own errors speak of declarations only and pass, without the errors that they stand for: a log
    would print those as well. Anything else is written to the restricted folder and replaced, an exit
    with a text included; an interruption passes without what it says. What libraries log or warn about
    meanwhile goes nowhere.

    Raises:
        PrivateStageError: In place of an unexpected error.
    """
    try:
        with _unheard():
            yield
    except (StorageError, PrivacyError) as error:
        error.__cause__ = error.__context__ = None
        raise
    except KeyboardInterrupt:
        failed = None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it says may quote private rows
        failed = type(error).__name__
        where = _keep(installation, dataset, run_id, traceback.format_exc())
    else:
        return
    # From None: a `with` statement makes the first error the context, and logs print it, even though
    # this is outside the handlers.
    if failed is None:
        raise KeyboardInterrupt from None
    raise PrivateStageError(
        f"a private stage failed with {failed}; its text may quote private data and {where}. The "
        "reservation stays charged."
    ) from None


@contextmanager
def _unheard() -> Iterator[None]:
    """Silence logs and warnings of this process: libraries quote what they choke on, or its length."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _keep(installation: Installation, dataset: str, run_id: str, text: str) -> str:
    """Write an error's text into the trust zone; says where, or that it could not be kept."""
    try:
        target = installation.store.restricted(dataset) / f"{run_id}-error.txt"
        write_whole(target, text.encode("utf-8", "replace"), mode=0o600)
    except (StorageError, OSError):
        return "could not be kept"
    return f"is kept in {target}"


@dataclass(frozen=True)
class PrivateRecords:
    """Private records as vectors. Sensitive: discard after use.

    Attributes:
        vectors: (r, d) float32, unit or zero norm.
        labels: (r,) class index.
        units: (r,) unit index, contiguous from 0.
    """

    vectors: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    units: npt.NDArray[np.int64]


def load_records(
    installation: Installation,
    grant: ReadGrant,
    blocks: Sequence[str],
    sections: Mapping[str, Any],
) -> PrivateRecords:
    """The records of `blocks`, for the holder of a grant that names them all.

    Raises:
        GrantRefused, FencedOut: The ledger does not confirm the grant.
    """
    options = EncoderOptions(**sections["encoder"])
    steps = sections["dataset"]["cleaning_steps"]
    vectors, labels, units, offset = [], [], [], 0
    for block in blocks:
        rows = installation.store.read(grant, block)
        vectors.append(_embed(installation, grant, block, rows.texts, steps, options))
        labels += rows.labels
        units += [offset + u for u in rows.units]
        offset = max(units, default=-1) + 1
    return PrivateRecords(
        np.concatenate(vectors),
        np.array(labels, dtype=np.int64),
        np.array(units, dtype=np.int64),
    )


def _embed(
    installation: Installation,
    grant: ReadGrant,
    block: str,
    texts: Sequence[str],
    steps: Sequence[str],
    options: EncoderOptions,
) -> npt.NDArray[np.float32]:
    """Cleaned and embedded texts; cached under keyed hashes of raw text and cleaning."""
    folder, secret = installation.store.cache(grant, block)
    recipe = json.dumps(list(steps))

    def key(text: str) -> str:
        message = f"{recipe}\n{text}".encode("utf-8", "replace")
        return hmac.new(secret, message, hashlib.sha256).hexdigest()

    encoder = encoder_of(options)
    cache = EmbeddingCache.for_encoder(folder, encoder, key=key)
    by_key = dict(zip(cache.keys(texts), texts, strict=True))
    missing = cache.missing(by_key)
    for start in range(0, len(missing), 1000):
        part = missing[start : start + 1000]
        cleaned = clean_private([by_key[k] for k in part], steps)
        cache.add(part, encoder.encode(cleaned))
    if not texts:
        return np.zeros((0, encoder.dimension), dtype=np.float32)
    return cache.lookup(cache.keys(texts))
