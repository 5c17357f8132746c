"""Keys of the evidence: the installation signs with Ed25519, an auditor receives with X25519.

Private halves are PEM files of mode 0600, made under another name and linked into place, so that two
processes that start together end with one key. Public halves are 64 hex digits, fit for publication.
"""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from storage.evidence.errors import EvidenceError


def signing_key(path: Path) -> Ed25519PrivateKey:
    """The installation's signing key, made at first use with mode 0600."""
    if path.is_file():
        key = _load(path)
        if not isinstance(key, Ed25519PrivateKey):
            raise EvidenceError(f"{path} holds no Ed25519 key. Move it away to make a new one.")
        return key
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = Ed25519PrivateKey.generate()
    try:
        _keep(path, fresh)
    except FileExistsError:  # another process was first: its key is the one
        return signing_key(path)
    return fresh


def new_auditor_key(path: Path) -> X25519PrivateKey:
    """An auditor's key pair; the private half goes to `path`, which must not exist.

    Raises:
        EvidenceError: `path` exists: what was sealed to that key could never be opened again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = X25519PrivateKey.generate()
    try:
        _keep(path, fresh)
    except FileExistsError:
        raise EvidenceError(
            f"{path} exists, and a key is never overwritten: what was sealed to it could not be opened "
            "again. Name another folder."
        ) from None
    return fresh


def auditor_key(path: Path) -> X25519PrivateKey:
    """The auditor's private key from its PEM file.

    Raises:
        EvidenceError: The file is missing or holds no X25519 key.
    """
    key = _load(path) if path.is_file() else None
    if not isinstance(key, X25519PrivateKey):
        raise EvidenceError(f"{path} holds no X25519 key. Make one with `dpmix evidence keygen`.")
    return key


def public_key(key: Ed25519PrivateKey | X25519PrivateKey) -> str:
    """Hex of the public half, for publication."""
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        .hex()
    )


def read_public_key(given: str) -> str:
    """A public key as 64 hex digits, from such digits or from a file that holds them.

    Raises:
        EvidenceError: It is neither.
    """
    text = given.strip()
    path = Path(text)
    if len(text) != 64 and text and path.is_file():
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    if len(text) != 64 or not set(text) <= set("0123456789abcdef"):
        raise EvidenceError(
            f"public key must be 64 hex digits, or a file that holds them; got {given!r}. It lies "
            "beside the evidence as evidence.pub; compare it with what was published."
        )
    return text


def _load(path: Path) -> object:
    try:
        return serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        return None


def _keep(path: Path, key: Ed25519PrivateKey | X25519PrivateKey) -> None:
    """Write a private key for its owner alone; FileExistsError if `path` is taken."""
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    temporary = path.with_suffix(f".{os.getpid()}.part")
    temporary.touch(mode=0o600)
    temporary.write_bytes(pem)
    try:
        os.link(temporary, path)
    finally:
        temporary.unlink()
