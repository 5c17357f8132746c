"""`dpmix ledger`: what has been spent on whose data, by what, and what is decided about it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import AsJson, DatasetName, Overrides, Profile, Reason, show

app = typer.Typer(no_args_is_help=True, help="What has been spent on whose data, by what.")

_QUOTE_NOTE = (
    "ε of one: PLD for a training run, Rényi for an evaluation. Cost, block before and after: ε of the "
    "block's own filter, which alone gates."
)
BlockName = Annotated[str, typer.Argument(help="Name of the block, as `status` prints it.")]
Row = Annotated[int, typer.Argument(help="Ledger row.")]


@app.command("open")
def open_block(
    dataset: Annotated[str, typer.Argument(help="A registered dataset.")],
    period: Annotated[str, typer.Option(help="Period, for example 2026-12.")] = "",
    records: Annotated[int | None, typer.Option(help="Declared training units.")] = None,
    holdout_records: Annotated[int | None, typer.Option(help="Declared units held out.")] = None,
    epsilon_cap: Annotated[float | None, typer.Option(help="ε_total of the block.")] = None,
    holdout_epsilon_cap: Annotated[
        float | None, typer.Option(help="ε_total of the hold-out.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="δ, below 1/n.")] = None,
) -> None:
    """Open a further period's blocks without a file; what is left out is the dataset's own figure."""
    from flows.commands.ledger import open_period

    names = open_period(
        dataset,
        period=period,
        records=records,
        holdout_records=holdout_records,
        epsilon_cap=epsilon_cap,
        holdout_epsilon_cap=holdout_epsilon_cap,
        delta=delta,
    )
    typer.echo(f"open: {', '.join(names)}")


@app.command()
def status(
    dataset: DatasetName = None,
    as_json: AsJson = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 50, 80 or 95 when a block is that full.")
    ] = False,
) -> None:
    """Cap, spent, reserved and remaining of every block."""
    from flows.commands import ledger

    rows = ledger.status(dataset)
    columns = {
        "block": "block", "role": "role", "claim": "unit", "filter": "filter", "cap": "cap ε",
        "opened_cap": "opened at", "spent": "spent", "reserved": "reserved",
        "remaining": "remaining", "delta": "δ", "retired": "retired",
    }  # fmt: skip
    show(rows, columns, "ε of each block's filter. A started run counts as spent.", as_json=as_json)
    if not as_json:
        for row in rows:
            for raised in row["raised"]:
                typer.echo(
                    f"{row['block']}: cap raised to ε={raised['to']:g} on {raised['day']}, signed by "
                    f"{raised['public_key'][:16]}…: {raised['reason']}"
                )
    if check:
        code, said = ledger.alarm(rows)
        typer.echo(said, err=True)
        raise typer.Exit(code)


@app.command()
def history(dataset: DatasetName = None, as_json: AsJson = False) -> None:
    """Every reservation, oldest first."""
    from flows.commands import ledger

    columns = {
        "row": "row", "state": "state", "purpose": "purpose", "blocks": "blocks",
        "epsilon": "ε alone", "steps_counted": "steps", "changed_at": "changed",
    }  # fmt: skip
    note = "ε of each mechanism alone: PLD for training, Rényi for evaluation, 0 if restricted."
    show(ledger.history(dataset), columns, note, as_json=as_json)


@app.command()
def quote(
    profile: Annotated[Path | None, typer.Option("--profile", "-p", help="Profile (YAML).")] = None,
    overrides: Overrides = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show every way of composing side by side.")
    ] = False,
    sample_rate: Annotated[float | None, typer.Option(help="q, without a profile.")] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="σ, without a profile.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Tight ε to calibrate σ for.")] = None,
    steps: Annotated[int | None, typer.Option(help="T, without a profile.")] = None,
    delta: Annotated[float, typer.Option(help="δ, without a profile.")] = 1e-5,
    as_json: AsJson = False,
) -> None:
    """What `retrain` with this profile, or DP-SGD with these numbers, would cost, before it does."""
    from flows.commands import quotes

    if profile is None:
        found = quotes.bare(
            sample_rate=sample_rate,
            steps=steps,
            delta=delta,
            noise_multiplier=noise_multiplier,
            epsilon=epsilon,
        )
        if as_json:
            typer.echo(json.dumps(found))
            return
        if "noise_multiplier" in found:
            typer.echo(f"noise multiplier σ = {found['noise_multiplier']:g}")
        _show_compositions(quotes.lines(found), delta)
        return
    from flows.commands import ledger
    from flows.parameters import parameters_of, read_profile

    parameters = parameters_of(read_profile(profile, overrides or []), "retrain")
    rows = ledger.quote(parameters)
    columns = {
        "block": "block", "releases": "releases", "epsilon_of_one": "ε of one",
        "filter_cost": "costs the block", "filter_before": "block before",
        "filter_after": "block after", "cap": "cap ε", "fits": "fits",
    }  # fmt: skip
    if as_json and explain:
        typer.echo(json.dumps({"blocks": rows, "compositions": ledger.explain(parameters)}))
        return
    show(rows, columns, _QUOTE_NOTE, as_json=as_json)
    if explain:
        typer.echo("")
        _show_compositions(quotes.lines(ledger.explain(parameters)), parameters["training"].delta)


def _show_compositions(rows: list[dict[str, object]], delta: float) -> None:
    columns = {"composition": "composition", "epsilon": "ε of one run", "meaning": "what it is"}
    show(rows, columns, f"at δ={delta:g}; only a block's filter gates", as_json=False)


@app.command()
def forecast(
    profile: Profile,
    overrides: Overrides = None,
    every: Annotated[str, typer.Option(help="month, week, or a number of days.")] = "month",
    as_json: AsJson = False,
) -> None:
    """Runs left at this profile's cost, and the day on which the schedule runs dry."""
    from flows.commands import ledger
    from flows.parameters import parameters_of, read_profile

    parameters = parameters_of(read_profile(profile, overrides or []), "retrain")
    rows = ledger.forecast(parameters, every, datetime.now(UTC).date())
    columns = {
        "block": "block", "runs_left": "runs left", "binds": "what binds", "dry_on": "runs dry on",
    }  # fmt: skip
    show(rows, columns, f"first run today, then every {every}", as_json=as_json)
    if not as_json:
        typer.echo(ledger.advice(rows))


