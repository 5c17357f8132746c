"""Runs of a small installation as a stranger gets them: evidence files and the ledger's export."""

from __future__ import annotations

import base64
import copy
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privacy import accounting
from privacy.accounting import RenyiFilter
from storage.chain import GENESIS, canonical, make_link
from storage.evidence import Evidence, public_key

DAY = date(2030, 1, 1)
BLOCK, HOLDOUT = "reviews/2030", "reviews/2030/holdout"
CAPS = {BLOCK: 60.0, HOLDOUT: 6.0}
DELTA = 1e-5
LEDGER = "1f" * 16


@dataclass
class Journal:
    """Links of a ledger's journal, and its export."""

    key: Ed25519PrivateKey
    links: list[tuple[str, dict]] = field(default_factory=list)

    def add(self, kind, /, **body):
        self.links.append((kind, body))

    def write(self, path, *, key=None):
        """Chain, sign and write the export."""
        previous, lines = GENESIS, []
        for sequence, (kind, body) in enumerate(self.links):
            link = make_link(sequence=sequence, kind=kind, day=DAY, previous=previous, body=body)
            previous = link["hash"]
            lines.append(canonical(link))
        end = {"kind": "export", "ledger": LEDGER, "entries": len(lines), "head": previous,
               "at": DAY.isoformat(), "public_key": public_key(self.key)}  # fmt: skip
        signature = (key or self.key).sign(canonical(end).encode())
        lines.append(canonical({**end, "signature": base64.b64encode(signature).decode()}))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def find(self, kind, /, **wanted):
        """Body of the first such link."""
        return next(
            b for k, b in self.links if k == kind and wanted.items() <= {**b, "": 0}.items()
        )


@dataclass
class Installation:
    """What a stranger holds."""

    folder: Path
    key: Ed25519PrivateKey
    public: str
    journal: Journal
    runs: list[list[tuple[str, dict]]]

    def write(self, number):
        """Write a run's evidence anew; returns its file."""
        path = self.folder / f"run-{number}" / "evidence.jsonl"
        path.unlink(missing_ok=True)
        evidence = Evidence(path, self.key)
        for kind, body in self.runs[number]:
            evidence.append(kind, body)
        return path

    def files(self):
        """Every run's file."""
        return [self.write(n) for n in range(len(self.runs))]

    def export(self):
        """The ledger's export, anchoring what the files hold now."""
        return self.journal.write(self.folder / "ledger.jsonl")


@pytest.fixture(scope="session", autouse=True)
def _prices_are_remembered():
    """The same few mechanisms are priced for every test: the real price, computed once each."""
    from privacy import plan as plans

    known = {}
    price = plans.pld_epsilon

    def remembered(event, *, delta):
        key = (repr(event), delta)
        if key not in known:
            known[key] = price(event, delta=delta)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "pld_epsilon", remembered)
        yield


@pytest.fixture(scope="session")
def plan(make_plan):
    return make_plan(epsilon=50.0)


@pytest.fixture(scope="session")
def evaluation():
    event = accounting.gaussian_event(noise_multiplier=5.0)
    return {
        "event": accounting.event_to_json(event),
        "epsilon": accounting.rdp_epsilon(event, delta=DELTA),
    }


@pytest.fixture(scope="session")
def _installation(plan, evaluation, tmp_path_factory):
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    journal = Journal(key)
    journal.add("ledger", id=LEDGER)
    for name, cap in CAPS.items():
        gate = RenyiFilter(cap, DELTA)
        journal.add(
            "block", name=name, dataset="reviews", role="train", unit="record", claim="every record",
            relation="add/remove", filter="renyi", orders=list(gate.orders), epsilon_cap=cap,
            delta=DELTA, caps=list(gate.caps()), declared_units=1000,
        )  # fmt: skip
    made = Installation(tmp_path_factory.mktemp("stranger"), key, public_key(key), journal, [])
    for number in range(2):
        made.runs.append(_run(plan, evaluation, 3 * number + 1))
        _book(made, number)
    return made


