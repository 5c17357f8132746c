"""`dpmix ledger retire`, `raise-cap`: decisions about blocks that are no runs."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from storage.chain import canonical
from storage.errors import LedgerError
from storage.evidence import public_key, signing_key
from storage.ledger import Balance
from tasks.balances import gate_of
from tasks.installation import Installation


def balance_of(installation: Installation, block: str) -> Balance:
    """A block's position.

    Raises:
        LedgerError: There is no such block.
    """
    balances = {b.block.name: b for b in installation.ledger.balances()}
    if block not in balances:
        raise LedgerError(
            f"block {block!r} is not open; open are: {', '.join(balances) or 'none'}."
        )
    return balances[block]


def retire(block: str, *, reason: str) -> None:
    """Let a block admit nothing more, for good."""
    _require_reason(reason)
    installation = Installation.open()
    balance_of(installation, block)
    installation.ledger.retire(block, note=reason)


def raise_cap(block: str, *, epsilon_cap: float, reason: str, key: Path | None) -> dict[str, Any]:
    """Raise a block's cap by a statement that is signed and disclosed from then on.

    Args:
        block: Its name.
        epsilon_cap: The new ε_total, above the standing one.
        reason: Why.
        key: PEM file of the officer's Ed25519 key; None for the installation's.

    Returns:
        The signed statement.

    Raises:
        LedgerError: The block is not open or has retired, or the cap is not higher.
    """
    _require_reason(reason)
    installation = Installation.open()
    standing = balance_of(installation, block).block
    signer = _officer(key) if key else installation.key
    statement = {
        "ledger": installation.ledger.id,
        "block": block,
        "from": standing.epsilon_cap,
        "to": float(epsilon_cap),
        "reason": reason,
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    if not standing.epsilon_cap < epsilon_cap <= 1000:
        raise LedgerError(
            f"--epsilon-cap must be above {standing.epsilon_cap:g}, where block {block} stands, and at "
            f"most 1000; got {epsilon_cap:g}. A cap is never lowered: `dpmix ledger retire` ends it."
        )
    installation.ledger.raise_cap(
        block,
        epsilon_cap=float(epsilon_cap),
        caps=gate_of(replace(standing, epsilon_cap=float(epsilon_cap))).caps(),
        statement=statement,
        public_key=public_key(signer),
        signature=base64.b64encode(signer.sign(canonical(statement).encode())).decode(),
    )
    return statement


def _officer(path: Path) -> Ed25519PrivateKey:
    if not path.is_file():
        raise LedgerError(
            f"--key {path} does not exist. Give a PEM file of an Ed25519 private key."
        )
    return signing_key(path)


def _require_reason(reason: str) -> None:
    if not reason.strip():
        raise LedgerError("--reason must say why; got nothing. It stands in the journal for good.")
