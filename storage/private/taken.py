"""One home for a record in a whole store: keyed hashes of what each dataset has taken in.

A dataset's unit key is its own, so the same table under a second name would be bound anew, to blocks
with budget of their own. Against that the store has one secret key (``taken.key``, mode 0600), and each
kept row carries the HMAC under it of [unit kind, person key or "", normalised text], spelled as a JSON
list, which no two records share.

What is guaranteed. Among the datasets of one unit kind in one store, a record lies in the blocks of one
dataset: the first that took it in, for good. A later one keeps it out in silence. A file that another
dataset has taken in, byte for byte, is refused aloud, whatever its unit kind, before anything is
declared, opened or read for it.

Why neighbouring datasets still differ in one unit. Whether a row is kept out depends on its own record
and on what *other* datasets hold when the ingestion begins, never on another row of its file. Copies of
a text within a file are kept or kept out together, and belong to one unit. Ingestions into a store go
one after the other, so nothing that another dataset takes in meanwhile cuts through a file; which of two
goes first follows from when they were asked for, not from their rows. Adding or removing a unit's rows
therefore changes that unit's rows, and nobody else's.

What two datasets claim together, for unit ``record``. Add a record to, or remove it from, every file of
the store: one block changes, its home, by one unit, since the other datasets do not hold it either way.
So the blocks of all datasets compose in parallel, like those of one. Not claimed is the larger of two
blocks' ε for a record that is removed from its home's file alone while a later dataset's file still
holds it: it then moves, one block loses a unit and another gains one, and the two blocks' ε compose.
For unit ``person`` it is records that have one home, not people: a person with different records in two
datasets is a unit of both, and what they spend on that person composes.

The refusal of a whole file is no part of the claim. It tells whoever registers a file, and so has it at
hand, that the same bytes were taken in before; a file that differs in one row is not refused.

When it stops holding: in another store; for a text that was edited beyond normalisation; between
datasets of different unit kinds, but for whole files; for rows that were kept before their hashes were
(their column is null); and against whoever can write to the store's folder.
"""

from __future__ import annotations

import hmac
import json
import secrets
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import PrivateDataError
from storage.files import one_at_a_time, remove_unfinished, write_whole
from storage.private.dataset import Dataset
from storage.private.files import require_file
from storage.private.parsing import Parsed, digest

_KEY = "taken.key"
_CONTENT = pa.schema([("content", pa.string())])


class Taken:
    """What the datasets of a store have taken in.

    Args:
        root: The store's folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    @cached_property
    def _key(self) -> str:
        path = self._root / _KEY
        with one_at_a_time(self._root / "taken.lock"):
            if not path.is_file():
                self._require_new()
                remove_unfinished(self._root)
                write_whole(path, secrets.token_hex(32).encode(), mode=0o600)
        return path.read_text()

    def _require_new(self) -> None:
        if next(self._root.glob("*/files/*"), None) is not None:
            raise PrivateDataError(
                f"the private store has lost {_KEY}, without which it cannot tell what its datasets "
                "hold. Nothing is taken in. Restore the file from a backup of the store."
            )

    def record(self, unit: str, parsed: Parsed) -> str:
        """Keyed hash of a record, the same in every dataset of a unit kind."""
        identity = ["record", unit, parsed.person if unit == "person" else "", parsed.content]
        return digest(self._key, json.dumps(identity, ensure_ascii=False))

    def elsewhere(self, dataset: Dataset) -> set[str]:
        """Keyed hashes of the records that other datasets of the same unit kind hold."""
        found: set[str] = set()
        for path in self._root.glob("*/dataset.json"):
            other = Dataset.from_json(path.read_text())
            if other.name == dataset.name or other.unit != dataset.unit:
                continue
            for part in path.parent.glob("blocks/*/*.parquet"):
                # By schema: a part that was written before there was the column reads as nulls.
                found.update(pq.read_table(part, schema=_CONTENT)["content"].to_pylist())
        return found - {None}

    def require_free(self, path: Path, name: str) -> str:
        """Keyed hash of a file's bytes, which no dataset but `name` has taken in.

        Raises:
            PrivateDataError: The file is missing, or another dataset has.
        """
        mark = self._of_bytes(path)
        for claim in self._root.glob(f"*/files/{mark}"):
            other = claim.parent.parent.name
            if other != name:
                raise PrivateDataError(
                    f"{path.name} has been taken in by dataset {other!r}: its records belong to that "
                    f"dataset's blocks for good, and another name brings no new budget. Use dataset "
                    f"{other!r}, or give {name!r} a file of other records."
                )
        return mark

    def claim(self, mark: str, name: str) -> None:
        """Write that a dataset takes a file in; call it while no other ingestion is under way."""
        folder = self._root / name / "files"
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / mark).touch(mode=0o600)

    def _of_bytes(self, path: Path) -> str:
        require_file(path)
        state = hmac.new(bytes.fromhex(self._key), b"file\n", "sha256")
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                state.update(block)
        return state.hexdigest()
