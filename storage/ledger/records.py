"""What goes into the ledger and comes out of it: frozen values, no database."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from storage.errors import LedgerError

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


def check_block(block: Block) -> None:
    """Refuse a block whose terms are no proper numbers: a NaN cap would be an open gate.

    Raises:
        LedgerError: Naming the term, its value and its bound.
    """
    for name, value, below in (
        ("epsilon_cap", block.epsilon_cap, math.inf),
        ("delta", block.delta, 1.0),
    ):
        if not math.isfinite(value) or not sys.float_info.min <= value < below:
            raise LedgerError(
                f"{name} of block {block.name} must be finite, > 0 and < {below:g}; got {value}. "
                "Set it when the dataset is registered."
            )
    for name, units in (("orders", block.orders), ("caps", block.caps)):
        if not units or not all(_is_whole(u) for u in units):
            raise LedgerError(
                f"{name} of block {block.name} must be whole units; got {list(units)}."
            )
    if len(block.orders) != len(block.caps) or not _is_whole(block.declared_units):
        raise LedgerError(
            f"block {block.name} must have a cap for each of its {len(block.orders)} orders and a whole "
            f"declared_units; got {len(block.caps)} caps and {block.declared_units}."
        )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_charge(charge: Charge, known: Mapping[str, Block]) -> None:
    """Refuse a charge whose costs are no whole units, or that names an unknown block.

    Raises:
        LedgerError: Naming the charge, the block and the costs.
    """
    if charge.kind not in ("charged", "restricted") or not charge.costs:
        raise LedgerError(
            f"charge {charge.purpose!r} must be charged or restricted and name a block."
        )
    for name, value, below in (("epsilon", charge.epsilon, math.inf), ("delta", charge.delta, 1.0)):
        if not math.isfinite(value) or not 0 <= value < below:
            raise LedgerError(
                f"{name} of charge {charge.purpose!r} must be finite, >= 0 and < {below:g}; got {value}."
            )
    if not _is_whole(charge.steps) or charge.steps < 0:
        raise LedgerError(
            f"steps of charge {charge.purpose!r} must be a whole number >= 0; got {charge.steps}."
        )
    for name, costs in charge.costs.items():
        if name not in known:
            raise LedgerError(
                f"block {name} is not open in this ledger. Register its dataset first."
            )
        whole = all(_is_whole(c) for c in costs)
        fits = whole and len(costs) == len(known[name].orders)
        if not fits or (min(costs) < 1 if charge.kind == "charged" else any(costs)):
            raise LedgerError(
                f"charge {charge.purpose!r} on {name} must be {len(known[name].orders)} whole units, "
                f">= 1 if charged, 0 if restricted; got {list(costs)}."
            )
