"""`dpmix evidence`: what others verify on their own machine, and an auditor's keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storage.evidence.keys import new_auditor_key, public_key
from storage.files import write_whole
from tasks.verification import Report, verify_files


def verify_command(
    files: Sequence[Path], *, public_key: str, head: str = "", ledger: Path | None = None
) -> Report:
    """Verify runs, and the ledger's export if given; opens nothing but what is named."""
    return verify_files(files, public_key, head=head, export=ledger)


def replay_command(run: Path, *, auditor_key: Path) -> list[str]:
    """Repeat a run from its sealed seeds; returns lines for the auditor."""
    from storage.evidence.keys import auditor_key as read_key
    from tasks.replaying import replay

    return replay(run, read_key(auditor_key))


def keygen_command(folder: Path) -> list[str]:
    """An auditor's key pair in `folder`; refuses to overwrite one."""
    private = folder / "auditor.pem"
    digits = public_key(new_auditor_key(private))
    write_whole(folder / "auditor.pub", f"{digits}\n".encode())
    return [
        f"private key: {private} (keep it; whoever holds it can repeat runs without their noise)",
        f"public key:  {digits}",
        "Set it as audit.replay_key in the profile of runs that shall be replayed.",
    ]
