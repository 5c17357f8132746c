"""Tables on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDE = 10_000


def show(rows: list[dict[str, Any]], columns: dict[str, str], note: str) -> None:
    """Print rows as a table, with a line that says which ε is meant."""
    if not rows:
        Console().print("nothing here yet: register a dataset with `dpmix dataset register`.")
        return
    console = Console()
    cells = [[Text(_cell(row[key])) for key in columns] for row in rows]
    table = Table(*columns.values(), box=None, header_style="bold")
    for row in cells:
        table.add_row(*row)
    if console.measure(table, options=console.options.update(width=_WIDE)).maximum <= console.width:
        console.print(table)
    else:
        _show_one_by_one(console, list(columns.values()), cells)
    console.print(note, style="dim")


def _show_one_by_one(console: Console, titles: list[str], rows: list[list[Text]]) -> None:
    """Print what is too wide for a table as one field a line; folded cells cannot be read or copied."""
    for row in rows:
        listed = Table(box=None, show_header=False)
        for title, cell in zip(titles, row, strict=True):
            listed.add_row(Text(title, style="bold"), cell)
        console.print(listed)
        console.print()


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(value) if isinstance(value, list) else str(value)
