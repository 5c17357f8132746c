"""The installation a task works in: settings, ledger, private store, signing key."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from storage.evidence import Evidence, signing_key
from storage.ledger import Ledger
from storage.private import PrivateStore
from storage.runs import RunFolder
from storage.settings import Settings


@dataclass(frozen=True)
class Installation:
    """What outlasts a process, opened.

    Attributes:
        settings: Where things are.
        ledger: The budget ledger.
        store: The private store, which asks that ledger about every read.
        key: Signs the evidence.
    """

    settings: Settings
    ledger: Ledger
    store: PrivateStore
    key: Ed25519PrivateKey

    @classmethod
    def open(cls) -> Installation:
        """Open what the environment names."""
        settings = Settings()
        ledger = Ledger(settings.ledger)
        store = PrivateStore(settings.private, ledger)
        return cls(settings, ledger, store, signing_key(settings.home / "keys" / "evidence.pem"))

    def evidence(self, run: RunFolder) -> Evidence:
        """The run's evidence file, verified and ready to be continued."""
        return Evidence(run.path / "evidence.jsonl", self.key)
