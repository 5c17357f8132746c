"""`dpmix ledger`: what has been spent on whose data, by what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from privacy import accounting
from privacy.plan import Plan
from storage.ledger import Balance, Block
from storage.ledger.export import write_export
from storage.private import Dataset
from tasks.balances import gate_of, passed, position, used_of
from tasks.budget import open_blocks
from tasks.forecasting import outlook, runs_dry
from tasks.installation import Installation
from tasks.planning import evaluation_release, holdouts, train_blocks


def status(dataset: str | None) -> list[dict[str, Any]]:
    """Each block's cap, spent, reserved and remaining, as the filter's ε."""
    ledger = Installation.open().ledger
    return [{"block": b.block.name, **position(b)} for b in ledger.balances(dataset)]


def history(dataset: str | None) -> list[dict[str, Any]]:
    """Every reservation, oldest first."""
    return [
        {
            "row": e.row,
            "state": e.state,
            "purpose": e.purpose,
            "kind": e.kind,
            "blocks": list(e.blocks),
            "epsilon": e.epsilon,
            "delta": e.delta,
            "steps": e.steps,
            "steps_counted": e.steps_counted,
            "created_at": f"{e.created_at:%Y-%m-%d %H:%M:%SZ}",
            "changed_at": f"{e.changed_at:%Y-%m-%d %H:%M:%SZ}",
            "flow_run_id": e.flow_run_id,
            "mechanism": dict(e.mechanism),
        }
        for e in Installation.open().ledger.history(dataset)
    ]


def quote(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """What `retrain` with these parameters would cost each block, hold-outs too, and what it leaves."""
    return [_effect(*asked) for asked in _asked(parameters)]


def _asked(parameters: dict[str, Any]) -> list[tuple[Balance, Any, int, float]]:
    """(position, event, releases, ε of one) of every block that such a run would debit."""
    installation = Installation.open()
    dataset = installation.store.dataset(parameters["dataset"].name)
    periods = parameters["dataset"].periods
    blocks = train_blocks(installation, dataset, periods)
    section = parameters["evaluation"]
    plan = _plan(dataset, blocks, parameters)
    runs = 2 if section.private_only else 1
    asked = [(b.name, plan.event, runs, plan.pld_epsilon) for b in blocks]
    # The number of arms scales the noise with the sensitivity: the price does not depend on it.
    evaluation = evaluation_release(section, dataset, blocks, 1)
    event = accounting.event_from_json(evaluation["event"])
    asked += [
        (name, event, 1, evaluation["epsilon"]) for name in holdouts(installation, dataset, periods)
    ]
    balances = {b.block.name: b for b in installation.ledger.balances(dataset.name)}
    return [(balances[name], *rest) for name, *rest in asked]


def _plan(dataset: Dataset, blocks: Sequence[Block], parameters: dict[str, Any]) -> Plan:
    return Plan.calibrated(
        privacy_unit=dataset.unit,
        declared_units=sum(b.declared_units for b in blocks),
        records_per_unit=dataset.records_per_unit,
        classes=dataset.classes,
        feature_dimension=1,
        **parameters["training"].model_dump(exclude={"max_physical_batch", "device"}),
    )


def explain(parameters: dict[str, Any]) -> dict[str, float | None]:
    """ε of one training run of this profile under each way of composing."""
    installation = Installation.open()
    dataset = installation.store.dataset(parameters["dataset"].name)
    blocks = train_blocks(installation, dataset, parameters["dataset"].periods)
    plan = _plan(dataset, blocks, parameters)
    return accounting.compare(plan.event, delta=plan.delta)


def _effect(balance: Balance, event: Any, releases: int, epsilon: float) -> dict[str, Any]:
    gate = gate_of(balance.block)
    used = used_of(balance)
    cost = [c * releases for c in gate.costs(event)]
    return {
        "block": balance.block.name,
        "releases": releases,
        "epsilon_of_one": epsilon,
        "filter_cost": gate.epsilon_of(cost),
        "filter_before": gate.epsilon_of(used),
        "filter_after": gate.epsilon_of([u + c for u, c in zip(used, cost, strict=True)]),
        "cap": balance.block.epsilon_cap,
        "fits": not balance.retired and gate.admits(used, cost),
    }


def alarm(rows: list[dict[str, Any]]) -> tuple[int, str]:
    """Exit code and message of the fullest block that still admits something: 50, 80, 95, or 0."""
    open_rows = [r for r in rows if not r["retired"]]
    if not open_rows:
        return 0, "no open block"
    fullest = max(open_rows, key=lambda row: row["used_share"])
    share = fullest["used_share"]
    return passed(share), f"fullest block: {fullest['block']}, {share:.1%} of its cap is used up"


def open_period(
    name: str,
    *,
    period: str,
    records: int | None,
    holdout_records: int | None,
    epsilon_cap: float | None,
    holdout_epsilon_cap: float | None,
    delta: float | None,
) -> list[str]:
    """Open a period's blocks of a registered dataset, before its file is there.

    Args:
        name: The dataset.
        period: '' for its only block.
        records: Declared units; None for the dataset's own figure, as for the rest.
        holdout_records: Declared units held out.
        epsilon_cap: ε_total of the training block.
        holdout_epsilon_cap: ε_total of the hold-out block.
        delta: δ of both.

    Returns:
        The names of the period's blocks.

    Raises:
        PrivateDataError: The dataset is not registered.
        PlanError: Too few declared units, δ ≥ 1/n, or a cap out of range.
        LedgerError: A block is open with other terms.
    """
    installation = Installation.open()
    # Also under a restored backup, which may have to hold the block before it can be reconciled.
    dataset = installation.store.declaration(name)
    given = {
        "records": records,
        "holdout_records": holdout_records,
        "epsilon_cap": epsilon_cap,
        "holdout_epsilon_cap": holdout_epsilon_cap,
        "delta": delta,
    }
    terms = {k: getattr(dataset, k) if v is None else v for k, v in given.items()}
    open_blocks(installation.ledger, dataset, period=period, **terms)
    names = [dataset.block(period)]
    return [*names, dataset.block(period, holdout=True)] if terms["holdout_records"] else names


def forecast(parameters: dict[str, Any], every: str, start: date) -> list[dict[str, Any]]:
    """Runs left of each block at this profile's cost, and when the schedule runs dry.

    Raises:
        ValueError: `every` is no interval.
    """
    runs_dry(start, every, 0)
    found = []
    for balance, event, releases, _ in _asked(parameters):
        cost = [c * releases for c in gate_of(balance.block).costs(event)]
        left = outlook(balance, cost)
        dry = None if left.runs is None else runs_dry(start, every, left.runs).isoformat()
        found.append(
            {
                "block": balance.block.name,
                "runs_left": left.runs,
                "binds": left.binds,
                "dry_on": dry,
            }
        )
    return found


def advice(rows: list[dict[str, Any]]) -> str:
    """What to do about a forecast, in one line."""
    bounded = [r for r in rows if r["runs_left"] is not None]
    first = min(bounded, key=lambda r: r["runs_left"], default=None)
    if first is None:
        return "this profile costs none of these blocks anything."
    role = "evaluation.epsilon" if first["block"].endswith("/holdout") else "training.epsilon"
    return (
        f"{first['block']} ends first, on {first['dry_on']} ({first['runs_left']} runs). Before that, "
        f"register a new period, whose block has budget of its own, or lower {role}."
    )


def export(file: Path) -> dict[str, Any]:
    """Write the signed export; returns its closing line."""
    installation = Installation.open()
    return write_export(installation.ledger, file, installation.key)
