"""One attempt at private data, as the evidence tells it: its noise, its start, and how it failed.

A seed is dropped unless the profile asks for a replay (audit.replay_key): then it is sealed to the
auditor's key before anything is drawn, the run keeps to one thread so that it can be repeated bit for
bit, and says that it is not private against the holder of that key.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from privacy.errors import StepRefused
from privacy.noise import NoiseSource
from storage.errors import FencedOut
from storage.evidence import CLOSED, Evidence, EvidenceError
from storage.evidence.sealing import SealedStore
from storage.ledger import ReadGrant
from storage.runs import RunFolder
from tasks.installation import Installation

NOTICE = "not private against the holder of the auditor's key"


def replay_key(planned: Mapping[str, Any]) -> str:
    """Public key of the auditor who may replay a planned run; empty for none."""
    return str(planned["sections"]["audit"].get("replay_key", ""))


def make_source(
    installation: Installation, run: RunFolder, planned: Mapping[str, Any], row: int
) -> NoiseSource:
    """The noise of one attempt at a row; sealed first, where a replay is asked for."""
    key = replay_key(planned)
    if not key:
        return NoiseSource()
    run.write("notice", {"text": NOTICE, "sealed_to": key})
    store = SealedStore(installation.settings.sealed)
    return NoiseSource(seal=lambda seed, nonce: store.put(run.run_id, row, key, seed + nonce))


def start_entry(
    grant: ReadGrant, arm: str, source: NoiseSource, planned: Mapping[str, Any]
) -> dict[str, Any]:
    """The body of a start: who started what, and the commitment to its noise."""
    entry = {
        "row": grant.row,
        "epoch": grant.epoch,
        "arm": arm,
        "noise_commitment": source.commitment,
    }
    key = replay_key(planned)
    return {**entry, "sealed_to": key} if key else entry


@contextlib.contextmanager
def told(evidence: Evidence, grant: ReadGrant, run: RunFolder) -> Iterator[None]:
    """End the evidence with a refusal if what runs inside fails.

    A refused step is told in the declared figures that it names; of anything else nothing is told, since
    its text may quote private rows. Whoever was fenced out tells nothing: the row is another's now.
    """
    try:
        yield
    except FencedOut:
        raise
    except Exception as error:
        refused = isinstance(error, StepRefused)
        reason = str(error) if refused else "a private stage failed; the row's charge stays"
        body = {"at": "step", "row": grant.row, "epoch": grant.epoch, "reason": reason}
        # The failure itself is what must be heard.
        with contextlib.suppress(EvidenceError, OSError):
            end_refused(evidence, run, body)
        raise


def end_refused(evidence: Evidence, run: RunFolder, body: Mapping[str, Any]) -> None:
    """Write a refusal and close the file: nothing is added to this run any more."""
    evidence.append("refusal", body)
    evidence.append(CLOSED, {"released": run.has("release")})


@contextlib.contextmanager
def one_thread(*, wanted: bool = True) -> Iterator[None]:
    """Compute on one thread, in one order of summation, where a run shall be repeated bit for bit."""
    before = torch.get_num_threads()
    if wanted:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
