"""What is said when taking rows in fails as nobody foresaw: the kind of the failure, and no more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from storage.errors import PrivateDataError, StorageError


@contextlib.contextmanager
def in_silence() -> Iterator[None]:
    """Replace an unexpected error, whose text or context may quote rows, by one that names its kind.

    Errors of ours pass, and those of the system, which name files and not what is in them.

    Raises:
        PrivateDataError: In place of an unexpected error, which no traceback shows as its context.
    """
    try:
        yield
    except (StorageError, OSError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it says may quote private rows
        name = type(error).__name__
    else:
        return
    raise PrivateDataError(
        f"the file could not be taken in ({name}); what it said is not repeated, since it may quote a "
        "row. Export the file again, as UTF-8, and run the same command."
    ) from None  # a `with` statement makes the first error the context, also outside the handler
