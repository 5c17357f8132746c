"""`dpmix evidence verify`: chain, signatures, and ε recomputed from the plans, on any machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from privacy.errors import PrivacyError
from privacy.plan import Plan
from storage.evidence import EvidenceError, verify


@dataclass(frozen=True)
class Report:
    """What was verified, in lines for people."""

    lines: tuple[str, ...]
    complete: bool


def verify_run(path: Path, key: str, head: str) -> Report:
    """Verify a run's evidence and recompute the ε of every settled row.

    Raises:
        EvidenceError: Naming the entry that fails.
    """
    found = verify(path, key, head=head)
    lines = [f"{found.entries} entries, each chained and signed; head {found.head}"]
    plans: dict[str, Plan] = {}
    quoted: dict[int, float] = {}
    for number, (kind, body) in enumerate(found.bodies):
        try:
            if kind == "plan":
                for value in body["plans"].values():
                    plan = Plan.from_json(value)
                    plans[plan.digest] = plan
            elif kind == "reservation":
                quoted |= {r["row"]: r["epsilon"] for r in body["rows"]}
            elif kind == "settlement" and "plan_digest" in body:
                lines.append(_settlement(number, body, plans, quoted))
        except (KeyError, TypeError, PrivacyError) as error:
            raise EvidenceError(f"entry {number} ({kind}) does not add up: {error}.") from None
    if not found.complete:
        lines.append("INCOMPLETE: the file is not closed and no head was given (--head)")
    lines.append("evidence proves consistency, not that this very code ran")
    return Report(tuple(lines), found.complete)


def _settlement(
    number: int, body: dict[str, object], plans: dict[str, Plan], quoted: dict[int, float]
) -> str:
    row = int(str(body["row"]))
    plan = plans.get(str(body["plan_digest"]))
    if plan is None:
        raise EvidenceError(f"entry {number} settles row {row} for a plan that is not in the file.")
    for name in ("steps", "sample_rate", "noise_multiplier", "max_grad_norm", "divisor"):
        if body[name] != getattr(plan, name):
            raise EvidenceError(
                f"entry {number} settles row {row} with {name} {body[name]}; its plan says "
                f"{getattr(plan, name)}."
            )
    epsilon = plan.pld_epsilon
    if epsilon > quoted[row] + 1e-6:
        raise EvidenceError(
            f"entry {number}: row {row} cost ε={epsilon}, but ε={quoted[row]} was reserved."
        )
    return f"row {row}: ε={epsilon:.6g} at δ={plan.delta:g} recomputed (PLD), as reserved"
