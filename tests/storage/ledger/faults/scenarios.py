"""Everything that a run asks of the ledger and its evidence, one call at a time.

A scenario is a list of named calls on one `Actor`. The reference run makes them undisturbed and takes a
`snapshot` after each; a victim makes the same calls and is struck down somewhere between. Whatever is
found then must be one of two snapshots: the one before the call that was under way, or the one after it.
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from storage.chain import canonical
from storage.errors import BudgetRefused, LedgerError
from storage.evidence import Evidence, public_key, signing_key, verify
from storage.ledger import Block, Charge, Ledger

DAWN = datetime(2030, 1, 1, tzinfo=UTC)
CAPS = (100, 60)
STEPS = 12
BLOCKS = ("reviews/a", "reviews/b", "reviews/holdout")


def block(name: str, **changes: object) -> Block:
    values = {
        "name": name,
        "dataset": "reviews",
        "role": "train",
        "unit": "record",
        "claim": "record",
        "relation": "add/remove",
        "filter": "renyi",
        "orders": (2, 8),
        "epsilon_cap": 2.0,
        "delta": 1e-5,
        "caps": CAPS,
        "declared_units": 4000,
    }
    return Block(**{**values, **changes})


def charge(*blocks: str, costs: tuple[int, ...] = (10, 10), **changes: object) -> Charge:
    values = {
        "purpose": "model",
        "mechanism": {"kind": "gaussian", "noise_multiplier": 1.0},
        "epsilon": 1.0,
        "delta": 1e-5,
        "steps": STEPS,
        "costs": dict.fromkeys(blocks, costs),
    }
    return Charge(**{**values, **changes})


SECOND = block(BLOCKS[1], filter="agdp", orders=())
HOLDOUT = block(BLOCKS[2], role="holdout")


class Actor:
    """One process that runs a scenario.

    Args:
        url: The ledger.
        folder: Holds the evidence, the signing key and the log of what has been done.
        at_step: Called at each training step.
    """

    def __init__(self, url: str, folder: Path, at_step: Callable[[], None] = lambda: None) -> None:
        self.url, self.folder, self._at_step = url, folder, at_step
        self.time = DAWN
        self._log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._taken, self.head = 0, ""

    def run(self, name: str, after_each: Callable[[], None] = lambda: None) -> None:
        """Make every call of a scenario, and log each before it is made and after it returned."""
        for call in SCENARIOS[name]:
            self.say(f"call {call.__name__}")
            call(self)
            self.say("returned")
            after_each()

    def say(self, line: str) -> None:
        os.write(self._log, f"{line}\n".encode())

    def close(self) -> None:
        os.close(self._log)

    def open_ledger(self) -> None:
        self.ledger = Ledger(self.url, now=lambda: self.time)

    def open_first_block(self) -> None:
        self.ledger.open_block(block(BLOCKS[0]))

    def open_second_block(self) -> None:
        self.ledger.open_block(SECOND)

    def open_holdout(self) -> None:
        self.ledger.open_block(HOLDOUT)

    def open_evidence(self) -> None:
        self.evidence = Evidence(self.folder / "run.jsonl", signing_key(self.folder / "key.pem"))

    def write_plan(self) -> None:
        self.evidence.append("plan", {"plans": {}, "blocks": list(BLOCKS)})

    def write_quote(self) -> None:
        self.evidence.append("quote", {"rows": []})

    def reserve(self) -> None:
        self.rows = self.ledger.reserve(
            [charge(*BLOCKS[:2]), charge(BLOCKS[2], purpose="metrics", steps=0, costs=(5, 5))],
            flow_run_id="run",
            run_count=1,
        )

    def write_reservation(self) -> None:
        rows = [
            {
                "row": row,
                "purpose": "model",
                "kind": "charged",
                "epsilon": 1.0,
                "delta": 1e-5,
                "mechanism": {},
                "costs": {},
            }
            for row in self.rows
        ]
        self.evidence.append("reservation", {"ledger": self.ledger.id, "rows": rows})

    def write_audit(self) -> None:
        self.evidence.append("audit", {"verdict": "pass"})

    def start(self) -> None:
        self.grant = self.ledger.start(self.rows[0])

    def _holder(self) -> dict[str, int]:
        return {"row": self.grant.row, "epoch": self.grant.epoch}

    def write_start(self) -> None:
        self.evidence.append("start", {**self._holder(), "arm": "mixed"})

    def read(self) -> None:
        self.ledger.check_grant(self.grant, self.grant.blocks[0])

    def count(self) -> None:
        self.ledger.count(self.grant, self._taken + STEPS // 3)

    def take_steps(self) -> None:
        for _ in range(STEPS // 3):
            self._taken += 1
            self.say(f"step {self._taken}")
            self._at_step()

    def write_steps(self) -> None:
        last = self._taken
        covered = {"first": last - STEPS // 3 + 1, "last": last, "root": "0" * 64}
        self.evidence.append("steps", {**self._holder(), **covered})

    def resume(self) -> None:
        self.grant = self.ledger.resume(self.rows[0])

    def write_settlement(self) -> None:
        self.head = self.evidence.append("settlement", self._holder())

    def commit(self) -> None:
        self.ledger.commit(self.grant, head=self.head)

    def start_metrics(self) -> None:
        self.grant = self.ledger.start(self.rows[1])

    def write_release(self) -> None:
        self.evidence.append("release", {"row": self.rows[0]})

    def write_end(self) -> None:
        self.evidence.append("closed", {})

    def be_refused(self) -> None:
        with contextlib.suppress(BudgetRefused):
            self.ledger.reserve(
                [charge(BLOCKS[0]), charge(BLOCKS[1], purpose="dear", costs=(101, 101))],
                flow_run_id="greedy",
                run_count=1,
            )
            raise AssertionError("over the cap and admitted")

    def write_refusal(self) -> None:
        self.evidence.append("refusal", {"at": "reservation", "reason": "over the cap"})

    def reserve_briefly(self) -> None:
        self.rows = self.ledger.reserve(
            [charge(*BLOCKS), charge(BLOCKS[0], purpose="second")],
            flow_run_id="brief",
            run_count=1,
            ttl=timedelta(hours=1),
        )

    def start_briefly(self) -> None:
        self.grant = self.ledger.start(self.rows[0], ttl=timedelta(hours=1))

    def release(self) -> None:
        self.ledger.release(self.rows[1])

    def expire(self) -> None:
        self.time += timedelta(hours=2)
        self.ledger.expire()

    def raise_cap(self) -> None:
        key = signing_key(self.folder / "key.pem")
        statement = {
            "ledger": self.ledger.id,
            "block": BLOCKS[2],
            "from": 2.0,
            "to": 3.0,
            "reason": "agreed",
            "day": "2030-01-01",
        }
        signature = base64.b64encode(key.sign(canonical(statement).encode())).decode()
        self.ledger.raise_cap(
            BLOCKS[2],
            epsilon_cap=3.0,
            caps=(200, 160),
            statement=statement,
            public_key=public_key(key),
            signature=signature,
        )

    def open_old_block(self) -> None:
        self.ledger.open_block(block("reviews/old"))

    def retire(self) -> None:
        self.ledger.retire("reviews/old", note="exhausted")

    def reserve_audit(self) -> None:
        (row,) = self.ledger.reserve(
            [charge(BLOCKS[0], kind="restricted", costs=(0, 0), epsilon=0.0, delta=0.0)],
            flow_run_id="audit",
            run_count=1,
        )
        self.rows = [row]

    def start_audit(self) -> None:
        self.grant = self.ledger.start(self.rows[0], kind="restricted")


SCENARIOS: dict[str, list[Callable[[Actor], None]]] = {
    "opening": [
        Actor.open_ledger,
        Actor.open_first_block,
        Actor.open_second_block,
        Actor.open_holdout,
    ],
    "training": [
        Actor.open_ledger,
        Actor.open_evidence,
        Actor.write_plan,
        Actor.write_quote,
        Actor.reserve,
        Actor.write_reservation,
        Actor.write_audit,
        Actor.start,
        Actor.write_start,
        Actor.read,
        Actor.count,
        Actor.take_steps,
        Actor.write_steps,
        Actor.count,
        Actor.take_steps,
        Actor.write_steps,
        Actor.resume,
        Actor.write_start,
        Actor.count,
        Actor.take_steps,
        Actor.write_steps,
        Actor.write_settlement,
        Actor.commit,
        Actor.start_metrics,
        Actor.write_start,
        Actor.write_settlement,
        Actor.commit,
        Actor.write_release,
        Actor.write_end,
    ],
    "refusal": [
        Actor.open_ledger,
        Actor.open_evidence,
        Actor.write_plan,
        Actor.write_quote,
        Actor.be_refused,
        Actor.write_refusal,
        Actor.write_end,
    ],
    "deadlines": [
        Actor.open_ledger,
        Actor.reserve_briefly,
        Actor.start_briefly,
        Actor.release,
        Actor.expire,
    ],
    "policies": [Actor.open_ledger, Actor.raise_cap, Actor.open_old_block, Actor.retire],
    "waiting": [Actor.open_ledger, Actor.reserve_briefly, Actor.expire],
    "audit": [
        Actor.open_ledger,
        Actor.reserve_audit,
        Actor.start_audit,
        Actor.read,
        Actor.commit,
    ],
}


def snapshot(url: str, folder: Path) -> dict[str, object]:
    """All that the ledger and the evidence hold, read as the next process would read it."""
    ledger = Ledger(url, now=lambda: DAWN)
    ledger.verify()
    rows = [
        [e.purpose, e.kind, e.state, e.epoch, e.steps_counted, list(e.blocks), e.flow_run_id]
        for e in ledger.history()
    ]
    balances = [[b.block.name, list(b.spent), list(b.reserved)] for b in ledger.balances()]
    policies = [[p.block, p.action, p.epsilon_cap] for p in ledger.policies()]
    return {
        "balances": balances,
        "rows": rows,
        "policies": policies,
        "evidence": entries(folder),
    }


def entries(folder: Path) -> list[str]:
    """The kinds of the evidence's entries, after its writer has mended what a kill left."""
    path = folder / "run.jsonl"
    if not path.exists():
        return []
    key = signing_key(folder / "key.pem")
    Evidence(path, key)
    return [kind for kind, _body in verify(path, public_key(key)).bodies]


def recover(url: str, folder: Path) -> None:
    """What the next process does: it takes over what was started, and runs a run of its own.

    Raises:
        AssertionError: A counted step could be taken again.
    """
    ledger = Ledger(url, now=lambda: DAWN)
    for b in (block(BLOCKS[0]), SECOND, HOLDOUT):
        ledger.open_block(b)
    for entry in ledger.history():
        if entry.state != "STARTED":
            continue
        grant = ledger.resume(entry.row)
        if entry.steps_counted:
            with contextlib.suppress(LedgerError):
                ledger.count(grant, entry.steps_counted)
                raise AssertionError(f"step {entry.steps_counted} of {entry} counted twice")
        if entry.steps_counted < entry.steps:
            ledger.count(grant, entry.steps)
        ledger.commit(grant)
    (row,) = ledger.reserve([charge(*BLOCKS)], flow_run_id="next", run_count=1)
    ledger.commit(ledger.start(row))
    evidence = Evidence(folder / "run.jsonl", signing_key(folder / "key.pem"))
    if not entries(folder):
        evidence.append("plan", {"plans": {}, "blocks": list(BLOCKS)})
    evidence.append("closed", {})
    ledger.verify()
