"""The ledger's tables. Rows are only ever inserted; nothing is updated or deleted.

Money-like quantities are whole units (JSON lists of integers, one for each component of the block's
filter), so that no sum can drift. `journal` tells everything again as one hash chain, in the order in
which it happened; `positions` holds a block's running totals after each link that moved them, so that
admission reads one row, however long the history is. Both follow from the other tables, and
`Ledger.verify` shows that they do. The migrations in `storage/ledger/migrations` make these tables; a
test compares both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

ledger = Table(
    "ledger",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("created_at", DateTime(timezone=True), nullable=False),
)

blocks = Table(
    "blocks",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("dataset", String(100), nullable=False, index=True),
    Column("role", String(20), nullable=False),
    Column("unit", String(20), nullable=False),
    Column("claim", Text, nullable=False),
    Column("relation", Text, nullable=False),
    Column("filter", String(20), nullable=False),
    Column("orders", JSON, nullable=False),
    Column("epsilon_cap", Float, nullable=False),
    Column("delta", Float, nullable=False),
    Column("caps", JSON, nullable=False),
    Column("declared_units", Integer, nullable=False),
    Column("opened_at", DateTime(timezone=True), nullable=False),
)

reservations = Table(
    "reservations",
    metadata,
    Column("row", Integer, primary_key=True, autoincrement=True),
    Column("flow_run_id", String(64), nullable=False),
    Column("run_count", Integer, nullable=False),
    Column("purpose", String(100), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("mechanism", JSON, nullable=False),
    Column("epsilon", Float, nullable=False),
    Column("delta", Float, nullable=False),
    Column("steps", Integer, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    UniqueConstraint("flow_run_id", "run_count", "purpose", name="uq_reservations_run"),
)

debits = Table(
    "debits",
    metadata,
    Column("row", Integer, ForeignKey("reservations.row"), primary_key=True),
    Column("block", String(200), ForeignKey("blocks.name"), primary_key=True),
    Column("costs", JSON, nullable=False),
)

transitions = Table(
    "transitions",
    metadata,
    Column("row", Integer, ForeignKey("reservations.row"), primary_key=True),
    Column("sequence", Integer, primary_key=True),
    Column("state", String(20), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("token_hash", String(64), nullable=False),
    Column("deadline", DateTime(timezone=True), nullable=False),
    Column("note", Text, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("head", String(64), nullable=False, server_default=""),
    Index("ix_transitions_deadline", "deadline"),
)

counters = Table(
    "counters",
    metadata,
    Column("row", Integer, ForeignKey("reservations.row"), primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("steps", Integer, primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False),
)

journal = Table(
    "journal",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(20), nullable=False),
    Column("day", String(10), nullable=False),
    Column("previous", String(64), nullable=False),
    Column("body", Text, nullable=False),
    Column("hash", String(64), nullable=False),
)

positions = Table(
    "positions",
    metadata,
    Column("block", String(200), ForeignKey("blocks.name"), primary_key=True),
    Column("sequence", Integer, ForeignKey("journal.sequence"), primary_key=True),
    Column("spent", JSON, nullable=False),
    Column("reserved", JSON, nullable=False),
)

policies = Table(
    "policies",
    metadata,
    Column(
        "sequence", Integer, ForeignKey("journal.sequence"), primary_key=True, autoincrement=False
    ),
    Column("block", String(200), ForeignKey("blocks.name"), nullable=False, index=True),
    Column("action", String(20), nullable=False),
    Column("epsilon_cap", Float, nullable=False),
    Column("caps", JSON, nullable=False),
    Column("statement", JSON, nullable=False),
    Column("public_key", String(64), nullable=False),
    Column("signature", String(100), nullable=False),
    Column("note", Text, nullable=False),
)

sweeps = Table(
    "sweeps",
    metadata,
    Column("until", DateTime(timezone=True), primary_key=True),
)

APPEND_ONLY = (
    "ledger", "blocks", "reservations", "debits", "transitions", "counters",
    "journal", "positions", "policies", "sweeps",
)  # fmt: skip

# Built once: building a statement takes longer than running it.
_INSERTS = {table: table.insert() for table in metadata.sorted_tables}


def insert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, of which there is at least one; a single one without the batch's extra messages."""
    connection.execute(_INSERTS[table], rows[0] if len(rows) == 1 else list(rows))
