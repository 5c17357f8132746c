"""What may enter the ledger: proper numbers in range, and texts that every database can hold.

A NaN or infinite cap would be an open gate, and a subnormal number rounds to nothing somewhere; both
are refused here, before a transaction writes them for good.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Mapping
from datetime import timedelta

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from storage.chain import canonical
from storage.errors import LedgerError
from storage.ledger import rules
from storage.ledger.records import Block, Charge, Policy

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
    if block.filter not in rules.FILTERS:
        raise LedgerError(
            f"filter {of} must be one of {', '.join(rules.FILTERS)}; got {block.filter!r}. {remedy}"
        )
    _check_orders(of, block)
    size = rules.components(block.filter, block.orders)
    # A cap may be negative: at a small order the conversion alone can cost more than epsilon_cap.
    if not _are_whole(block.caps) or len(block.caps) != size:
        raise LedgerError(
            f"caps {of} must be {size} whole units, one for each component of the filter; got "
            f"{block.caps!r}. Use the filter's own caps."
        )


def _check_orders(of: str, block: Block) -> None:
    orders = block.orders
    if block.filter == "agdp":
        if orders != ():
            raise LedgerError(
                f"orders {of} must be empty for filter agdp; got {orders!r}. Use the filter's own."
            )
        return
    if not _are_whole(orders) or not 1 <= len(orders) <= MOST_ORDERS or min(orders) < 2:
        raise LedgerError(
            f"orders {of} must be 1 to {MOST_ORDERS} whole numbers >= 2; got {orders!r}. Use the "
            "filter's own orders."
        )
    if len(set(orders)) != len(orders):
        raise LedgerError(f"orders {of} must differ; got {orders!r}. Name each order once.")


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
        gate = known[name].filter
        size = rules.components(gate, known[name].orders)
        fits = _are_whole(costs) and len(costs) == size
        if not fits or (
            any(costs) if charge.kind != "charged" else not rules.least_cost(gate, costs)
        ):
            least = ">= 1 and >= 0" if gate == "agdp" else ">= 1"
            raise LedgerError(
                f"charge {charge.purpose!r} on {name} must be {size} whole units, {least} if charged, "
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


def check_lifetime(ttl: timedelta) -> None:
    """Refuse a lifetime that is over before it begins.

    Raises:
        LedgerError: It is not above zero.
    """
    if ttl <= timedelta(0):
        raise LedgerError(f"ttl must be above zero; got {ttl}. Give the run time to start.")


def check_raise(policy: Policy, block: Block) -> None:
    """Refuse a raised cap that is none, or that nobody signed.

    Raises:
        LedgerError: Naming what does not fit.
    """
    of = f"of block {block.name}"
    remedy = "Raise it with `dpmix ledger raise-cap`."
    _check_real(f"epsilon_cap {of}", policy.epsilon_cap, below=math.inf, zero=False, remedy=remedy)
    if policy.epsilon_cap <= block.epsilon_cap:
        raise LedgerError(
            f"epsilon_cap {of} can only be raised: it is {block.epsilon_cap:g}, got "
            f"{policy.epsilon_cap:g}. A cap is never lowered; retire the block instead."
        )
    higher = len(policy.caps) == len(block.caps) and all(
        new >= old for new, old in zip(policy.caps, block.caps, strict=True)
    )
    if not _are_whole(policy.caps) or not higher:
        raise LedgerError(
            f"caps {of} must be {len(block.caps)} whole units, none below {block.caps!r}; got "
            f"{policy.caps!r}. Use the filter's own caps."
        )
    stated = {k: policy.statement.get(k) for k in ("block", "from", "to")}
    if stated != {"block": block.name, "from": block.epsilon_cap, "to": policy.epsilon_cap}:
        raise LedgerError(
            f"the statement {of} must name the block and the caps from {block.epsilon_cap:g} to "
            f"{policy.epsilon_cap:g}; got {stated!r}. {remedy}"
        )
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(policy.public_key))
        key.verify(
            base64.b64decode(policy.signature, validate=True), canonical(policy.statement).encode()
        )
    except (InvalidSignature, ValueError):
        raise LedgerError(
            f"the signature {of} does not fit its statement and key {policy.public_key!r}. {remedy}"
        ) from None


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
