"""The order in which a run's entries may follow one another, checked when written and when verified.

    plan → quote → refusal → closed
                 ↘ reservation → audit → refusal → closed
                                       ↘ for each row: start → steps … → settlement
                                         → release → closed

A plan may also be audited alone (no quote, nothing reserved). Rows go their ways side by side. A row is
started under rising epochs: a later start takes it over, and what an earlier epoch then writes is
refused here as in the ledger. Blocks of steps follow one another without a gap inside an epoch and
never go back across epochs, since steps that were counted are never taken again. A ``restricted`` row
(its results stay in the trust zone) is started and has neither steps nor a settlement. A failed audit,
and any refusal, ends a run: nothing but ``closed`` may follow. A row that was started and not settled
may stay so: its full charge stands in the ledger.

What this guarantees is order and form. Whether the figures follow from the plan is recomputed by
`tasks.verification`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from storage.evidence.errors import EvidenceError

PLAN, QUOTE, RESERVATION, REFUSAL, AUDIT = "plan", "quote", "reservation", "refusal", "audit"
START, STEPS, SETTLEMENT, RELEASE, CLOSED = "start", "steps", "settlement", "release", "closed"
ENDINGS = (REFUSAL, CLOSED)
"""Entries that a crash may repeat: written a second time, word for word, they change nothing."""

_TYPES: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    PLAN: {"plans": dict, "blocks": list},
    QUOTE: {"rows": list},
    RESERVATION: {"ledger": str, "rows": list},
    REFUSAL: {"at": str, "reason": str},
    AUDIT: {"verdict": str},
    START: {"row": int, "epoch": int, "arm": str},
    STEPS: {"row": int, "epoch": int, "first": int, "last": int, "root": str},
    SETTLEMENT: {"row": int, "epoch": int},
    RELEASE: {"row": int},
    CLOSED: {},
}
_RESERVED_ROW: Mapping[str, type | tuple[type, ...]] = {
    "row": int,
    "purpose": str,
    "kind": str,
    "epsilon": (int, float),
    "delta": (int, float),
    "mechanism": dict,
    "costs": dict,
}


@dataclass
class _Row:
    kind: str
    epoch: int = 0
    state: str = "reserved"
    last_step: int = 0
    first_of_epoch: bool = True


class Protocol:
    """Where a run stands, entry by entry. `check` refuses, `apply` moves on."""

    def __init__(self) -> None:
        self._stage = ""
        self._rows: dict[int, _Row] = {}
        self._refused_by_audit = False
        self._released = False
        self._last: tuple[str, Mapping[str, Any]] = ("", {})

    def repeats(self, kind: str, body: Mapping[str, Any]) -> bool:
        """Whether this is the newest entry over again, of a kind that a crash may repeat."""
        return kind in ENDINGS and self._last[0] == kind and dict(self._last[1]) == dict(body)

    def check(self, kind: str, body: Mapping[str, Any]) -> None:
        """Refuse an entry that may not stand here.

        Raises:
            EvidenceError: Saying what stands in its way.
        """
        if kind not in _TYPES:
            raise EvidenceError(f"{kind!r} is no kind of entry. Known: {', '.join(_TYPES)}")
        _check_types(kind, body, _TYPES[kind])
        if self._stage == CLOSED:
            raise EvidenceError(f"{kind} follows closed, behind which nothing may stand")
        if self._stage == REFUSAL and kind != CLOSED:
            raise EvidenceError(f"{kind} follows a refusal, behind which only closed may stand")
        getattr(self, f"_may_{kind}")(body)

    def apply(self, kind: str, body: Mapping[str, Any]) -> None:
        """Take a checked entry."""
        if kind == RESERVATION:
            self._rows = {r["row"]: _Row(r["kind"]) for r in body["rows"]}
        elif kind == AUDIT:
            strict = body.get("strict", True)
            self._refused_by_audit = body["verdict"] == "fail" or (
                body["verdict"] != "pass" and strict
            )
        elif kind == START:
            row = self._rows[body["row"]]
            row.epoch, row.state, row.first_of_epoch = body["epoch"], "started", True
        elif kind == STEPS:
            row = self._rows[body["row"]]
            row.last_step, row.first_of_epoch = body["last"], False
        elif kind == SETTLEMENT:
            self._rows[body["row"]].state = "settled"
        elif kind == RELEASE:
            self._released = True
        if kind in (PLAN, QUOTE, RESERVATION, AUDIT, REFUSAL, CLOSED):
            # An audit of a plan alone leaves it unreserved: no row can ever be started.
            self._stage = kind
        self._last = (kind, dict(body))

    def _require_stage(self, kind: str, *stages: str) -> None:
        if self._stage not in stages:
            raise EvidenceError(
                f"{kind} follows {self._stage or 'nothing'}; it may follow "
                f"{' or '.join(s or 'nothing' for s in stages)}"
            )

    def _may_plan(self, _body: Mapping[str, Any]) -> None:
        self._require_stage(PLAN, "")

    def _may_quote(self, _body: Mapping[str, Any]) -> None:
        self._require_stage(QUOTE, PLAN)

    def _may_reservation(self, body: Mapping[str, Any]) -> None:
        self._require_stage(RESERVATION, QUOTE)
        seen = set()
        for value in body["rows"]:
            if not isinstance(value, Mapping):
                raise EvidenceError("rows of the reservation must be objects")
            _check_types("row of the reservation", value, _RESERVED_ROW)
            if value["kind"] not in ("charged", "restricted") or value["row"] in seen:
                raise EvidenceError(
                    f"row {value['row']} is reserved twice, or neither charged nor restricted"
                )
            seen.add(value["row"])

    def _may_refusal(self, body: Mapping[str, Any]) -> None:
        where = body["at"]
        if where == "reservation":
            self._require_stage("refusal at the reservation", QUOTE)
        elif where == "audit":
            self._require_stage("refusal at the audit", AUDIT)
        elif where == "step":
            self._require_stage("refusal of a step", AUDIT)
            if not any(r.epoch for r in self._rows.values()):
                raise EvidenceError("a step is refused, and no row was started")
            if "row" in body:
                self._current("refusal", body)
        else:
            raise EvidenceError(f"refusal is at {where!r}; known: reservation, audit, step")

    def _may_audit(self, _body: Mapping[str, Any]) -> None:
        self._require_stage(AUDIT, PLAN, RESERVATION, AUDIT)
        if any(r.epoch for r in self._rows.values()):
            raise EvidenceError("audit follows a start: the audit comes before any private read")

    def _may_start(self, body: Mapping[str, Any]) -> None:
        self._require_stage(START, AUDIT)
        row = self._row(body)
        if self._refused_by_audit:
            raise EvidenceError(f"row {body['row']} is started, and the audit did not pass")
        if body["epoch"] <= row.epoch:
            raise EvidenceError(
                f"row {body['row']} is started under epoch {body['epoch']}, and epoch {row.epoch} was "
                "there before"
            )
        if self._released and row.kind == "charged":
            raise EvidenceError(
                f"row {body['row']} is charged and started behind the release; only a restricted row "
                "may be"
            )

    def _may_steps(self, body: Mapping[str, Any]) -> None:
        row = self._current(STEPS, body)
        first, last, root = body["first"], body["last"], body["root"]
        follows = first > row.last_step if row.first_of_epoch else first == row.last_step + 1
        if first < 1 or last < first or not follows:
            raise EvidenceError(
                f"steps {first} to {last} of row {body['row']} do not follow step {row.last_step}"
            )
        if len(root) != 64 or not set(root) <= set("0123456789abcdef"):
            raise EvidenceError(f"root of steps {first} to {last} is not 64 hex digits")

    def _may_settlement(self, body: Mapping[str, Any]) -> None:
        self._current(SETTLEMENT, body)

    def _may_release(self, body: Mapping[str, Any]) -> None:
        self._require_stage(RELEASE, AUDIT)
        if self._released:
            raise EvidenceError("release follows a release")
        if self._row(body).state != "settled":
            raise EvidenceError(f"row {body['row']} is released, and it was not settled")

    def _may_closed(self, _body: Mapping[str, Any]) -> None:
        self._require_stage(CLOSED, PLAN, QUOTE, RESERVATION, AUDIT, REFUSAL)

    def _row(self, body: Mapping[str, Any]) -> _Row:
        if body["row"] not in self._rows:
            raise EvidenceError(f"row {body['row']} was never reserved")
        return self._rows[body["row"]]

    def _current(self, kind: str, body: Mapping[str, Any]) -> _Row:
        row = self._row(body)
        if row.state != "started" or row.epoch != body.get("epoch"):
            raise EvidenceError(
                f"{kind} of row {body['row']} in epoch {body.get('epoch')}, but the row is {row.state} "
                f"in epoch {row.epoch}"
            )
        if row.kind == "restricted" and kind != REFUSAL:
            raise EvidenceError(
                f"{kind} of row {body['row']}, which is restricted and publishes nothing"
            )
        return row


def _check_types(
    of: str, body: Mapping[str, Any], types: Mapping[str, type | tuple[type, ...]]
) -> None:
    for name, wanted in types.items():
        value = body.get(name)
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise EvidenceError(f"{name} of {of} is missing or of another type; got {value!r}")
