"""`dpmix evidence`: what others verify on their own machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Evidence that others can verify.")


@app.callback()
def evidence() -> None:
    """Evidence that others can verify."""


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="evidence.jsonl of a run.")],
    key: Annotated[
        str, typer.Option("--public-key", help="Public key, 64 hex digits, as published.")
    ],
    head: Annotated[str, typer.Option(help="Head of the chain, as published.")] = "",
) -> None:
    """Verify chain and signatures, and recompute every ε; needs no database."""
    from flows.commands.evidence import verify_run

    found = verify_run(file, key, head)
    for line in found.lines:
        typer.echo(line)
    raise typer.Exit(0 if found.complete else 1)
