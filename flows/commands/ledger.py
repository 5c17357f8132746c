"""`dpmix ledger`: what has been spent on whose data, by what."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from privacy import accounting
from privacy.plan import Plan
from storage.ledger import Balance
from tasks.budget import gate_of, position
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
    installation = Installation.open()
    dataset = installation.store.dataset(parameters["dataset"].name)
    periods = parameters["dataset"].periods
    blocks = train_blocks(installation, dataset, periods)
    training, section = parameters["training"], parameters["evaluation"]
    plan = Plan.calibrated(
        privacy_unit=dataset.unit,
        declared_units=sum(b.declared_units for b in blocks),
        records_per_unit=dataset.records_per_unit,
        classes=dataset.classes,
        feature_dimension=1,
        **training.model_dump(exclude={"max_physical_batch", "device"}),
    )
    runs = 2 if section.private_only else 1
    asked = [(b.name, plan.event, runs, plan.pld_epsilon) for b in blocks]
    # The number of arms scales the noise with the sensitivity: the price does not depend on it.
    evaluation = evaluation_release(section, dataset, blocks, 1)
    event = accounting.event_from_json(evaluation["event"])
    asked += [
        (name, event, 1, evaluation["epsilon"]) for name in holdouts(installation, dataset, periods)
    ]
    balances = {b.block.name: b for b in installation.ledger.balances(dataset.name)}
    return [_effect(balances[name], *rest) for name, *rest in asked]


def _effect(balance: Balance, event: Any, releases: int, epsilon: float) -> dict[str, Any]:
    gate = gate_of(balance.block)
    used = [s + r for s, r in zip(balance.spent, balance.reserved, strict=True)]
    cost = [c * releases for c in gate.costs(event)]
    return {
        "block": balance.block.name,
        "releases": releases,
        "epsilon_of_one": epsilon,
        "filter_before": gate.epsilon_of(used),
        "filter_after": gate.epsilon_of([u + c for u, c in zip(used, cost, strict=True)]),
        "cap": balance.block.epsilon_cap,
        "fits": gate.admits(used, cost),
    }


def show(rows: list[dict[str, Any]], columns: dict[str, str], note: str) -> None:
    """Print rows as a table, with a line that says which ε is meant."""
    if not rows:
        Console().print("nothing here yet: register a dataset with `dpmix dataset register`.")
        return
    table = Table(box=None, header_style="bold")
    for title in columns.values():
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[key]) for key in columns))
    console = Console()
    console.print(table)
    console.print(note, style="dim")


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(value) if isinstance(value, list) else str(value)
