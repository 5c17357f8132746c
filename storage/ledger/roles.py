"""What a database role needs to use a ledger: it may look and add, and nothing else."""

from __future__ import annotations

import re

from storage.errors import LedgerError
from storage.ledger.database import Database
from storage.ledger.schema import APPEND_ONLY

_ROLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def migrate(url: str) -> None:
    """Make the ledger's tables, or bring them to the newest revision; for the database's owner.

    Raises:
        LedgerError: The database cannot be opened or changed by this role.
    """
    Database(url)


def grants(role: str) -> list[str]:
    """The SQL statements, for PostgreSQL, by which its owner lets `role` use the ledger.

    SELECT and INSERT alone: the role cannot update, delete, truncate or drop a trigger.

    Raises:
        LedgerError: The role's name is none.
    """
    if not _ROLE.fullmatch(role):
        raise LedgerError(
            f"role must be letters, digits or '_', at most 63, no digit first; got {role!r}."
        )
    tables = ", ".join(f'"{name}"' for name in APPEND_ONLY)
    return [
        f'GRANT USAGE ON SCHEMA public TO "{role}";',
        f'GRANT SELECT ON {tables}, alembic_version TO "{role}";',
        f'GRANT INSERT ON {tables} TO "{role}";',
        f'GRANT USAGE ON SEQUENCE reservations_row_seq TO "{role}";',
    ]
