"""The ledger's export, replayed: its chain, its states, every charge priced again, ε of every block.

The export is the ledger's whole journal, one link a line, with a signed last line that names the head.
Replaying it follows the same rules as the ledger: blocks and their caps, reservations that fit, states
that only go forward (no refund from STARTED on), epochs, counters, signed raises of a cap. Each charged
reservation is priced again from its own mechanism by its block's own filter, unit by unit.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from privacy import accounting
from storage.chain import GENESIS, LINK, canonical, digest
from tasks import rebooking
from tasks.verification.report import Mismatch

_NEXT = {
    "": ("RESERVED", "SPENT"),
    "RESERVED": ("STARTED", "RELEASED"),
    "STARTED": ("STARTED", "COMMITTED", "SPENT"),
}
_CHARGED = ("STARTED", "COMMITTED", "SPENT")


@dataclass
class Row:
    """A reservation as the journal tells it; `booked_from` names its evidence if it was booked again."""

    body: Mapping[str, Any]
    state: str = ""
    sequence: int = 0
    epoch: int = 0
    counted: int = 0
    head: str = ""
    reconciled: bool = False
    booked_from: str = ""


@dataclass
class BlockState:
    """A block as the journal tells it; `terms` holds its caps as they stand now."""

    terms: dict[str, Any]
    opened_cap: float
    spent: list[int]
    reserved: list[int]
    retired: bool = False
    policies: list[str] = field(default_factory=list)
    reconciled: bool = False


@dataclass
class Export:
    """A replayed export."""

    ledger: str = ""
    head: str = GENESIS
    entries: int = 0
    sequence: int = 0
    day: str = ""
    blocks: dict[str, BlockState] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)


def read_export(path: Path, key: str) -> Export:
    """Read, verify and replay an export.

    Args:
        path: The file.
        key: The installation's public key, 64 hex digits.

    Raises:
        Mismatch: Naming the link that fails, and how.
    """
    if not path.is_file():
        raise Mismatch(f"{path} does not exist")
    lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    export = Export()
    for number, line in enumerate(lines[:-1]):
        link = _parse(path, number, line)
        _follow(path, number, link, export)
        try:
            _REPLAY[link["kind"]](export, link["body"])
        except Mismatch as error:
            raise Mismatch(
                f"link {number} ({link['kind']}) of {path.name} does not add up: {error}",
                entry=number,
            ) from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Mismatch(
                f"link {number} ({link['kind']}) of {path.name} does not add up: "
                f"{type(error).__name__}: {error}",
                entry=number,
            ) from None
        export.head, export.entries = link["hash"], number + 1
        export.sequence = link["sequence"]
    _check_end(path, lines[-1], export, key)
    return export


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        link = json.loads(line)
        spelled = isinstance(link, dict) and canonical(link).encode() == line
    except (ValueError, RecursionError):
        spelled = False
    if not spelled:
        raise Mismatch(f"link {number} of {path.name} is not in canonical form", entry=number)
    return link


def _follow(path: Path, number: int, link: Mapping[str, Any], export: Export) -> None:
    of = f"link {number} of {path.name}"
    if set(link) != {*LINK, "hash"} or link["kind"] not in _REPLAY:
        raise Mismatch(f"{of} is no link of a ledger", entry=number)
    if not isinstance(link["body"], dict) or (number == 0) != (link["kind"] == "ledger"):
        raise Mismatch(f"{of} is no link of a ledger at this place", entry=number)
    # A journal counts its links from 0 or from 1; from there on without a gap.
    expected = (0, 1) if number == 0 else (export.sequence + 1,)
    if link["previous"] != export.head or link["sequence"] not in expected:
        raise Mismatch(f"{of} does not follow the one before", entry=number)
    if digest(link) != link["hash"]:
        raise Mismatch(f"{of} was changed: its hash differs", entry=number)


def _check_end(path: Path, line: bytes, export: Export, key: str) -> None:
    end = _parse(path, export.entries, line)
    of = f"last line of {path.name}"
    if end.get("kind") != "export":
        raise Mismatch(f"{of} is no end of an export: it was cut off", entry=export.entries)
    signature = end.pop("signature", "")
    if end.get("public_key") != key:
        raise Mismatch(f"{of} names another public key", entry=export.entries)
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(
            base64.b64decode(signature, validate=True), canonical(end).encode()
        )
    except (InvalidSignature, ValueError, TypeError):
        raise Mismatch(f"{of} is not signed by this key", entry=export.entries) from None
    if (end["ledger"], end["entries"], end["head"]) != (
        export.ledger,
        export.entries,
        export.head,
    ):
        raise Mismatch(f"{of} names another ledger or head than its links", entry=export.entries)
    export.day = str(end.get("at", ""))


def gate(terms: Mapping[str, Any]) -> Any:
    """The filter of a block."""
    return _gate(
        terms["filter"], terms["epsilon_cap"], terms["delta"], tuple(terms["orders"]) or None
    )


@lru_cache(maxsize=1024)
def _gate(name: str, epsilon: float, delta: float, orders: tuple[int, ...] | None) -> Any:
    return accounting.make_filter(name, epsilon=epsilon, delta=delta, orders=orders)


@lru_cache(maxsize=4096)
def _costs(
    name: str, epsilon: float, delta: float, orders: tuple[int, ...] | None, event: str
) -> tuple[int, ...]:
    """Units of an event; remembered, since scheduled runs repeat their mechanism."""
    priced = accounting.event_from_json(json.loads(event))
    return tuple(_gate(name, epsilon, delta, orders).costs(priced))


def epsilon_of(block: BlockState) -> float:
    """ε that the spent part of a block claims."""
    return float(gate(block.terms).epsilon_of(block.spent))


def _ledger(export: Export, body: Mapping[str, Any]) -> None:
    export.ledger = body["id"]


def _block(export: Export, body: Mapping[str, Any]) -> None:
    if body["name"] in export.blocks:
        raise Mismatch(f"block {body['name']} is opened twice")
    if list(gate(body).caps()) != list(body["caps"]):
        raise Mismatch(f"caps of block {body['name']} do not follow from its ε and δ")
    zero = [0] * len(body["caps"])
    export.blocks[body["name"]] = BlockState(dict(body), body["epsilon_cap"], zero, list(zero))


def _reservation(export: Export, body: Mapping[str, Any]) -> None:
    row = body["row"]
    if row in export.rows:
        raise Mismatch(f"row {row} is reserved twice")
    for name, costs in body["costs"].items():
        block = export.blocks[name]
        if body["kind"] == "restricted":
            if any(costs):
                raise Mismatch(f"row {row} is restricted, and was charged")
            continue
        terms = block.terms
        event = canonical(body["mechanism"]["event"])
        wanted = _costs(
            terms["filter"], block.opened_cap, terms["delta"], tuple(terms["orders"]) or None, event
        )
        if list(costs) != list(wanted):
            raise Mismatch(
                f"row {row} is charged {list(costs)} units on {name}; its mechanism costs {list(wanted)}"
            )
    export.rows[row] = Row(body)


def _transition(export: Export, body: Mapping[str, Any]) -> None:
    row = export.rows[body["row"]]
    state = body["state"]
    if state not in _NEXT.get(row.state, ()) or body["sequence"] != row.sequence + 1:
        raise Mismatch(f"row {body['row']} goes from {row.state or 'nothing'} to {state}")
    if body["epoch"] != row.epoch + (state == "STARTED"):
        raise Mismatch(f"row {body['row']} goes to epoch {body['epoch']} from {row.epoch}")
    if body["head"] and state != "COMMITTED":
        raise Mismatch(f"row {body['row']} anchors a head and is {state}")
    row.reconciled = row.reconciled or (state == "SPENT" and not row.state)
    if state == "SPENT":
        row.booked_from = rebooking.entry_of(body["note"])
    for name, costs in row.body["costs"].items():
        _move(export.blocks[name], row, state, costs, name)
    row.state, row.sequence, row.epoch = state, body["sequence"], body["epoch"]
    row.head = body["head"]


def _move(block: BlockState, row: Row, state: str, costs: list[int], name: str) -> None:
    """Book a row's costs where its next state puts them; a new one must fit."""
    if not row.state:
        used = [s + r for s, r in zip(block.spent, block.reserved, strict=True)]
        block.reconciled = block.reconciled or row.reconciled
        if block.retired and not row.reconciled:
            raise Mismatch(f"block {name} is retired, and row {row.body['row']} was reserved on it")
        if any(costs) and not row.reconciled and not gate(block.terms).admits(used, costs):
            raise Mismatch(f"row {row.body['row']} was admitted over the cap of block {name}")
    for states, total in ((_CHARGED, block.spent), (("RESERVED",), block.reserved)):
        sign = (state in states) - (row.state in states)
        for k, cost in enumerate(costs):
            total[k] += sign * cost


