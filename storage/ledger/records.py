"""What goes into the ledger and comes out of it: frozen values, no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

RESERVED, STARTED, COMMITTED = "RESERVED", "STARTED", "COMMITTED"
RELEASED, SPENT = "RELEASED", "SPENT"
CHARGED = (STARTED, COMMITTED, SPENT)
"""States in which a row's full charge counts as spent."""

RETIRE, RAISE_CAP = "retire", "raise_cap"


@dataclass(frozen=True)
class Head:
    """A link of the journal, by its number and its hash; −1 stands before the first."""

    sequence: int
    hash: str


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of data and its frozen terms.

    Attributes:
        name: Unique in the ledger.
        dataset: Whose data it is.
        role: ``train`` or ``holdout``.
        unit: ``record`` or ``person``.
        claim: What its ε speaks of, for example ``(person, period)``.
        relation: Neighbouring relation.
        filter: ``agdp`` (every component must fit its cap) or ``renyi`` (some order must).
        orders: The Rényi filter's orders; none for ``agdp``.
        epsilon_cap: ε_total.
        delta: δ of the claim.
        caps: Whole units, one for each component of the filter.
        declared_units: n, declared.
    """

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
        costs: Block name → units by component. Restricted charges cost nothing.
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


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A decision about a block that is no run: it retires, or its cap is raised.

    Attributes:
        block: The block's name.
        action: ``retire`` or ``raise_cap``.
        epsilon_cap: The cap from then on; 0 for a retirement.
        caps: The same in units; empty for a retirement.
        statement: What was signed; empty for a retirement.
        public_key: Hex Ed25519 key that signed it.
        signature: Base64, over the canonical form of `statement`.
        note: The reason.
        day: When, as a date in ISO form.
    """

    block: str
    action: str
    epsilon_cap: float = 0.0
    caps: tuple[int, ...] = ()
    statement: Mapping[str, Any] = field(default_factory=dict)
    public_key: str = ""
    signature: str = ""
    note: str = ""
    day: str = ""


@dataclass(frozen=True)
class Balance:
    """One block's position, in units by component.

    Attributes:
        block: The block with its caps as they stand now, after raises.
        spent: Charged for good.
        reserved: Waiting for a start.
        opened_cap: ε_total as the block was opened.
        retired: Whether nothing more is admitted.
        raised: Every raise of its cap, oldest first.
    """

    block: Block
    spent: tuple[int, ...]
    reserved: tuple[int, ...]
    opened_cap: float
    retired: bool = False
    raised: tuple[Policy, ...] = ()


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
    run_count: int
