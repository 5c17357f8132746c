"""The newest link of the ledger that a dataset has seen: a ledger that lacks it has forgotten something.

`ledger-head.json` holds {"ledger", "sequence", "hash"} beside the declaration. It moves forward, never
back, whenever a grant is confirmed, so it holds at least the link that started the newest read. A
restored backup, or another ledger under the same id, does not hold that link and is refused until it has
been reconciled.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from storage.errors import PrivateDataError
from storage.files import one_at_a_time, remove_unfinished, write_whole
from storage.ledger import Head, Ledger

_FILE = "ledger-head.json"


def check(folder: Path, ledger: Ledger) -> None:
    """Refuse a ledger that lacks the link this dataset has seen.

    Raises:
        PrivateDataError: It is older than what was seen, or another one.
    """
    seen = _seen(folder)
    if seen is None:
        raise PrivateDataError(
            f"dataset {folder.name!r} has lost {_FILE}, which says what its ledger must hold. Nothing "
            f"is read. Compare the ledger with the evidence: `dpmix ledger reconcile {folder.name}`."
        )
    if not ledger.contains(seen):
        raise PrivateDataError(
            f"the ledger at hand lacks link {seen.sequence} ({seen.hash[:12]}…), which dataset "
            f"{folder.name!r} has seen: it is a restored backup or another ledger. Nothing is read. "
            f"Point DPMIX_LEDGER_URL at the right one, or run `dpmix ledger reconcile {folder.name}`."
        )


def remove_leftovers(folder: Path) -> None:
    """Remove what killed writers left beside the head, while none of them is at work."""
    with one_at_a_time(folder / "ledger-head.lock"):
        remove_unfinished(folder)


def remember(folder: Path, ledger: Ledger) -> None:
    """Move the head that was seen forward to the ledger's newest link."""
    with one_at_a_time(folder / "ledger-head.lock"):
        newest, seen = ledger.head(), _seen(folder)
        if seen is None or newest.sequence > seen.sequence:
            _write(folder, ledger, newest)


@contextlib.contextmanager
def reconciling(folder: Path, ledger: Ledger) -> Iterator[None]:
    """Hold other reconciliations off; once this one is through, the ledger as it stands is the one seen.

    One that fails or is killed leaves the head as it was: nothing is read until another is through.
    """
    with one_at_a_time(folder / "reconcile.lock"):
        yield
        with one_at_a_time(folder / "ledger-head.lock"):
            _write(folder, ledger, ledger.head())


def _seen(folder: Path) -> Head | None:
    path = folder / _FILE
    if not path.is_file():
        return None
    value = json.loads(path.read_text())
    return Head(int(value["sequence"]), str(value["hash"]))


def _write(folder: Path, ledger: Ledger, head: Head) -> None:
    value = {"ledger": ledger.id, "sequence": head.sequence, "hash": head.hash}
    write_whole(folder / _FILE, json.dumps(value).encode(), mode=0o600)