def _count(export: Export, body: Mapping[str, Any]) -> None:
    row = export.rows[body["row"]]
    if row.state != "STARTED" or body["epoch"] != row.epoch:
        raise Mismatch(f"row {body['row']} counts in epoch {body['epoch']}, and is {row.state}")
    if not row.counted < body["steps"] <= row.body["steps"]:
        raise Mismatch(
            f"row {body['row']} counts {body['steps']} steps behind {row.counted}; "
            f"{row.body['steps']} are paid for"
        )
    row.counted = body["steps"]


def _policy(export: Export, body: Mapping[str, Any]) -> None:
    block = export.blocks[body["block"]]
    if block.retired:
        raise Mismatch(f"block {body['block']} is retired for good")
    if body["action"] == "retire":
        block.retired = True
        block.policies.append(f"retired for good: {body['note'] or 'no reason given'}")
        return
    statement, before = body["statement"], block.terms["epsilon_cap"]
    said = (statement["ledger"], statement["block"], statement["from"], statement["to"])
    if said != (export.ledger, body["block"], before, body["epsilon_cap"]):
        raise Mismatch(f"the signed statement does not name this raise of {body['block']}")
    if body["action"] != "raise_cap" or body["epsilon_cap"] <= before:
        raise Mismatch(f"the cap of {body['block']} may only be raised; {before} stands")
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(body["public_key"])).verify(
            base64.b64decode(body["signature"], validate=True), canonical(statement).encode()
        )
    except InvalidSignature:
        raise Mismatch(f"the raise of {body['block']} is not signed by the key it names") from None
    block.terms |= {"epsilon_cap": body["epsilon_cap"], "caps": body["caps"]}
    if list(gate(block.terms).caps()) != list(body["caps"]):
        raise Mismatch(f"raised caps of {body['block']} do not follow from its ε and δ")
    block.policies.append(
        f"cap raised from ε={before:g} to ε={body['epsilon_cap']:g} on {statement['day']}, signed by "
        f"{body['public_key']}: {statement['reason']}"
    )


_REPLAY = {
    "ledger": _ledger,
    "block": _block,
    "reservation": _reservation,
    "transition": _transition,
    "count": _count,
    "policy": _policy,
}


def block_lines(export: Export) -> Iterator[tuple[str, dict[str, Any]]]:
    """A line and plain values for each block: cap, and spent ε computed again."""
    for name, block in export.blocks.items():
        spent = epsilon_of(block)
        cap, delta = block.terms["epsilon_cap"], block.terms["delta"]
        line = (
            f"block {name}: spent ε={spent:.6g} of cap ε={cap:g} at δ={delta:g} recomputed "
            f"({block.terms['filter']} filter; {block.terms['claim']})"
        )
        notes = list(block.policies)
        if block.reconciled:
            notes.append("holds rows booked at a reconciliation, over the cap if need be")
        yield (
            "; ".join([line, *notes]),
            {
                "block": name,
                "filter": block.terms["filter"],
                "cap": cap,
                "opened_cap": block.opened_cap,
                "delta": delta,
                "spent": spent,
                "units": list(block.spent),
                "retired": block.retired,
                "notes": notes,
            },
        )
