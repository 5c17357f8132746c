"""What goes into the ledger and comes out of it: frozen values, no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

RESERVED, STARTED, COMMITTED = "RESERVED", "STARTED", "COMMITTED"
RELEASED, SPENT = "RELEASED", "SPENT"
CHARGED = (STARTED, COMMITTED, SPENT)
"""States in which a row's full charge counts as spent."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of data and its frozen terms; see `storage.schema.blocks`."""

    name: str
    dataset: str
    role: str
    unit: str
    claim: str
    relation: str
    filter: str
    orders: tuple[int, ...]
    epsilon_cap: float
    delta: float
    caps: tuple[int, ...]
    declared_units: int


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What a run asks for.

    Attributes:
        purpose: Unique within one run, for example ``mixed model``.
        kind: ``charged``, or ``restricted`` for a read whose results never leave the trust zone.
        mechanism: Serialised event with unit, relation and accountant.
        epsilon: ε of this mechanism alone (PLD where there is one), shown, not summed.
        delta: δ of that ε.
        steps: Steps that a counter will cover; 0 for a single release.
        costs: Block name → units by order. Restricted charges cost nothing.
    """

    purpose: str
    kind: str = "charged"
    mechanism: Mapping[str, Any]
    epsilon: float
    delta: float
    steps: int
    costs: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class ReadGrant:
    """Permission of one epoch of one started row to read its blocks. Sensitive: keep in memory."""

    row: int
    epoch: int
    kind: str
    blocks: tuple[str, ...]
    token: str


@dataclass(frozen=True)
class Balance:
    """One block's position, in units by order."""

    block: Block
    spent: tuple[int, ...]
    reserved: tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """One reservation as history shows it."""

    row: int
    purpose: str
    kind: str
    state: str
    epoch: int
    blocks: tuple[str, ...]
    epsilon: float
    delta: float
    steps: int
    steps_counted: int
    mechanism: Mapping[str, Any]
    created_at: datetime
    changed_at: datetime
    flow_run_id: str
