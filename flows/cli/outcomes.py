"""How a command ends: every failure becomes a message of ours and an exit code."""

from __future__ import annotations

import errno
import sys
import traceback
from datetime import UTC, datetime

import typer
from typer.exceptions import TyperException

INTERRUPTED = 130


def explain(error: BaseException) -> None:
    """Say what went wrong, in our words, and exit with the code of its kind."""
    from storage.errors import BlockRetired, BudgetRefused, StorageError

    # Typer's own copy of click: a wrong or missing argument, which knows how to say so.
    if isinstance(error, TyperException) and hasattr(error, "show"):
        error.show()
        sys.exit(2)
    if isinstance(error, BudgetRefused | BlockRetired):
        fail(str(error), 3)
    if type(error).__name__ == "ReleaseRefused":
        fail(str(error), 4)
    if isinstance(error, ValueError | StorageError | FileNotFoundError) or (
        type(error).__module__.split(".")[0] in {"flows", "tasks"}
    ):
        fail(str(error), 2)
    if _is_full(error):
        first = str(error).splitlines()[0]
        fail(
            f"the disk is full: {first}. Free some space and run again. What had started stays "
            "charged; see `dpmix ledger status`.",
            1,
        )
    fail(f"unexpected {type(error).__name__}: {error}\n{_keep(error)}", 1)


def _is_full(error: BaseException) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if getattr(seen, "errno", None) == errno.ENOSPC or "disk is full" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _keep(error: BaseException) -> str:
    """Write the traceback where its reader finds it; says where, or why not."""
    from storage.settings import Settings

    log = Settings().home / "errors" / f"{datetime.now(UTC):%Y%m%dT%H%M%S}.txt"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("".join(traceback.format_exception(error)))
    except OSError as unwritten:
        return f"details could not be written to {log}: {unwritten.strerror}"
    return f"details: {log}"


def fail(message: str, code: int) -> None:
    """Print a message on stderr and exit."""
    typer.secho(message, err=True, fg="red" if code != INTERRUPTED else None)
    sys.exit(code)
