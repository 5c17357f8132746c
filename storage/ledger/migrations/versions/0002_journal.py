"""The journal, running totals, policies and evidence heads; what stands is told again, in order."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

from storage.chain import GENESIS, canonical, make_link

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_KEYS: dict[str, tuple[str, ...]] = {
    "journal": ("sequence",),
    "positions": ("block", "sequence"),
    "policies": ("sequence",),
    "sweeps": ("until",),
}


def upgrade() -> None:
    """Add the tables, then write journal and totals for what happened before they were there."""
    op.add_column(
        "transitions", sa.Column("head", sa.String(64), nullable=False, server_default="")
    )
    op.create_index("ix_transitions_deadline", "transitions", ["deadline"])
    op.create_table(
        "journal",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("day", sa.String(10), nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sqlite_with_rowid=False,
    )
    link = sa.ForeignKey("journal.sequence")
    op.create_table(
        "positions",
        sa.Column("block", sa.String(200), sa.ForeignKey("blocks.name"), primary_key=True),
        sa.Column("sequence", sa.Integer, link, primary_key=True),
        sa.Column("spent", sa.JSON, nullable=False),
        sa.Column("reserved", sa.JSON, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "policies",
        sa.Column("sequence", sa.Integer, sa.ForeignKey("journal.sequence"), primary_key=True,
                  autoincrement=False),
        sa.Column("block", sa.String(200), sa.ForeignKey("blocks.name"), nullable=False),
        sa.Column("action", sa.String(20), nullable=False),
        sa.Column("epsilon_cap", sa.Float, nullable=False),
        sa.Column("caps", sa.JSON, nullable=False),
        sa.Column("statement", sa.JSON, nullable=False),
        sa.Column("public_key", sa.String(64), nullable=False),
        sa.Column("signature", sa.String(100), nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )  # fmt: skip
    op.create_index("ix_policies_block", "policies", ["block"])
    op.create_table(
        "sweeps",
        sa.Column("until", sa.DateTime(timezone=True), primary_key=True),
        sqlite_with_rowid=False,
    )
    _tell_again(op.get_bind())
    for table, key in _KEYS.items():
        _forbid_changes(table, key)


def _tell_again(bind: Any) -> None:
    """Write the journal and the totals of everything that revision 0001 holds."""
    previous = GENESIS
    positions: dict[str, Any] = {}
    for sequence, (kind, day, body, moves) in enumerate(_history(bind)):
        link = make_link(sequence=sequence, kind=kind, day=day, previous=previous, body=body)
        previous = link["hash"]
        values = {"s": sequence, "k": kind, "d": link["at"], "p": link["previous"],
                  "b": canonical(link["body"]), "h": previous}  # fmt: skip
        bind.execute(
            sa.text(
                "INSERT INTO journal (sequence, kind, day, previous, body, hash) "
                "VALUES (:s, :k, :d, :p, :b, :h)"
            ),
            values,
        )
        for block, spent, reserved in moves:
            zero = [0] * len(spent)
            was = positions.get(block, (zero, zero))
            positions[block] = now = (
                [a + b for a, b in zip(was[0], spent, strict=True)],
                [a + b for a, b in zip(was[1], reserved, strict=True)],
            )
            bind.execute(
                sa.text("INSERT INTO positions VALUES (:b, :s, :x, :y)"),
                {"b": block, "s": sequence, "x": json.dumps(now[0]), "y": json.dumps(now[1])},
            )


def _history(bind: Any) -> list[tuple[str, Any, dict[str, Any], list[Any]]]:
    """(kind, day, body, [(block, spent, reserved)]) of each link, in the order of what happened."""
    costs: dict[int, dict[str, list[int]]] = {}
    for debit in _read(bind, "debits"):
        costs.setdefault(debit["row"], {})[debit["block"]] = debit["costs"]
    found: list[tuple[Any, Any, str, dict[str, Any], list[Any]]] = []
    found += [
        (first["created_at"], (0,), "ledger", {"id": first["id"]}, [])
        for first in _read(bind, "ledger")
    ]
    opened = {}
    for block in _read(bind, "blocks"):
        at = opened[block["name"]] = block.pop("opened_at")
        found.append((at, (1, block["name"]), "block", block, []))
    steps, counters = _by_row(bind, "transitions"), _by_row(bind, "counters")
    for row in _read(bind, "reservations"):
        number, at = row["row"], row.pop("created_at")
        del row["expires_at"]
        # Clocks may have run backwards; a row's links follow each other, and its blocks, all the same.
        at = max([at, *(opened[name] for name in costs[number])])
        found.append((at, (2, number, 0), "reservation", {**row, "costs": costs[number]}, []))
        before, order = None, 0
        for step in sorted(steps[number], key=lambda t: t["sequence"]):
            at, order = max(at, step["at"]), order + 1
            body = {k: step[k] for k in ("row", "sequence", "state", "epoch", "note")}
            paid = row["kind"] == "charged"
            moves = _moves(before, step["state"], costs[number]) if paid else []
            before = step["state"]
            found.append((at, (2, number, order), "transition", {**body, "head": ""}, moves))
            if before != "STARTED":
                continue
            mine = [c for c in counters.get(number, []) if c["epoch"] == step["epoch"]]
            for counter in sorted(mine, key=lambda c: c["steps"]):
                at, order = max(at, counter["at"]), order + 1
                body = {k: counter[k] for k in ("row", "epoch", "steps")}
                found.append((at, (2, number, order), "count", body, []))
    found.sort(key=lambda link: (link[0], link[1]))
    return [(kind, at.date(), body, moves) for at, _order, kind, body, moves in found]


def _by_row(bind: Any, table: str) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for line in _read(bind, table):
        found.setdefault(line["row"], []).append(line)
    return found


def _moves(before: str | None, state: str, costs: dict[str, list[int]]) -> list[Any]:
    signs = {
        (None, "RESERVED"): (0, 1),
        ("RESERVED", "STARTED"): (1, -1),
        ("RESERVED", "RELEASED"): (0, -1),
    }.get((before, state))  # fmt: skip
    if signs is None:
        return []
    return [
        (name, [signs[0] * u for u in units], [signs[1] * u for u in units])
        for name, units in sorted(costs.items())
    ]


def _read(bind: Any, table: str) -> list[dict[str, Any]]:
    columns: dict[str, Any] = {
        "orders": sa.JSON, "caps": sa.JSON, "costs": sa.JSON, "mechanism": sa.JSON,
        "created_at": sa.DateTime(timezone=True), "expires_at": sa.DateTime(timezone=True),
        "opened_at": sa.DateTime(timezone=True), "at": sa.DateTime(timezone=True),
    }  # fmt: skip
    names = [c["name"] for c in sa.inspect(bind).get_columns(table)]
    selected: Any = sa.select(
        *(sa.column(n, columns[n]) if n in columns else sa.column(n) for n in names)
    ).select_from(sa.table(table))
    return [
        {k: _utc(v) if isinstance(v, datetime) else v for k, v in row.items()}
        for row in bind.execute(selected).mappings()
    ]


def _utc(value: datetime) -> datetime:
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _forbid_changes(table: str, key: tuple[str, ...]) -> None:
    message = f"{table} is append-only"
    if op.get_bind().dialect.name == "sqlite":
        for action in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{action.lower()} BEFORE {action} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
            )
        same = " AND ".join(f'"{column}" = NEW."{column}"' for column in key)
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
    raise RuntimeError("a ledger is append-only: there is no way back from its journal.")
