"""Where plan and ledger meet: blocks are opened, runs quoted and reserved, refusals explained.

`privacy.accounting` prices, `storage.ledger` keeps; neither knows the other. Every ε printed here says
which one it is: the PLD ε of one run, or the ε of a block's own filter of what it has used.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import dp_accounting
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import MissingContextError

from privacy import accounting
from privacy.plan import RELATION, Plan, check_declared
from storage.errors import BlockRetired, BudgetRefused
from storage.evidence import CLOSED
from storage.ledger import Balance, Block, Charge, Ledger
from storage.private import Dataset
from storage.runs import RunFolder
from tasks import alarms
from tasks.balances import FILTERS, gate_of, position
from tasks.installation import Installation
from tasks.planning import EVALUATION, MEMBERS, MIXED, PRIVATE_ONLY, PURPOSES

_MOST_NOISE = 1e5
_CLOSE_ENOUGH = 1.001


def open_blocks(
    ledger: Ledger,
    dataset: Dataset,
    *,
    period: str,
    records: int,
    holdout_records: int,
    epsilon_cap: float,
    holdout_epsilon_cap: float,
    delta: float,
) -> None:
    """Open a period's training block and, if one is declared, its hold-out block.

    Args:
        ledger: Where.
        dataset: Whose.
        period: '' for the only block.
        records: Declared units of the training block.
        holdout_records: Declared units of the hold-out; 0 for none.
        epsilon_cap: ε_total of the training block.
        holdout_epsilon_cap: ε_total of the hold-out.
        delta: δ of both.

    Raises:
        PlanError: Too few declared units, δ ≥ 1/n, or a cap out of range.
        LedgerError: A block is open with other terms.
    """
    check_declared(units=records, delta=delta)
    terms = [(False, records, epsilon_cap)]
    if holdout_records:
        terms.append((True, holdout_records, holdout_epsilon_cap))
    for holdout, units, cap in terms:
        # Noised counts are discrete Gaussians, which have a Rényi bound and no loss distribution here.
        gate = accounting.make_filter(
            "renyi" if holdout else dataset.filter, epsilon=cap, delta=delta
        )
        ledger.open_block(
            Block(
                name=dataset.block(period, holdout=holdout),
                dataset=dataset.name,
                role="holdout" if holdout else "train",
                unit=dataset.unit,
                claim=dataset.claim(period),
                relation=RELATION,
                filter=gate.name,
                orders=gate.orders,
                epsilon_cap=float(cap),
                delta=float(delta),
                caps=gate.caps(),
                declared_units=units,
            )
        )


def charges_of(run: RunFolder, ledger: Ledger) -> list[Charge]:
    """What a planned run asks for, priced for each block's own filter."""
    planned = run.read("plan")
    blocks = {b.name: b for b in ledger.blocks(planned["dataset"])}
    charges = []
    for arm in (MIXED, PRIVATE_ONLY):
        if arm in planned["plans"]:
            plan = Plan.from_json(planned["plans"][arm])
            charges.append(_training_charge(PURPOSES[arm], plan, planned["blocks"], blocks))
    if planned["holdouts"]:
        evaluation = planned["evaluation"]
        event = accounting.event_from_json(evaluation["event"])
        charges.append(
            Charge(
                purpose=EVALUATION,
                mechanism=_mechanism(event, sensitivity=evaluation["sensitivity"]),
                epsilon=evaluation["epsilon"],
                delta=evaluation["delta"],
                steps=0,
                costs={n: gate_of(blocks[n]).costs(event) for n in planned["holdouts"]},
            )
        )
    if planned["sections"]["audit"]["members"] and planned["holdouts"]:
        names = [*planned["blocks"], *planned["holdouts"]]
        charges.append(
            Charge(
                purpose=MEMBERS,
                kind="restricted",
                mechanism={"kind": "none: results stay in the trust zone"},
                epsilon=0.0,
                delta=0.0,
                steps=0,
                costs={n: (0,) * len(blocks[n].caps) for n in names},
            )
        )
    return charges


