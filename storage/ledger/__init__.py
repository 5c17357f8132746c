"""The budget ledger: `Ledger` and the values it takes and gives."""

from storage.ledger.ledger import Ledger
from storage.ledger.records import Balance, Block, Charge, Entry, Head, Policy, ReadGrant

__all__ = ["Balance", "Block", "Charge", "Entry", "Head", "Ledger", "Policy", "ReadGrant"]