@app.command()
def retire(block: BlockName, reason: Reason) -> None:
    """Let a block admit nothing more, for good: there is no way back."""
    from flows.commands import policies

    policies.retire(block, reason=reason)
    typer.echo(f"{block} retired for good")


@app.command("raise-cap")
def raise_cap(
    block: BlockName,
    epsilon_cap: Annotated[float, typer.Option(help="The new ε_total, above the standing one.")],
    reason: Reason,
    key: Annotated[
        Path | None, typer.Option(help="The officer's Ed25519 key (PEM). [the installation's]")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Raise a cap by a signed statement, which every later report discloses."""
    from flows.commands import policies

    if not yes:
        typer.confirm(
            f"Raise {block} to ε={epsilon_cap:g} for good, disclosed in every later report?",
            abort=True,
        )
    found = policies.raise_cap(block, epsilon_cap=epsilon_cap, reason=reason, key=key)
    typer.echo(f"{block}: cap raised from ε={found['from']:g} to ε={found['to']:g}")


@app.command()
def export(file: Annotated[Path, typer.Argument(help="JSON Lines file to write.")]) -> None:
    """Write the whole journal, signed, for an auditor; it holds no data and no secret."""
    from flows.commands import ledger

    closing = ledger.export(file)
    typer.echo(f"{closing['entries']} entries to {file}\nhead: {closing['head']}")
    typer.echo(f"public key: {closing['public_key']}")


@app.command()
def verify() -> None:
    """Walk the journal and derive every table and total again; names what differs."""
    from tasks.installation import Installation

    head = Installation.open().ledger.verify()
    typer.echo(f"VALID: {head.sequence + 1} links, head {head.hash}")


@app.command()
def reconcile(dataset: Annotated[str, typer.Argument(help="A registered dataset.")]) -> None:
    """After a restored backup: book again what the evidence shows to have started since."""
    from tasks import reconciling

    for line in reconciling.reconcile(dataset):
        typer.echo(line)


@app.command()
def migrate(
    grants: Annotated[
        str, typer.Option(help="Print the GRANT statements for this role (PostgreSQL).")
    ] = "",
) -> None:
    """Make or update the ledger's tables; run it as the database's owner."""
    from storage.ledger import roles
    from storage.settings import Settings

    if grants:
        for statement in roles.grants(grants):
            typer.echo(statement)
        return
    roles.migrate(Settings().ledger)
    typer.echo("the ledger's tables are at the newest revision")


@app.command()
def release(row: Row) -> None:
    """Give back a reservation whose run never started; a started one stays charged."""
    from tasks.installation import Installation

    Installation.open().ledger.release(row, note="released by the operator")
    typer.echo(f"row {row} released")


@app.command()
def spend(row: Row, reason: Reason) -> None:
    """End a started row whose run is gone; its full charge stays."""
    from tasks.installation import Installation

    Installation.open().ledger.spend(row, note=reason)
    typer.echo(f"row {row} spent")
