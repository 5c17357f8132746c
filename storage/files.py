"""Files written whole or not at all, also when the process is killed; and one writer at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_TEMPORARY = ".tmp-"


@contextlib.contextmanager
def whole(path: Path, *, mode: int = 0o644) -> Iterator[BinaryIO]:
    """A stream to a file that appears under its name only once all its bytes are on the disk.

    Args:
        path: Where; its folder exists.
        mode: Permissions from the first byte on; 0o600 in the trust zone.
    """
    # Beside its target, since a rename is atomic only within one file system.
    temporary = path.with_name(f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file that appears under its name only once all its bytes are on the disk.

    Args:
        path: Where; its folder exists.
        content: All of it.
        mode: Permissions from the first byte on; 0o600 in the trust zone.
    """
    with whole(path, mode=mode) as stream:
        stream.write(content)


def remove_unfinished(folder: Path) -> None:
    """Remove what writers of this folder were killed over; call it while none can be at work."""
    for pattern in (f"{_TEMPORARY}*", "*.part"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Hold a lock against other threads and processes of this machine; a killed holder lets go.

    Args:
        lock: The lock file; made if missing, never removed, since a waiter may hold it open.
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
