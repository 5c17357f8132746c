"""Evidence: an append-only, hash-chained, signed file that another machine can verify.

`chain_file` writes and verifies files, `protocol` says which entry may follow which, `keys` holds the
keys, `sealing` closes a secret to an auditor.
"""

from storage.evidence.chain_file import Evidence, Verification, verify, verify_prefix
from storage.evidence.errors import EvidenceError
from storage.evidence.keys import public_key, signing_key
from storage.evidence.protocol import CLOSED

__all__ = [
    "CLOSED",
    "Evidence",
    "EvidenceError",
    "Verification",
    "public_key",
    "signing_key",
    "verify",
    "verify_prefix",
]
