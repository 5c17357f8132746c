"""Progress that a person sees: bars on a terminal, one line a stage elsewhere.

A private stage shows *declared* steps only; where even the pace would speak of the data (reading,
embedding private text) it shows that it runs, and nothing more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from tasks import interruption

Update = Callable[[int, int], None]
"""(done, total) → shown."""

console = Console(stderr=True, highlight=False)
_lock = threading.Lock()
_shown: list[Progress] = []
_open = 0


@contextmanager
def stage(title: str, total: int | None = None) -> Iterator[Update]:
    """Show a stage while the block runs.

    Args:
        title: What it does, in a few words.
        total: Steps in all; None for a stage whose pace is not shown.

    Yields:
        A function to call with (done, total).
    """
    interruption.check()
    if not console.is_terminal:
        console.print(f"  {title} …")
        yield lambda _done, _total: None
        return
    progress = _enter()
    bar = progress.add_task(title, total=total)
    try:
        yield lambda done, of: progress.update(bar, completed=done, total=of)
        progress.update(bar, completed=total or 1, total=total or 1)
    finally:
        progress.stop_task(bar)
        _leave()


def _enter() -> Progress:
    global _open  # noqa: PLW0603 - a terminal has one live display
    with _lock:
        if not _shown:
            progress = Progress(
                TextColumn("  {task.description:<44}"),
                BarColumn(bar_width=28),
                TaskProgressColumn(),
                console=console,
            )
            progress.start()
            _shown.append(progress)
        _open += 1
        return _shown[0]


def _leave() -> None:
    global _open  # noqa: PLW0603 - as above
    with _lock:
        _open -= 1
        if _open == 0 and _shown:
            _shown.pop().stop()
