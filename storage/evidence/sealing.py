"""Secrets closed to an auditor: who holds the private key can open them, the installation cannot.

A box holds an ephemeral X25519 public key, a nonce and a ChaCha20-Poly1305 ciphertext under a key that
HKDF-SHA-256 derives from the shared secret and both public keys. What it is for (run and ledger row) is
authenticated with it, so that a box moved to another place does not open. The ephemeral private half is
dropped at once. Boxes are kept in a store of their own (mode 0700), apart from evidence and ledger: a
box is worth the noise of a run to whoever holds the auditor's key, and nothing to anyone else.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from storage.evidence.errors import EvidenceError
from storage.evidence.keys import public_key
from storage.files import write_whole

_DOMAIN = b"dpmix sealed seed v1"


def seal(recipient: str, secret: bytes, *, purpose: str) -> dict[str, str]:
    """Close `secret` to the holder of a key.

    Args:
        recipient: Public X25519 key, 64 hex digits.
        secret: What only its holder may read.
        purpose: Authenticated with it; opening asks for the same.

    Raises:
        EvidenceError: `recipient` is no such key.
    """
    ephemeral = X25519PrivateKey.generate()
    try:
        shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(recipient)))
    except ValueError:
        raise EvidenceError(
            f"audit.replay_key must be an X25519 public key of 64 hex digits; got {recipient!r}. Make "
            "one with `dpmix evidence keygen`."
        ) from None
    sender, nonce = public_key(ephemeral), secrets.token_bytes(12)
    box = ChaCha20Poly1305(_key(shared, sender, recipient)).encrypt(nonce, secret, purpose.encode())
    return {"sealed_to": recipient, "ephemeral": sender, "nonce": nonce.hex(), "box": box.hex()}


def unseal(key: X25519PrivateKey, box: dict[str, str], *, purpose: str) -> bytes:
    """Open a box.

    Raises:
        EvidenceError: It was sealed to another key or for another purpose, or was changed.
    """
    try:
        shared = key.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(box["ephemeral"])))
        cipher = ChaCha20Poly1305(_key(shared, box["ephemeral"], public_key(key)))
        return cipher.decrypt(
            bytes.fromhex(box["nonce"]), bytes.fromhex(box["box"]), purpose.encode()
        )
    except (InvalidTag, ValueError, KeyError, TypeError):
        raise EvidenceError(
            f"the seed sealed for {purpose} does not open: it was sealed to another key "
            f"({box.get('sealed_to')}), for another run, or was changed."
        ) from None


class SealedStore:
    """Boxes by run and ledger row.

    Args:
        folder: The store; made with mode 0700 when something is first put there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, run_id: str, row: int, recipient: str, secret: bytes) -> None:
        """Seal `secret`; an earlier attempt's box of the same row stays beside it."""
        box = seal(recipient, secret, purpose=purpose_of(run_id, row))
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = self._folder / run_id
        target.mkdir(mode=0o700, exist_ok=True)
        # Named for nothing but run and row; the random part keeps attempts apart.
        path = target / f"{row}-{os.urandom(8).hex()}.json"
        write_whole(path, json.dumps(box).encode(), mode=0o600)

    def open(self, run_id: str, row: int, key: X25519PrivateKey) -> Iterator[bytes]:
        """The secrets of every attempt of a row.

        Raises:
            EvidenceError: There is none, or one does not open.
        """
        paths = sorted((self._folder / run_id).glob(f"{row}-*.json"))
        if not paths:
            raise EvidenceError(
                f"no sealed seed of row {row} of run {run_id} lies in {self._folder}: the run did not "
                "ask for a replay (audit.replay_key), or its boxes are kept elsewhere (DPMIX_SEALED)."
            )
        for path in paths:
            yield unseal(key, json.loads(path.read_text()), purpose=purpose_of(run_id, row))


def purpose_of(run_id: str, row: int) -> str:
    """What a box is for, as authenticated."""
    return f"run {run_id}, ledger row {row}"


def _key(shared: bytes, sender: str, recipient: str) -> bytes:
    info = _DOMAIN + bytes.fromhex(sender) + bytes.fromhex(recipient)
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(shared)
