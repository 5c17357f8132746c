"""One run's evidence as a file: appended to, continued after a kill, verified.

Each line is one JSON object in canonical form (sorted keys, no spaces, UTF-8):
{"body", "kind", "at", "sequence", "previous", "hash", "signature"}. `hash` is SHA-256 over the canonical
form of the first five, so the previous hash lies inside what is hashed; `signature` is Ed25519 over
`hash`. The head (the last hash) is anchored outside the file, in the ledger row that it settles. The
public key lies beside the file (`evidence.pub`).

What is guaranteed. Whoever holds the public key and a head can tell that no line was changed, dropped
or put in between, nor even respelled: a line must be the canonical form of what it says. Entries stand
in the order that `storage.evidence.protocol` allows; an entry that may not stand is refused before it
is written. A last line that a kill cut off is dropped when its writer opens the file again. What is
not: that the code which wrote it ran as it says. A prefix of a chain verifies too, so a file that is
not closed reads INCOMPLETE unless the head is given. No seed, private row, un-noised number or realised
batch size is ever written here; digests of private data are left out altogether.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from storage.chain import GENESIS, canonical, digest, make_link
from storage.evidence.errors import EvidenceError
from storage.evidence.keys import public_key, read_public_key
from storage.evidence.protocol import CLOSED, Protocol
from storage.files import one_at_a_time, write_whole

_SHAPE = {"body": dict, "kind": str, "at": str, "sequence": int, "hash": str, "signature": str}
_FIELDS = {"body", "kind", "at", "sequence", "previous", "hash", "signature"}


@dataclass(frozen=True)
class Verification:
    """What a verifier found.

    Attributes:
        entries: How many entries verified.
        head: Hash of the last one.
        complete: The file is closed, or ends at the head that was given.
        bodies: (kind, body) of each entry.
        hashes: Hash of each entry.
        days: Day of each entry, as it says.
        cut_off: A last line that a kill had cut off was left out.
    """

    entries: int
    head: str
    complete: bool
    bodies: tuple[tuple[str, Mapping[str, Any]], ...]
    hashes: tuple[str, ...] = ()
    days: tuple[str, ...] = ()
    cut_off: bool = False


class Evidence:
    """The evidence of one run.

    Args:
        path: The file; made if missing, verified and continued if not.
        key: Signing key; see `storage.evidence.keys.signing_key`.
    """

    def __init__(self, path: Path, key: Ed25519PrivateKey) -> None:
        self._path = path
        self._key = key
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = path.with_suffix(".lock")
        self._sequence, self.head, self._size = 0, GENESIS, 0
        self._protocol = Protocol()
        with one_at_a_time(self._lock):
            self._catch_up()
            self._publish_key()

    def _catch_up(self) -> None:
        """Verify and continue what another writer, or an earlier process, left."""
        if not self._path.exists() or self._path.stat().st_size == self._size:
            return
        _mend(self._path, self._key)
        seen, self._protocol = _verify(
            self._path.read_bytes(), self._path.name, self._key.public_key(), ""
        )
        self._sequence, self.head = seen.entries, seen.head
        self._size = self._path.stat().st_size

    def _publish_key(self) -> None:
        beside, text = self._path.with_suffix(".pub"), f"{public_key(self._key)}\n".encode()
        if not beside.is_file() or beside.read_bytes() != text:
            write_whole(beside, text)

    def append(self, kind: str, body: Mapping[str, Any]) -> str:
        """Write one entry behind whatever stands, flushed to disk; returns the new head.

        Closing a closed file, or repeating the refusal that ended it, changes nothing: a run that was
        killed behind the entry may say it again.

        Raises:
            EvidenceError: The entry may not stand here; nothing was written.
            ValueError: JSON cannot say what the body holds.
        """
        with one_at_a_time(self._lock):
            self._catch_up()
            # Through JSON, as a verifier will read it: a tuple is a list there.
            body = json.loads(canonical(body))
            if self._protocol.repeats(kind, body):
                return self.head
            try:
                self._protocol.check(kind, body)
            except EvidenceError as error:
                raise EvidenceError(
                    f"entry {self._sequence} of {self._path.name} may not be written: {error}. Nothing "
                    "was written.",
                    entry=self._sequence,
                ) from None
            head = self._append(kind, body)
            self._protocol.apply(kind, body)
            return head

    def _append(self, kind: str, body: Mapping[str, Any]) -> str:
        link = make_link(
            sequence=self._sequence,
            kind=kind,
            day=datetime.now(UTC).date(),
            previous=self.head,
            body=body,
        )
        signature = base64.b64encode(self._key.sign(bytes.fromhex(link["hash"]))).decode()
        line = canonical({**link, "signature": signature})
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
            stream.flush()
            os.fsync(stream.fileno())
            self._size = stream.tell()
        self._sequence += 1
        self.head = link["hash"]
        return self.head


def verify(path: Path, key: str, *, head: str = "") -> Verification:
    """Verify chain, signatures and order of a file; needs nothing but the file and the public key.

    Args:
        path: The evidence file.
        key: Public key, 64 hex digits.
        head: The head as published elsewhere; with it an open file can be complete.

    Raises:
        EvidenceError: Naming the first entry that fails, and how.
    """
    return _verify(_content(path), path.name, _verifier(key), head)[0]


def verify_prefix(path: Path, key: str) -> Verification:
    """Verify a file that its writer may have been killed over: a last line cut off is left out.

    The file itself is not changed. What the line would have said had not been said yet: an entry is on
    the disk, whole, before whatever it announces is done.

    Args:
        path: The evidence file.
        key: Public key, 64 hex digits.

    Raises:
        EvidenceError: Naming the first entry that fails, and how.
    """
    content = _content(path)
    whole = _without_torn_end(content)
    found, _ = _verify(whole, path.name, _verifier(key), "")
    return replace(found, cut_off=whole != content)


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise EvidenceError(f"{path} does not exist.")
    return path.read_bytes()


def _verifier(key: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(read_public_key(key)))


def _verify(
    content: bytes, name: str, verifier: Ed25519PublicKey, head: str
) -> tuple[Verification, Protocol]:
    previous, bodies, hashes, days = GENESIS, [], [], []
    protocol = Protocol()
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    for sequence, line in enumerate(lines):
        of = f"entry {sequence} of {name}"
        try:
            entry, given, signature = _parse(line)
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            cut = sequence == len(lines) - 1 and not content.endswith(b"\n")
            why = "is cut off" if cut else "is not a signed entry in canonical form"
            raise EvidenceError(f"{of} {why}.", entry=sequence) from None
        if entry.get("sequence") != sequence or entry.get("previous") != previous:
            raise EvidenceError(f"{of} does not follow the one before.", entry=sequence)
        if digest(entry) != given:
            raise EvidenceError(f"{of} was changed: its hash differs.", entry=sequence)
        try:
            verifier.verify(signature, bytes.fromhex(given))
        except (InvalidSignature, ValueError):
            raise EvidenceError(f"{of} is not signed by this key.", entry=sequence) from None
        try:
            protocol.check(entry["kind"], entry["body"])
        except EvidenceError as error:
            raise EvidenceError(f"{of} may not stand there: {error}.", entry=sequence) from None
        protocol.apply(entry["kind"], entry["body"])
        previous = given
        bodies.append((entry["kind"], entry["body"]))
        hashes.append(given)
        days.append(entry["at"])
    if head and head != previous:
        raise EvidenceError(f"{name} ends at {previous}, not at the head {head}.")
    complete = bool(head) or bool(bodies and bodies[-1][0] == CLOSED)
    found = Verification(len(bodies), previous, complete, tuple(bodies), tuple(hashes), tuple(days))
    return found, protocol


def _parse(line: bytes) -> tuple[dict[str, Any], str, bytes]:
    """(what is hashed, hash, signature) of a line, which must be spelled as a writer spells it."""
    entry = json.loads(line)
    if set(entry) != _FIELDS or canonical(entry).encode() != line:
        raise ValueError("not in canonical form")
    if not all(isinstance(entry[n], t) for n, t in _SHAPE.items()):
        raise ValueError("a field of another type")
    given, text = entry.pop("hash"), entry.pop("signature")
    signature = base64.b64decode(text, validate=True)
    if base64.b64encode(signature).decode() != text:
        raise ValueError("signature not in canonical form")
    return entry, given, signature


def _without_torn_end(content: bytes) -> bytes:
    """The content without a last line that was cut off; one that only lacks its newline is kept."""
    complete = content[: content.rfind(b"\n") + 1]
    try:
        json.loads(content[len(complete) :])
    except (ValueError, RecursionError):
        return complete
    return content


def _mend(path: Path, key: Ed25519PrivateKey) -> None:
    """End a file at a newline: complete a whole last line that lacks it, drop one that was cut off.

    What is kept is verified first, and a last line that is whole but wrong is left for `verify` to name:
    only what a kill can leave is ever dropped.
    """
    content = path.read_bytes()
    whole = _without_torn_end(content)
    if whole == content and content.endswith(b"\n"):
        return
    _verify(whole, path.name, key.public_key(), "")
    with path.open("r+b") as stream:
        stream.truncate(len(whole))
        stream.seek(0, os.SEEK_END)
        if whole and not whole.endswith(b"\n"):
            stream.write(b"\n")
        stream.flush()
        os.fsync(stream.fileno())
