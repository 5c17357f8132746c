"""What may enter the ledger: proper numbers in range, and texts that every database can hold.

A NaN or infinite cap would be an open gate, and a subnormal number rounds to nothing somewhere; both
are refused here, before a transaction writes them for good.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping

from storage.errors import LedgerError
from storage.ledger.records import Block, Charge

MOST_ORDERS = 12
MOST_WHOLE = 2**31 - 1
"""The largest value of an INTEGER column on PostgreSQL."""

_BLOCK_TEXTS = {"name": 200, "dataset": 100, "role": 20, "unit": 20, "filter": 20}


def check_block(block: Block) -> None:
    """Refuse a block whose terms are no proper numbers or texts.

    Raises:
        LedgerError: Naming the term, its value and its bound.
    """
    for name, most in _BLOCK_TEXTS.items():
        _check_text(f"{name} of block {block.name!r}", getattr(block, name), most)
    of = f"of block {block.name}"
    remedy = "Set it when the dataset is registered."
    for name, below in (("epsilon_cap", math.inf), ("delta", 1.0)):
        _check_real(f"{name} {of}", getattr(block, name), below=below, zero=False, remedy=remedy)
    check_whole(f"declared_units {of}", block.declared_units, least=1, remedy=remedy)
    orders, caps = block.orders, block.caps
    if not _are_whole(orders) or not 1 <= len(orders) <= MOST_ORDERS or min(orders) < 2:
        raise LedgerError(
            f"orders {of} must be 1 to {MOST_ORDERS} whole numbers >= 2; got {orders!r}. Use the "
            "filter's own orders."
        )
    if len(set(orders)) != len(orders):
        raise LedgerError(f"orders {of} must differ; got {orders!r}. Name each order once.")
    # A cap may be negative: at a small order the conversion alone can cost more than epsilon_cap.
    if not _are_whole(caps) or len(caps) != len(orders):
        raise LedgerError(
            f"caps {of} must be {len(orders)} whole units, one for each order; got {caps!r}. Use the "
            "filter's own caps."
        )


def check_charge(charge: Charge, known: Mapping[str, Block]) -> None:
    """Refuse a charge with a number out of range, without whole costs, or on an unknown block.

    Raises:
        LedgerError: Naming the charge, the block and the costs.
    """
    of = f"of charge {charge.purpose!r}"
    _check_text(f"purpose {of}", charge.purpose, 100)
    if charge.kind not in ("charged", "restricted") or not charge.costs:
        raise LedgerError(
            f"charge {charge.purpose!r} must be charged or restricted and name a block; got kind "
            f"{charge.kind!r} on {sorted(charge.costs)}. Plan the run again."
        )
    remedy = "Plan the run again."
    _check_mechanism(of, charge.mechanism)
    for name, below in (("epsilon", math.inf), ("delta", 1.0)):
        _check_real(f"{name} {of}", getattr(charge, name), below=below, zero=True, remedy=remedy)
    check_whole(f"steps {of}", charge.steps, least=0, remedy=remedy)
    for name, costs in charge.costs.items():
        if name not in known:
            raise LedgerError(
                f"block {name} is not open in this ledger. Register its dataset first."
            )
        size = len(known[name].orders)
        fits = _are_whole(costs) and len(costs) == size
        if not fits or (min(costs) < 1 if charge.kind == "charged" else any(costs)):
            raise LedgerError(
                f"charge {charge.purpose!r} on {name} must be {size} whole units, >= 1 if charged, "
                f"0 if restricted; got {costs!r}. {remedy}"
            )


def _check_mechanism(of: str, mechanism: Mapping[str, object]) -> None:
    try:
        json.dumps(mechanism, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise LedgerError(
            f"mechanism {of} must be finite numbers, texts, lists and objects; {error}. Plan the run "
            "again."
        ) from None


def check_attempt(flow_run_id: str, run_count: int) -> None:
    """Refuse a run key that a database could not hold.

    Raises:
        LedgerError: Naming the part, its value and its bound.
    """
    _check_text("flow_run_id", flow_run_id, 64)
    check_whole("run_count", run_count, least=0, remedy="Use the run's own attempt number.")


def check_whole(name: str, value: object, *, least: int, remedy: str) -> None:
    """Refuse what is no whole number from `least` to what an INTEGER column holds.

    Raises:
        LedgerError: Naming the number, its value and its bounds.
    """
    if not _is_whole(value) or not least <= value <= MOST_WHOLE:  # type: ignore[operator]
        raise LedgerError(
            f"{name} must be a whole number >= {least} and <= {MOST_WHOLE}; got {value!r}. {remedy}"
        )


def _check_real(name: str, value: object, *, below: float, zero: bool, remedy: str) -> None:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    # The comparisons are false for NaN; the largest float bounds whole numbers that no float holds.
    fits = real and (
        (zero and value == 0)
        or (sys.float_info.min <= value <= sys.float_info.max and value < below)  # type: ignore[operator]
    )
    if not fits:
        bound = "0, or a normal number" if zero else "a normal number"
        raise LedgerError(
            f"{name} must be {bound} > 0 and < {below:g}, finite and not subnormal; got {value!r}. "
            f"{remedy}"
        )


def _check_text(name: str, value: object, most: int) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise LedgerError(
            f"{name} must be a text of 1 to {most} characters; got {value!r}. Choose a shorter one."
        )


def _are_whole(values: object) -> bool:
    return isinstance(values, tuple | list) and all(_is_whole(v) for v in values)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
