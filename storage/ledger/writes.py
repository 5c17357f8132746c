"""Inserts into the ledger; every function takes the connection of the transaction it is part of."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

import sqlalchemy as sa

from storage.ledger import schema
from storage.ledger.records import RESERVED, Charge


def reservation(
    connection: sa.Connection,
    charge: Charge,
    *,
    flow_run_id: str,
    run_count: int,
    now: datetime,
    ttl: timedelta,
) -> int:
    """Write a reservation with its debits and its first transition; returns its row."""
    result = connection.execute(
        schema.reservations.insert().values(
            flow_run_id=flow_run_id,
            run_count=run_count,
            purpose=charge.purpose,
            kind=charge.kind,
            mechanism=dict(charge.mechanism),
            epsilon=charge.epsilon,
            delta=charge.delta,
            steps=charge.steps,
            created_at=now,
            expires_at=now + ttl,
        )
    )
    row = int(result.inserted_primary_key[0])  # type: ignore[index]
    for name, costs in sorted(charge.costs.items()):
        connection.execute(schema.debits.insert().values(row=row, block=name, costs=list(costs)))
    transition(connection, row, 1, RESERVED, epoch=0, deadline=now + ttl, at=now)
    return row


def transition(
    connection: sa.Connection,
    row: int,
    sequence: int,
    state: str,
    *,
    epoch: int,
    deadline: datetime,
    at: datetime,
    token: str = "",
    note: str = "",
) -> None:
    """Append a transition. (row, sequence) is the primary key: of two racing ones, one fails."""
    connection.execute(
        schema.transitions.insert().values(
            row=row,
            sequence=sequence,
            state=state,
            epoch=epoch,
            token_hash=hash_token(token),
            deadline=deadline,
            note=note,
            at=at,
        )
    )


def hash_token(token: str) -> str:
    """What the ledger keeps of a token; '' for none."""
    return hashlib.sha256(token.encode()).hexdigest() if token else ""