def _training_charge(
    purpose: str, plan: Plan, names: Sequence[str], blocks: Mapping[str, Block]
) -> Charge:
    return Charge(
        purpose=purpose,
        mechanism=_mechanism(plan.event, plan_digest=plan.digest),
        epsilon=plan.pld_epsilon,
        delta=plan.delta,
        steps=plan.steps,
        costs={n: gate_of(blocks[n]).costs(plan.event) for n in names},
    )


def _mechanism(event: dp_accounting.DpEvent, **more: Any) -> dict[str, Any]:
    return {
        "event": accounting.event_to_json(event),
        "relation": RELATION,
        "accountant": accounting.ACCOUNTANT,
        **more,
    }


@task(persist_result=False, cache_policy=NO_CACHE, task_run_name="quote")
def quote(run_path: str) -> dict[str, Any]:
    """What the run will cost, by purpose and block, before it costs anything."""
    run, installation = RunFolder(run_path), Installation.open()
    balances = {b.block.name: b for b in installation.ledger.balances()}
    rows = []
    for charge in charges_of(run, installation.ledger):
        for name, costs in charge.costs.items():
            gate = gate_of(balances[name].block)
            rows.append(
                {
                    "purpose": charge.purpose,
                    "block": name,
                    "epsilon_pld": charge.epsilon,
                    "epsilon_filter": gate.epsilon_of(costs),
                    "kind": charge.kind,
                }
            )
    quoted = {"rows": rows, "before": {n: position(b) for n, b in balances.items()
                                       if n in {r["block"] for r in rows}}}  # fmt: skip
    run.write("quote", quoted)
    installation.evidence(run).append("quote", {"rows": rows})
    _artifact(rows)
    return {"rows": len(rows)}


def _artifact(rows: Sequence[Mapping[str, Any]]) -> None:
    from prefect.artifacts import create_markdown_artifact  # noqa: PLC0415 - needs a server

    lines = [
        "| purpose | block | ε of this run alone | ε it takes from the block |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {r['purpose']} | {r['block']} | {r['epsilon_pld']:.4g} | {r['epsilon_filter']:.4g} |"
        for r in rows
    ]
    try:
        create_markdown_artifact("\n".join(lines), key="quote", description="What this run costs")
    except MissingContextError:
        return


@task(persist_result=False, cache_policy=NO_CACHE, task_run_name="reserve", retries=0)
def reserve(run_path: str) -> None:
    """Reserve everything that the run will take, or nothing at all.

    A retry first gives back what the attempts before it never started: it pays for fresh noise itself.

    Raises:
        BudgetRefused: With a message that says what is missing and what would fit.
        BlockRetired: A block admits nothing more.
    """
    run, installation = RunFolder(run_path), Installation.open()
    planned = run.read("plan")
    flow_run_id, attempt = planned["key"]
    if attempt > 1:
        release_unstarted(flow_run_id)
    charges = charges_of(run, installation.ledger)
    debited = {name for charge in charges for name in charge.costs}
    before = _balances(installation.ledger, debited)
    try:
        rows = installation.ledger.reserve(charges, flow_run_id=flow_run_id, run_count=attempt)
    except BudgetRefused as refusal:
        refusal.args = (explain(refusal, installation.ledger, run),)
        _tell_refused(installation, run, refusal)
        raise
    except BlockRetired as refusal:
        _tell_refused(installation, run, refusal)
        raise
    alarms.sound(before, _balances(installation.ledger, debited))
    booked = {c.purpose: row for c, row in zip(charges, rows, strict=True)}
    # A restored backup may lack the blocks: with their terms here they can be opened again as they were.
    terms = {
        b.name: asdict(b)
        for b in installation.ledger.blocks(planned["dataset"])
        if b.name in debited
    }
    run.write("reservation", {"ledger": installation.ledger.id, "rows": booked})
    installation.evidence(run).append(
        "reservation",
        {
            "ledger": installation.ledger.id,
            "blocks": terms,
            "rows": [
                {
                    "row": row,
                    "purpose": charge.purpose,
                    "kind": charge.kind,
                    "epsilon": charge.epsilon,
                    "delta": charge.delta,
                    "mechanism": dict(charge.mechanism),
                    "costs": {n: list(c) for n, c in charge.costs.items()},
                }
                for charge, row in zip(charges, rows, strict=True)
            ],
        },
    )


