"""`dpmix dataset`: private tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Private datasets, their blocks and caps.")


@app.command("register")
def dataset_register(
    name: Annotated[str, typer.Argument(help="Lower-case name.")],
    file: Annotated[Path, typer.Argument(help="CSV, TSV, JSON Lines or Parquet.")],
    text_column: Annotated[str | None, typer.Option(help="Column of the text.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Column of the label.")] = None,
    person_column: Annotated[
        str | None, typer.Option(help="Column of the person key; makes the unit a person.")
    ] = None,
    period_column: Annotated[
        str | None, typer.Option(help="Column that must equal --period, else the row is ignored.")
    ] = None,
    period: Annotated[str, typer.Option(help="Period of this file, for example 2026-11.")] = "",
    classes: Annotated[
        str | None, typer.Option(help="Declared classes, separated by commas.")
    ] = None,
    records: Annotated[
        int | None, typer.Option(help="Declared number of training records (or persons).")
    ] = None,
    holdout_records: Annotated[
        int | None, typer.Option(help="Declared number held out for evaluation.")
    ] = None,
    records_per_person: Annotated[
        int | None, typer.Option(help="Most records of one person that are used.")
    ] = None,
    epsilon_cap: Annotated[float | None, typer.Option(help="ε_total of a block. [3]")] = None,
    holdout_epsilon_cap: Annotated[
        float | None, typer.Option(help="ε_total of a hold-out block. [6]")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="δ, below 1/n. [1e-5]")] = None,
    gate: Annotated[
        str | None, typer.Option("--filter", help="agdp or renyi, fixed for life. [agdp]")
    ] = None,
) -> None:
    """Register a private table, or next month's file of one: the same command."""
    from flows.commands.dataset import register

    dataset = register(
        name,
        file,
        period=period,
        text_column=text_column,
        label_column=label_column,
        person_column=person_column,
        period_column=period_column,
        classes=[c.strip() for c in classes.split(",")] if classes else None,
        records=records,
        holdout_records=holdout_records,
        records_per_unit=records_per_person,
        epsilon_cap=epsilon_cap,
        holdout_epsilon_cap=holdout_epsilon_cap,
        delta=delta,
        filter=gate,
    )
    typer.echo(f"registered {dataset.block(period)} (unit: {dataset.claim(period)})")


@app.command("list")
def dataset_list() -> None:
    """Names of the registered datasets."""
    from tasks.installation import Installation

    for name in Installation.open().store.datasets():
        typer.echo(name)
