"""Replay: an auditor who holds the private key and the data repeats a run and compares the model.

The seeds that the run sealed are opened, each is held against the commitment that the evidence made
before the first read, and the arm is trained again under a restricted grant with a row of its own. The
repeated model is compared and dropped; it is never written. Bit for bit equality is expected with the
same versions on the same kind of processor, on one thread; elsewhere sums round differently, and weights
should agree within `TOLERANCE`. What is printed speaks of private data where the data has changed since:
it is for the auditor.
"""

from __future__ import annotations

import platform
import secrets
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privacy.classifier import Classifier, starting_classifier
from privacy.noise import NoiseSource
from privacy.plan import Plan
from privacy.training import Trained
from storage.evidence import EvidenceError, Verification, public_key, verify
from storage.evidence.sealing import SealedStore
from storage.ledger import Charge, ReadGrant
from storage.runs import RunError, RunFolder
from tasks.attempts import NOTICE, one_thread
from tasks.installation import Installation
from tasks.planning import PURPOSES
from tasks.private_data import trust_zone
from tasks.training import public_of, train_on_private

TOLERANCE = 1e-4
"""Largest difference of a weight, relative to the largest weight, that rounding may explain."""


def replay(run_path: Path, key: X25519PrivateKey) -> list[str]:
    """Repeat every arm of a run that was trained on private data; returns lines for the auditor.

    Args:
        run_path: The run's folder.
        key: The auditor's private key.

    Raises:
        EvidenceError: The evidence does not verify, or holds nothing that was sealed to this key.
    """
    if not (run_path / "plan.json").is_file():
        raise RunError(f"{run_path} is no run's folder: it has no plan.json.")
    run, installation = RunFolder(run_path), Installation.open()
    planned = run.read("plan")
    found = verify(run.path / "evidence.jsonl", public_key(installation.key))
    lines = [NOTICE, environment()]
    for arm, purpose in PURPOSES.items():
        if arm in planned["plans"]:
            row = run.read("reservation")["rows"][purpose]
            lines += _replay_arm(installation, run, planned, found, arm, row, key)
    return lines


def environment() -> str:
    """Versions and processor that bit for bit equality depends on."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "opacus", "numpy"))
    return f"Python {platform.python_version()}, {versions}; {_processor()}; one thread"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else (platform.processor() or platform.machine())


def _replay_arm(
    installation: Installation,
    run: RunFolder,
    planned: dict[str, Any],
    found: Verification,
    arm: str,
    row: int,
    key: X25519PrivateKey,
) -> list[str]:
    settled = _last(found, "settlement", row)
    if settled is None:
        return [f"{arm}: row {row} was never settled; there is nothing to compare"]
    started = _last(found, "start", row)
    if started is None or started.get("sealed_to") != public_key(key):
        raise EvidenceError(
            f"row {row} of run {run.run_id} sealed no seed to this key. Set audit.replay_key before a "
            "run; afterwards its seeds are gone."
        )
    source = _source(installation, run, row, started["noise_commitment"], key)
    plan = Plan.from_json(planned["plans"][arm])
    public = public_of(planned, plan)
    classifier = starting_classifier(plan, public.data)
    grant = _restricted_grant(installation, planned, row)
    with trust_zone(installation, planned["dataset"], run.run_id), one_thread():
        trained = train_on_private(
            installation, grant, planned, plan, public, classifier, source=source, device="cpu"
        )
    installation.ledger.commit(grant, note=f"replay of row {row}")
    lines = [f"{arm}: the sealed seed is the one that row {row} committed to before it read"]
    if trained.digest == settled["weights_digest"]:
        return [*lines, f"{arm}: EQUAL bit for bit, digest {trained.digest}"]
    return [*lines, _difference(run, arm, classifier, trained, settled["weights_digest"])]


def _last(found: Verification, kind: str, row: int) -> Mapping[str, Any] | None:
    bodies = [b for k, b in found.bodies if k == kind and b["row"] == row]
    return bodies[-1] if bodies else None


def _source(
    installation: Installation, run: RunFolder, row: int, commitment: str, key: X25519PrivateKey
) -> NoiseSource:
    """The sealed source that made the commitment.

    Raises:
        EvidenceError: None of the row's boxes holds it.
    """
    for secret in SealedStore(installation.settings.sealed).open(run.run_id, row, key):
        source = NoiseSource.replayed(secret[:32], secret[32:])
        if source.commitment == commitment:
            return source
    raise EvidenceError(
        f"no sealed seed of row {row} of run {run.run_id} is the one that its evidence committed to: "
        "the box was replaced, or the run used other noise."
    )


def _restricted_grant(
    installation: Installation, planned: Mapping[str, Any], replayed: int
) -> ReadGrant:
    blocks = {b.name: b for b in installation.ledger.blocks(planned["dataset"])}
    charge = Charge(
        purpose="replay",
        kind="restricted",
        mechanism={"kind": "none: the repeated model is compared and dropped", "row": replayed},
        epsilon=0.0,
        delta=0.0,
        steps=0,
        costs={n: (0,) * len(blocks[n].caps) for n in planned["blocks"]},
    )
    attempt = f"replay-{secrets.token_hex(8)}"
    (row,) = installation.ledger.reserve([charge], flow_run_id=attempt, run_count=1)
    return installation.ledger.start(row, kind="restricted")


def _difference(
    run: RunFolder, arm: str, classifier: Classifier, trained: Trained, wanted: str
) -> str:
    kept = run.read_weights(arm)
    repeated = Classifier(classifier.features, trained.head).state_dict()
    largest = max(float(v.abs().max()) for v in kept.values())
    gap = max(
        float((repeated[n].to(torch.float64) - v.to(torch.float64)).abs().max())
        for n, v in kept.items()
    )
    relative = gap / largest
    verdict = (
        f"the weights agree within {relative:.1e} of the largest (tolerance {TOLERANCE:g}), which other "
        "versions, another processor or more threads explain"
        if relative <= TOLERANCE
        else f"the weights differ by {relative:.1e} of the largest, more than the tolerance "
        f"{TOLERANCE:g}: the run did something else, or its data has changed"
    )
    return f"{arm}: DIFFERENT, digest {trained.digest} instead of {wanted}; {verdict}"
