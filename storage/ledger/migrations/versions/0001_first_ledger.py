"""First ledger: blocks, reservations, debits, transitions, counters; append-only by trigger."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Every key by which SQLite's REPLACE would delete a row. The hidden rowid is one more; only
# reservations have it, as their "row".
_KEYS: dict[str, list[tuple[str, ...]]] = {
    "ledger": [("id",)],
    "blocks": [("name",)],
    "reservations": [("row",), ("flow_run_id", "run_count", "purpose")],
    "debits": [("row", "block")],
    "transitions": [("row", "sequence")],
    "counters": [("row", "epoch", "steps")],
}


def _time(name: str) -> "sa.Column[Any]":
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False)


def upgrade() -> None:
    """Create the tables and forbid updates and deletes in the database itself."""
    op.create_table(
        "ledger",
        sa.Column("id", sa.String(64), primary_key=True),
        _time("created_at"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "blocks",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("dataset", sa.String(100), nullable=False),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("unit", sa.String(20), nullable=False),
        sa.Column("claim", sa.Text, nullable=False),
        sa.Column("relation", sa.Text, nullable=False),
        sa.Column("filter", sa.String(20), nullable=False),
        sa.Column("orders", sa.JSON, nullable=False),
        sa.Column("epsilon_cap", sa.Float, nullable=False),
        sa.Column("delta", sa.Float, nullable=False),
        sa.Column("caps", sa.JSON, nullable=False),
        sa.Column("declared_units", sa.Integer, nullable=False),
        _time("opened_at"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_blocks_dataset", "blocks", ["dataset"])
    op.create_table(
        "reservations",
        sa.Column("row", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("flow_run_id", sa.String(64), nullable=False),
        sa.Column("run_count", sa.Integer, nullable=False),
        sa.Column("purpose", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("mechanism", sa.JSON, nullable=False),
        sa.Column("epsilon", sa.Float, nullable=False),
        sa.Column("delta", sa.Float, nullable=False),
        sa.Column("steps", sa.Integer, nullable=False),
        _time("created_at"),
        _time("expires_at"),
        sa.UniqueConstraint("flow_run_id", "run_count", "purpose", name="uq_reservations_run"),
    )
    op.create_table(
        "debits",
        sa.Column("row", sa.Integer, sa.ForeignKey("reservations.row"), primary_key=True),
        sa.Column("block", sa.String(200), sa.ForeignKey("blocks.name"), primary_key=True),
        sa.Column("costs", sa.JSON, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "transitions",
        sa.Column("row", sa.Integer, sa.ForeignKey("reservations.row"), primary_key=True),
        sa.Column("sequence", sa.Integer, primary_key=True),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        _time("deadline"),
        sa.Column("note", sa.Text, nullable=False),
        _time("at"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "counters",
        sa.Column("row", sa.Integer, sa.ForeignKey("reservations.row"), primary_key=True),
        sa.Column("epoch", sa.Integer, primary_key=True),
        sa.Column("steps", sa.Integer, primary_key=True),
        _time("at"),
        sqlite_with_rowid=False,
    )
    for table, keys in _KEYS.items():
        _forbid_changes(table, keys)


def _forbid_changes(table: str, keys: list[tuple[str, ...]]) -> None:
    message = f"{table} is append-only"
    if op.get_bind().dialect.name == "sqlite":
        for action in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{action.lower()} BEFORE {action} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
            )
        # REPLACE deletes without firing a delete trigger: an insert on an existing key is refused.
        same = " OR ".join(
            "(" + " AND ".join(f'"{column}" = NEW."{column}"' for column in key) + ")"
            for key in keys
        )
        op.execute(
            f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} "
            f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {same}) "
            f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
        )
        return
    op.execute(
        f"CREATE FUNCTION {table}_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{message}'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION {table}_append_only()"
    )
    op.execute(
        f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_append_only()"
    )


def downgrade() -> None:
    """History is never thrown away."""
    raise RuntimeError("a ledger is append-only: there is no way back from its first revision.")
