"""The ledger's export: the whole journal as a file, signed, for someone who may not see the database.

JSON Lines in canonical form: every link of the journal in order, then one closing line
{"kind": "export", "ledger", "entries", "head", "at", "public_key", "signature"}, whose signature is
Ed25519 over the canonical form of the other fields. It holds days, no times, no row of data, no secret.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from storage.chain import GENESIS, canonical
from storage.evidence import public_key
from storage.files import write_whole
from storage.ledger.ledger import Ledger

CLOSING = "export"


def write_export(ledger: Ledger, path: Path, key: Ed25519PrivateKey) -> dict[str, Any]:
    """Write the export; it appears under its name whole or not at all.

    Args:
        ledger: Whose journal.
        path: The file; one that is there is replaced.
        key: Signs the closing line.

    Returns:
        The closing line.
    """
    links = list(ledger.journal())
    closing: dict[str, Any] = {
        "kind": CLOSING,
        "ledger": ledger.id,
        "entries": len(links),
        "head": links[-1]["hash"] if links else GENESIS,
        "at": datetime.now(UTC).date().isoformat(),
        "public_key": public_key(key),
    }
    signature = base64.b64encode(key.sign(canonical(closing).encode())).decode()
    closing["signature"] = signature
    text = "".join(canonical(line) + "\n" for line in [*links, closing])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode())
    return closing