@pytest.fixture
def installation(_installation):
    """Two released runs, each with a model, an evaluation and a member audit; free to be changed."""
    copied = copy.copy(_installation)
    copied.runs = copy.deepcopy(_installation.runs)
    copied.journal = Journal(copied.key, copy.deepcopy(_installation.journal.links))
    return copied


def _run(plan, evaluation, row):
    value, epsilon = plan.to_json(), plan.pld_epsilon
    settled = {
        name: getattr(plan, name)
        for name in ("steps", "sample_rate", "noise_multiplier", "max_grad_norm", "divisor")
    }
    event = accounting.event_from_json(evaluation["event"])
    rows = [
        {
            "row": row,
            "purpose": "mixed model",
            "kind": "charged",
            "epsilon": epsilon,
            "delta": plan.delta,
            "mechanism": {"event": value["event"], "plan_digest": plan.digest},
            "costs": {BLOCK: list(RenyiFilter(CAPS[BLOCK], DELTA).costs(plan.event))},
        },
        {
            "row": row + 1,
            "purpose": "evaluation",
            "kind": "charged",
            "epsilon": evaluation["epsilon"],
            "delta": DELTA,
            "mechanism": {"event": evaluation["event"], "sensitivity": 2.0},
            "costs": {HOLDOUT: list(RenyiFilter(CAPS[HOLDOUT], DELTA).costs(event))},
        },
        {
            "row": row + 2,
            "purpose": "member audit",
            "kind": "restricted",
            "epsilon": 0.0,
            "delta": 0.0,
            "mechanism": {"kind": "none"},
            "costs": {BLOCK: [0] * 12, HOLDOUT: [0] * 12},
        },
    ]
    quoted = [{"purpose": r["purpose"], "block": BLOCK, "epsilon_pld": r["epsilon"]} for r in rows]
    matrices = {arm: [[5, 1], [2, 6]] for arm in ("mixed", "public_only")}
    start = {"row": row, "epoch": 1}
    return [
        ("plan", {"plans": {"mixed": value}, "blocks": [BLOCK], "digests": {"code": "aa" * 32}}),
        ("quote", {"rows": quoted}),
        ("reservation", {"ledger": LEDGER, "rows": rows}),
        ("audit", {"verdict": "pass", "strict": True, "lower_bound": 0.1, "claimed": epsilon}),
        ("start", {**start, "arm": "mixed", "noise_commitment": "ab" * 32}),
        ("steps", {**start, "first": 1, "last": 2, "root": "cd" * 32}),
        ("steps", {**start, "first": 3, "last": 4, "root": "ef" * 32}),
        ("settlement", {**start, "plan_digest": plan.digest, **settled}),
        ("start", {"row": row + 1, "epoch": 1, "arm": "holdout"}),
        ("settlement", {"row": row + 1, "epoch": 1, "sigma": 10.0, "confusion": matrices}),
        ("release", {"row": row, "model": "a-run"}),
        ("start", {"row": row + 2, "epoch": 1, "arm": "members"}),
        ("closed", {"released": True}),
    ]


def _book(made, number):
    """Tell the journal what the ledger would, with heads as the run's file has them."""
    path = made.write(number)
    from storage.evidence import verify

    found = verify(path, made.public)
    heads = {
        body["row"]: hash_
        for (kind, body), hash_ in zip(found.bodies, found.hashes, strict=True)
        if kind == "settlement"
    }
    rows = made.runs[number][2][1]["rows"]
    for row in rows:
        steps = 4 if row["purpose"] == "mixed model" else 0
        made.journal.add(
            "reservation", flow_run_id=f"flow-{number}", run_count=1, steps=steps, **row
        )
        _move(made, row["row"], 1, "RESERVED", 0, "")
    for row in rows:
        _move(made, row["row"], 2, "STARTED", 1, "")
        if row["purpose"] == "mixed model":
            made.journal.add("count", row=row["row"], epoch=1, steps=4)
        _move(made, row["row"], 3, "COMMITTED", 1, heads.get(row["row"], ""))


def _move(made, row, sequence, state, epoch, head):
    made.journal.add(
        "transition", row=row, sequence=sequence, state=state, epoch=epoch, note="", head=head
    )
