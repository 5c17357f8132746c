"""Tables on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table


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
