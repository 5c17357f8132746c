"""Options that several commands share, and how their rows are printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

Profile = Annotated[Path, typer.Option("--profile", "-p", help="Profile (YAML).")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="section.key=value; may be given several times.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DatasetName = Annotated[str | None, typer.Option("--dataset", help="Only this dataset.")]
Reason = Annotated[str, typer.Option(help="Why; kept in the journal for good.")]


def show(rows: list[dict[str, Any]], columns: dict[str, str], note: str, *, as_json: bool) -> None:
    """Print rows as JSON, or as a table with the note below it."""
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    from flows.commands.tables import show as print_table

    print_table(rows, columns, note)
