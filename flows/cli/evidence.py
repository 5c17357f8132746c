"""`dpmix evidence`: what others verify on their own machine, and an auditor's keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import AsJson

app = typer.Typer(no_args_is_help=True, help="Evidence that others can verify.")


@app.command()
def verify(
    files: Annotated[list[Path], typer.Argument(help="evidence.jsonl of one or more runs.")],
    key: Annotated[
        str, typer.Option("--public-key", help="Public key, 64 hex digits, as published.")
    ],
    head: Annotated[str, typer.Option(help="Head of the chain, as published.")] = "",
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger's export; checks ε of every block.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify chain, signatures and order, and recompute every ε; needs no database."""
    from flows.commands.evidence import verify_command

    found = verify_command(files, public_key=key, head=head, ledger=ledger)
    if as_json:
        shown = found.to_json()
        typer.echo(shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False))
    else:
        for line in found.lines:
            typer.echo(line)
    raise typer.Exit(0 if found.result == "VALID" else 1)


@app.command()
def keygen(folder: Annotated[Path, typer.Argument(help="Where the pair is written.")]) -> None:
    """Make an auditor's key pair: audit.replay_key takes the public one."""
    from flows.commands.evidence import keygen_command

    for line in keygen_command(folder):
        typer.echo(line)


@app.command()
def replay(
    run: Annotated[Path, typer.Argument(help="Folder of the run.")],
    auditor_key: Annotated[Path, typer.Option(help="The auditor's private key (PEM).")],
) -> None:
    """Repeat a sealed run from its noise and compare the model; for the auditor."""
    from flows.commands.evidence import replay_command
    from flows.commands.run import quiet

    quiet()
    for line in replay_command(run, auditor_key=auditor_key):
        typer.echo(line)
