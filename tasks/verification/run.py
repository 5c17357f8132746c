"""One run's evidence: whether its figures follow from its plan, and its claims from its mechanisms.

Chain, signatures and order are `storage.evidence`'s; here every plan is rebuilt (which computes its
event, divisor and PLD ε again), every reserved mechanism is priced again and compared with the ε that
was claimed for it, every settlement is compared with the plan that it names, and the scale of the
published confusion matrices with the sensitivity of as many matrices as were published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privacy import accounting
from privacy.mechanisms import confusion_sensitivity
from privacy.plan import Plan
from storage.evidence import EvidenceError, verify
from tasks.verification.report import Mismatch

SLACK = 1e-6
"""Digits to which ε is rounded up where it is claimed."""

_CONSTANTS = ("steps", "sample_rate", "noise_multiplier", "max_grad_norm", "divisor")


@dataclass
class CheckedRun:
    """A run whose evidence adds up.

    Attributes:
        name: Its file.
        head: Hash of its last entry.
        entries: How many there are.
        complete: It is closed, or ends at a head that was given.
        ledger: Id of the ledger that it reserved in; empty if it did not.
        rows: What it reserved, by ledger row.
        settlements: Hash of the newest settlement, by ledger row.
        older: Hashes of settlements that a later epoch took over.
        started: Hash of the newest start, by ledger row.
        released: Ledger row of the released model; None if nothing was released.
        lines: What was recomputed.
    """

    name: str
    head: str
    entries: int
    complete: bool
    ledger: str = ""
    rows: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    settlements: dict[int, str] = field(default_factory=dict)
    settled_at: dict[int, int] = field(default_factory=dict)
    older: set[str] = field(default_factory=set)
    released: int | None = None
    lines: list[str] = field(default_factory=list)
    plans: dict[str, Plan] = field(default_factory=dict)
    epsilons: dict[str, float] = field(default_factory=dict)
    quoted: dict[str, float] = field(default_factory=dict)
    blocks: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    started: dict[int, str] = field(default_factory=dict)


def check_run(path: Path, key: str, *, head: str = "") -> CheckedRun:
    """Verify one file and recompute what it claims.

    Raises:
        Mismatch: Naming the entry that fails, and how.
    """
    try:
        found = verify(path, key, head=head)
    except EvidenceError as error:
        raise Mismatch(str(error), entry=error.entry) from None
    run = CheckedRun(path.name, found.head, found.entries, found.complete)
    for number, (kind, body) in enumerate(found.bodies):
        check = _CHECKS.get(kind)
        if check is None:
            continue
        try:
            check(run, body, number, found.hashes[number])
        except Mismatch as error:
            raise Mismatch(
                f"entry {number} ({kind}) of {path.name} does not add up: {error}", entry=number
            ) from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Mismatch(
                f"entry {number} ({kind}) of {path.name} does not add up: "
                f"{type(error).__name__}: {error}",
                entry=number,
            ) from None
    for row in sorted(set(run.started) - set(run.settlements)):
        if run.rows[row]["kind"] == "charged":
            run.lines.append(f"row {row}: started and not settled; its full charge stands")
    return run


def _plan(run: CheckedRun, body: Mapping[str, Any], _number: int, _hash: str) -> None:
    for arm, value in body["plans"].items():
        plan = Plan.from_json(value)
        run.plans[plan.digest] = plan
        run.epsilons[plan.digest] = plan.pld_epsilon
        run.lines.append(
            f"plan {arm}: unit {plan.privacy_unit}, q={plan.sample_rate:g}, "
            f"σ={plan.noise_multiplier:g}, C={plan.max_grad_norm:g}, T={plan.steps}; "
            f"ε={run.epsilons[plan.digest]:.6g} at δ={plan.delta:g} recomputed (PLD)"
        )
    for name, value in body.get("digests", {}).items():
        run.lines.append(f"digest of its {name}: {value}")


def _quote(run: CheckedRun, body: Mapping[str, Any], _number: int, _hash: str) -> None:
    run.quoted |= {r["purpose"]: r["epsilon_pld"] for r in body["rows"]}


def _reservation(run: CheckedRun, body: Mapping[str, Any], _number: int, _hash: str) -> None:
    run.ledger = body["ledger"]
    for name, terms in sorted(body.get("blocks", {}).items()):
        if terms["claim"] != terms["unit"]:
            run.lines.append(f"block {name}: every ε is for each {terms['claim']}")
    for row in body["rows"]:
        run.rows[row["row"]] = row
        if row["kind"] == "restricted":
            if row["epsilon"] or any(any(c) for c in row["costs"].values()):
                raise Mismatch(f"row {row['row']} is restricted, and was charged")
            continue
        claimed, epsilon = row["epsilon"], _priced(run, row)
        if epsilon > claimed + SLACK:
            raise Mismatch(
                f"row {row['row']} ({row['purpose']}) costs ε={epsilon}, but ε={claimed} is claimed"
            )
        if row["purpose"] in run.quoted and abs(run.quoted[row["purpose"]] - claimed) > SLACK:
            raise Mismatch(
                f"row {row['row']} reserves ε={claimed}; ε={run.quoted[row['purpose']]} was quoted"
            )
        if not row["costs"] or not all(any(c) for c in row["costs"].values()):
            raise Mismatch(f"row {row['row']} is charged, and costs a block nothing")


def _priced(run: CheckedRun, row: Mapping[str, Any]) -> float:
    """ε of a reserved mechanism, computed again; PLD for a plan, Rényi for a release of counts."""
    mechanism = row["mechanism"]
    event = accounting.event_from_json(mechanism["event"])
    if "plan_digest" not in mechanism:
        return accounting.rdp_epsilon(event, delta=row["delta"])
    plan = _plan_of(run, mechanism["plan_digest"])
    if plan.event != event or plan.delta != row["delta"]:
        raise Mismatch(f"row {row['row']} reserves another mechanism than its plan's")
    return run.epsilons[plan.digest]


def _plan_of(run: CheckedRun, digest: str) -> Plan:
    if digest not in run.plans:
        raise Mismatch(f"plan {digest} is not in the file")
    return run.plans[digest]


def _audit(run: CheckedRun, body: Mapping[str, Any], _number: int, _hash: str) -> None:
    figures = ", ".join(
        f"{name.replace('_', ' ')} ε={body[name]:.3g}"
        for name in ("lower_bound", "claimed")
        if isinstance(body.get(name), int | float)
    )
    run.lines.append(
        f"audit of the mechanism: {body['verdict']}" + (f" ({figures})" * bool(figures))
    )


def _start(run: CheckedRun, body: Mapping[str, Any], _number: int, hash_: str) -> None:
    row = body["row"]
    run.started[row] = hash_
    if row in run.settlements:
        run.older.add(run.settlements.pop(row))
    trained = "plan_digest" in run.rows[row]["mechanism"]
    if trained and len(body.get("noise_commitment", "")) != 64:
        raise Mismatch(f"row {row} is started without a commitment to its noise")
    if body.get("sealed_to"):
        run.lines.append(
            f"row {row}: seeds sealed to {body['sealed_to']}: not private against the holder of the "
            "auditor's key"
        )
    if run.rows[row]["kind"] == "restricted":
        run.lines.append(f"row {row} ({run.rows[row]['purpose']}): restricted, publishes nothing")


def _steps(run: CheckedRun, body: Mapping[str, Any], _number: int, _hash: str) -> None:
    row = body["row"]
    plan = _plan_of(run, run.rows[row]["mechanism"]["plan_digest"])
    if body["last"] > plan.steps:
        raise Mismatch(f"step {body['last']} of row {row} lies beyond the plan's {plan.steps}")
    run.blocks.setdefault(row, []).append((body["epoch"], body["first"], body["last"]))


def _settlement(run: CheckedRun, body: Mapping[str, Any], number: int, hash_: str) -> None:
    row = body["row"]
    run.settlements[row], run.settled_at[row] = hash_, number
    mechanism = run.rows[row]["mechanism"]
    if "plan_digest" in mechanism:
        _trained(run, row, body, mechanism["plan_digest"])
        return
    matrices = body["confusion"]
    records = max(p.records_per_unit for p in run.plans.values())
    needed = confusion_sensitivity(arms=len(matrices), records_per_unit=records)
    sensitivity, noise = mechanism["sensitivity"], mechanism["event"]["noise_multiplier"]
    if sensitivity < needed * (1 - 1e-9):
        raise Mismatch(
            f"row {row} publishes {len(matrices)} matrices of sensitivity {needed:g}; {sensitivity:g} "
            "was reserved"
        )
    if body["sigma"] < noise * sensitivity * (1 - 1e-9):
        raise Mismatch(
            f"row {row} adds noise of σ={body['sigma']:g}; its mechanism says {noise * sensitivity:g}"
        )
    epsilon = _priced(run, run.rows[row])
    run.lines.append(
        f"row {row} ({run.rows[row]['purpose']}): ε={epsilon:.6g} at δ={run.rows[row]['delta']:g} "
        f"recomputed (Rényi); ε={run.rows[row]['epsilon']:.6g} reserved; {len(matrices)} noised matrices"
    )


def _trained(run: CheckedRun, row: int, body: Mapping[str, Any], digest: str) -> None:
    if body["plan_digest"] != digest:
        raise Mismatch(f"row {row} settles plan {body['plan_digest']}, and reserved {digest}")
    plan = _plan_of(run, digest)
    for name in _CONSTANTS:
        if body[name] != getattr(plan, name):
            raise Mismatch(
                f"row {row} settles with {name} {body[name]}; its plan says {getattr(plan, name)}"
            )
    blocks = run.blocks.get(row, [])
    covered = (blocks[0][1], blocks[-1][2]) if blocks else (0, 0)
    if covered != (1, plan.steps):
        raise Mismatch(
            f"row {row} is settled, and its blocks cover steps {covered[0]} to {covered[1]} of "
            f"{plan.steps}"
        )
    run.lines.append(
        f"row {row} ({run.rows[row]['purpose']}): ε={run.epsilons[digest]:.6g} at δ={plan.delta:g} "
        f"recomputed (PLD); ε={run.rows[row]['epsilon']:.6g} reserved; {len(blocks)} blocks of steps"
    )


def _refusal(run: CheckedRun, body: Mapping[str, Any], _number: int, _hash: str) -> None:
    run.lines.append(f"refused at {body['at']}: {body['reason']}")


def _release(run: CheckedRun, body: Mapping[str, Any], _number: int, _hash: str) -> None:
    run.released = body["row"]
    digest = f", weights SHA-256 {body['weights']}" if "weights" in body else ""
    run.lines.append(f"released: model of row {body['row']}{digest}")


def _closed(run: CheckedRun, body: Mapping[str, Any], _number: int, _hash: str) -> None:
    if "released" in body and body["released"] != (run.released is not None):
        raise Mismatch("it says another thing about the release than the file holds")


_CHECKS = {
    "plan": _plan,
    "quote": _quote,
    "reservation": _reservation,
    "audit": _audit,
    "start": _start,
    "steps": _steps,
    "settlement": _settlement,
    "refusal": _refusal,
    "release": _release,
    "closed": _closed,
}
