"""Files that are written whole or not at all, also when the process is killed."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_whole(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file that appears under its name only once all its bytes are on the disk.

    Args:
        path: Where; its folder exists.
        content: All of it.
        mode: Permissions from the first byte on; 0o600 in the trust zone.
    """
    # Beside its target, since a rename is atomic only within one file system.
    temporary = path.with_name(f".tmp-{os.getpid()}-{secrets.token_hex(8)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
