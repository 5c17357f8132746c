"""Decisions about blocks that are no runs: retirement, and caps that were raised and signed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import date

import sqlalchemy as sa

from storage.ledger import journal, schema
from storage.ledger.records import RAISE_CAP, RETIRE, Block, Policy

# Built once: building a query takes longer than running it.
_OF_BLOCKS = (
    sa.select(schema.policies, schema.journal.c.day)
    .join(schema.journal, schema.journal.c.sequence == schema.policies.c.sequence)
    .where(schema.policies.c.block.in_(sa.bindparam("names", expanding=True)))
    .order_by(schema.policies.c.sequence)
)


def of_blocks(connection: sa.Connection, names: Sequence[str]) -> dict[str, list[Policy]]:
    """Every block's policies, oldest first; blocks without one are left out."""
    found: dict[str, list[Policy]] = {}
    for row in connection.execute(_OF_BLOCKS, {"names": list(names)}):
        values = {k: v for k, v in row._mapping.items() if k != "sequence"}  # noqa: SLF001 - SQLAlchemy's
        policy = Policy(**{**values, "caps": tuple(row.caps)})
        found.setdefault(row.block, []).append(policy)
    return found


def append(connection: sa.Connection, policy: Policy, *, day: date) -> None:
    """Write a policy and its link."""
    body = {k: v for k, v in asdict(policy).items() if k != "day"}
    body["caps"] = list(policy.caps)
    (sequence,) = journal.append(connection, [("policy", body)], day=day)
    connection.execute(schema.policies.insert().values(sequence=sequence, **body))


def applied(block: Block, policies: Sequence[Policy]) -> Block:
    """The block with its caps as they stand after these policies."""
    raises = [p for p in policies if p.action == RAISE_CAP]
    if not raises:
        return block
    return replace(block, epsilon_cap=raises[-1].epsilon_cap, caps=raises[-1].caps)


def is_retired(policies: Sequence[Policy]) -> bool:
    """Whether one of these policies retires the block."""
    return any(p.action == RETIRE for p in policies)
