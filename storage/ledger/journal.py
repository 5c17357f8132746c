"""The journal: everything the ledger has ever decided, as one hash chain in the order it happened.

A link is appended in the same transaction as the rows that it tells, under the ledger's write lock, so
the chain and the tables cannot part. Bodies hold what an auditor needs to add up every block again:
events, costs, states, epochs and policies. They hold days, never times (see `storage.chain`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import sqlalchemy as sa

from storage.chain import GENESIS, canonical, make_link
from storage.ledger import schema
from storage.ledger.records import Head

_BATCH = 1000
_HEAD = (
    sa.select(schema.journal.c.sequence, schema.journal.c.hash)
    .order_by(schema.journal.c.sequence.desc())
    .limit(1)
)


def head(connection: sa.Connection) -> Head:
    """The newest link; sequence −1 and the hash before all of them if there is none."""
    found = connection.execute(_HEAD).first()
    return Head(found.sequence, found.hash) if found else Head(-1, GENESIS)


def contains(connection: sa.Connection, wanted: Head) -> bool:
    """Whether the journal holds that link."""
    found = connection.execute(
        sa.select(schema.journal.c.hash).where(schema.journal.c.sequence == wanted.sequence)
    ).scalar()
    return found == wanted.hash


def append(
    connection: sa.Connection,
    entries: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    day: date,
    after: Head | None = None,
) -> list[int]:
    """Append links (kind, body); returns their sequence numbers.

    Args:
        connection: A transaction that holds the write lock.
        entries: What happened, in order.
        day: When.
        after: The newest link, where the caller has read it already.
    """
    newest = after or head(connection)
    rows: list[dict[str, Any]] = []
    for kind, body in entries:
        link = make_link(
            sequence=newest.sequence + 1, kind=kind, day=day, previous=newest.hash, body=body
        )
        newest = Head(link["sequence"], link["hash"])
        rows.append(
            {
                "sequence": link["sequence"],
                "kind": kind,
                "day": link["at"],
                "previous": link["previous"],
                "body": canonical(link["body"]),
                "hash": link["hash"],
            }
        )
    schema.insert(connection, schema.journal, rows)
    return [row["sequence"] for row in rows]


def links(connection: sa.Connection) -> Iterator[dict[str, Any]]:
    """Every link in order: {"sequence", "kind", "at", "previous", "body", "hash"}."""
    last = -1
    while rows := connection.execute(
        sa.select(schema.journal)
        .where(schema.journal.c.sequence > last)
        .order_by(schema.journal.c.sequence)
        .limit(_BATCH)
    ).all():
        for row in rows:
            yield {
                "sequence": row.sequence,
                "kind": row.kind,
                "at": row.day,
                "previous": row.previous,
                "body": json.loads(row.body),
                "hash": row.hash,
            }
        last = rows[-1].sequence