def _balances(ledger: Ledger, names: Collection[str]) -> list[Balance]:
    return [b for b in ledger.balances() if b.block.name in names]


def _tell_refused(installation: Installation, run: RunFolder, refusal: Exception) -> None:
    evidence = installation.evidence(run)
    evidence.append("refusal", {"at": "reservation", "reason": str(refusal)})
    evidence.append(CLOSED, {"released": False})


def explain(refusal: BudgetRefused, ledger: Ledger, run: RunFolder) -> str:
    """The refusal in figures: block, cap, spent, reserved, asked, short by, and what would fit."""
    block = next(b.block for b in ledger.balances() if b.block.name == refusal.block)
    gate = gate_of(block)
    spent, used = gate.epsilon_of(refusal.spent), gate.epsilon_of(refusal.used)
    total = gate.epsilon_of([u + a for u, a in zip(refusal.used, refusal.asked, strict=True)])
    key = "evaluation.epsilon" if block.role == "holdout" else "training.epsilon"
    fits = largest_fitting(block, refusal.used, run)
    remedy = (
        f"The largest {key} that would still fit is {fits:.3g}."
        if fits
        else "Nothing fits any more: train and evaluate on a period with budget of its own."
    )
    return (
        f"refused: block {block.name} cannot pay. cap ε={block.epsilon_cap:.4g}, spent "
        f"{spent:.4g}, reserved {used - spent:.4g}, asked {gate.epsilon_of(refusal.asked):.4g}, "
        f"short by {total - block.epsilon_cap:.4g} (each an ε of the block's {FILTERS[block.filter]} "
        f"at δ={block.delta:g}; they compose, they do not add up). No private row was read. {remedy}"
    )


def largest_fitting(block: Block, used: Sequence[int], run: RunFolder) -> float:
    """Largest ε of the run's profile, rounded down to 3 digits, that this block would still admit.

    For a training block the PLD ε of each arm; for a hold-out the Rényi ε of the evaluation.
    """
    gate, planned = gate_of(block), run.read("plan")
    plans = [Plan.from_json(p) for p in planned["plans"].values()]
    delta = plans[0].delta
    holdout = block.role == "holdout"
    releases = 1 if holdout else len(plans)
    price = accounting.rdp_epsilon if holdout else accounting.pld_epsilon

    def event(noise_multiplier: float) -> Any:
        if holdout:
            return accounting.discrete_gaussian_event(noise_multiplier=noise_multiplier)
        return accounting.dpsgd_event(
            noise_multiplier=noise_multiplier,
            sample_rate=plans[0].sample_rate,
            steps=plans[0].steps,
        )

    def admitted(noise_multiplier: float) -> bool:
        cost = gate.costs(event(noise_multiplier))
        return gate.admits(used, [c * releases for c in cost])

    # What was asked for does not fit, so the answer lies above its noise.
    low = planned["evaluation"]["noise_multiplier"] if holdout else plans[0].noise_multiplier
    high = 2 * low
    while not admitted(high):
        low, high = high, 4 * high
        if high > _MOST_NOISE:
            return 0.0
    while high / low > _CLOSE_ENOUGH:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if admitted(middle) else (middle, high)
    return math.floor(price(event(high), delta=delta) * 999) / 1000


def release_unstarted(flow_run_id: str) -> None:
    """Give back what a run reserved and never started; never touches a started row."""
    ledger = Installation.open().ledger
    for entry in ledger.history():
        if entry.flow_run_id == flow_run_id and entry.state == "RESERVED":
            ledger.release(entry.row, note="its attempt ended before the start")
