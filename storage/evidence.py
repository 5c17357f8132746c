"""Evidence: an append-only, hash-chained, signed file that another machine can verify.

Each line is one JSON object in canonical form (sorted keys, no spaces, UTF-8):
{"body", "kind", "at", "sequence", "previous", "hash", "signature"}. `hash` is SHA-256 over the canonical
form of the first five, so the previous hash lies inside what is hashed; `signature` is Ed25519 over
`hash`. The head (the last hash) is anchored outside the file, in the ledger row that it settles.

What is guaranteed. Whoever holds the public key and a head can tell that no line was changed, dropped
or put in between, nor even respelled: a line must be the canonical form of what it says. A last line
that a kill cut off is dropped when its writer opens the file again. What is not: that the code which
wrote it ran as it says. A prefix of a chain verifies too, so a file that is not closed reads INCOMPLETE
unless the head is given. No seed, private row, un-noised number or realised batch size is ever written
here; digests of private data are left out altogether.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from storage.chain import GENESIS, canonical, digest, make_link
from storage.errors import StorageError
from storage.files import one_at_a_time

CLOSED = "closed"
_FIELDS = {"body", "kind", "at", "sequence", "previous", "hash", "signature"}


class EvidenceError(StorageError):
    """An evidence file cannot be written, or fails verification; names the entry."""


@dataclass(frozen=True)
class Verification:
    """What a verifier found.

    Attributes:
        entries: How many entries verified.
        head: Hash of the last one.
        complete: The file is closed, or ends at the head that was given.
        bodies: (kind, body) of each entry.
    """

    entries: int
    head: str
    complete: bool
    bodies: tuple[tuple[str, Mapping[str, Any]], ...]


class Evidence:
    """The evidence of one run.

    Args:
        path: The file; made if missing, verified and continued if not.
        key: Signing key; see `signing_key`.
    """

    def __init__(self, path: Path, key: Ed25519PrivateKey) -> None:
        self._path = path
        self._key = key
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = path.with_suffix(".lock")
        self._sequence, self.head, self._size = 0, GENESIS, 0
        with one_at_a_time(self._lock):
            self._catch_up()

    def _catch_up(self) -> None:
        """Verify and continue what another writer, or an earlier process, left."""
        if not self._path.exists() or self._path.stat().st_size == self._size:
            return
        _mend(self._path, self._key)
        seen = verify(self._path, public_key(self._key))
        self._sequence, self.head = seen.entries, seen.head
        self._size = self._path.stat().st_size

    def append(self, kind: str, body: Mapping[str, Any]) -> str:
        """Write one entry behind whatever stands, flushed to disk; returns the new head."""
        with one_at_a_time(self._lock):
            self._catch_up()
            return self._append(kind, body)

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


def signing_key(path: Path) -> Ed25519PrivateKey:
    """The installation's signing key, made at first use with mode 0600."""
    if path.is_file():
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        if not isinstance(key, Ed25519PrivateKey):
            raise EvidenceError(f"{path} holds no Ed25519 key. Move it away to make a new one.")
        return key
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = Ed25519PrivateKey.generate()
    pem = fresh.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    temporary = path.with_suffix(f".{os.getpid()}.part")
    temporary.touch(mode=0o600)
    temporary.write_bytes(pem)
    try:
        os.link(temporary, path)  # fails if another process was first: its key is the one
    except FileExistsError:
        return signing_key(path)
    finally:
        temporary.unlink()
    return fresh


def public_key(key: Ed25519PrivateKey) -> str:
    """Hex of the public half, for publication."""
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        .hex()
    )


def verify(path: Path, key: str, *, head: str = "") -> Verification:
    """Verify chain and signatures of a file; needs nothing but the file and the public key.

    Args:
        path: The evidence file.
        key: Public key, 64 hex digits.
        head: The head as published elsewhere; with it an open file can be complete.

    Raises:
        EvidenceError: Naming the first entry that fails, and how.
    """
    try:
        verifier = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
    except ValueError:
        raise EvidenceError(f"public key must be 64 hex digits; got {key!r}.") from None
    if not path.is_file():
        raise EvidenceError(f"{path} does not exist.")
    return _verify(path.read_bytes(), path.name, verifier, head)


def _verify(content: bytes, name: str, verifier: Ed25519PublicKey, head: str) -> Verification:
    previous, bodies = GENESIS, []
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    for sequence, line in enumerate(lines):
        try:
            entry, given, signature = _parse(line)
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            raise EvidenceError(f"entry {sequence} of {name} is not a signed entry.") from None
        if entry.get("sequence") != sequence or entry.get("previous") != previous:
            raise EvidenceError(f"entry {sequence} of {name} does not follow the one before.")
        if digest(entry) != given:
            raise EvidenceError(f"entry {sequence} of {name} was changed: its hash differs.")
        try:
            verifier.verify(signature, bytes.fromhex(given))
        except (InvalidSignature, ValueError):
            raise EvidenceError(f"entry {sequence} of {name} is not signed by this key.") from None
        previous = given
        bodies.append((str(entry["kind"]), entry["body"]))
    if head and head != previous:
        raise EvidenceError(f"{name} ends at {previous}, not at the head {head}.")
    complete = bool(head) or bool(bodies and bodies[-1][0] == CLOSED)
    return Verification(len(bodies), previous, complete, tuple(bodies))


def _parse(line: bytes) -> tuple[dict[str, Any], str, bytes]:
    """(what is hashed, hash, signature) of a line, which must be spelled as a writer spells it."""
    entry = json.loads(line)
    if set(entry) != _FIELDS or canonical(entry).encode() != line:
        raise ValueError("not in canonical form")
    given, text = entry.pop("hash"), entry.pop("signature")
    signature = base64.b64decode(text, validate=True)
    if base64.b64encode(signature).decode() != text:
        raise ValueError("signature not in canonical form")
    return entry, given, signature


def _mend(path: Path, key: Ed25519PrivateKey) -> None:
    """End a file at a newline: complete a whole last line that lacks it, drop one that was cut off.

    What comes before is verified first, and a last line that is whole but wrong is left for `verify`
    to name: only what a kill can leave is ever dropped.
    """
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole == content:
        return
    _verify(whole, path.name, key.public_key(), "")
    try:
        json.loads(content[len(whole) :])
        torn = False
    except (ValueError, RecursionError):
        torn = True
    if not torn:
        _verify(content, path.name, key.public_key(), "")
    with path.open("r+b") as stream:
        stream.truncate(len(whole) if torn else len(content))
        stream.seek(0, os.SEEK_END)
        stream.write(b"" if torn else b"\n")
        stream.flush()
        os.fsync(stream.fileno())
