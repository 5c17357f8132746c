"""What the evidence of a long run costs: 10⁵ steps of DP-SGD, and the time spent on their Merkle roots.

Run with `make benchmark-transcript` (minutes); writes transcript.json: the share in the whole run, and
the range over its ten blocks. The clocks are read around each call in the run itself, so numerator and
denominator come from one run and the clocks' own cost counts as the evidence's. Counted are the leaves,
the roots, and the signed entries that are flushed to disk.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from privacy import training
from privacy.noise import NoiseSource
from privacy.plan import Plan
from privacy.training import Units, train
from privacy.transcript import Transcript
from storage.evidence import Evidence, signing_key

STEPS = 100_000
UNITS, DIMENSION, SAMPLE_RATE = 5_000, 384, 0.02


class Clock:
    """Adds up the seconds spent inside the calls that it times."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def inside(*arguments: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                self.seconds += time.perf_counter() - start

        return inside


def planned() -> Plan:
    """The shape of the demo's plan on more records: 384 features, two classes, a linear head."""
    return Plan(
        privacy_unit="record",
        declared_units=UNITS,
        epsilon=8.0,
        delta=1e-5,
        sample_rate=SAMPLE_RATE,
        steps=STEPS,
        noise_multiplier=4.0,
        max_grad_norm=1.0,
        learning_rate=0.5,
        classes=("bad", "good"),
        feature_dimension=DIMENSION,
    )


def started(path: Path) -> Evidence:
    """The evidence of a run whose row 1 has started."""
    evidence = Evidence(path, signing_key(path.with_name("key.pem")))
    row = {"row": 1, "purpose": "model", "kind": "charged", "epsilon": 8.0, "delta": 1e-5,
           "mechanism": {}, "costs": {"a": [1]}}  # fmt: skip
    evidence.append("plan", {"plans": {}, "blocks": []})
    evidence.append("quote", {"rows": []})
    evidence.append("reservation", {"ledger": "l", "rows": [row]})
    evidence.append("audit", {"verdict": "pass"})
    evidence.append("start", {"row": 1, "epoch": 1, "arm": "mixed"})
    return evidence


def blocks(folder: Path) -> list[tuple[float, float]]:
    """One run: for each block of its steps, seconds that went to the evidence, and seconds in all."""
    generator = torch.Generator().manual_seed(0)
    units = Units(
        torch.randn(UNITS, 1, DIMENSION, generator=generator),
        torch.randint(0, 2, (UNITS, 1), generator=generator),
        torch.ones(UNITS, 1),
    )
    evidence, clock = started(folder / "run.jsonl"), Clock()

    class Timed(Transcript):
        add = clock.timed(Transcript.add)
        root = clock.timed(Transcript.root)

    def write(first: int, last: int, root: str) -> None:
        evidence.append("steps", {"row": 1, "epoch": 1, "first": first, "last": last, "root": root})

    timed_write, read = clock.timed(write), [(0.0, time.perf_counter())]

    def on_block(first: int, last: int, root: str) -> None:
        timed_write(first, last, root)
        read.append((clock.seconds, time.perf_counter()))

    training.Transcript = Timed
    train(planned(), units, torch.nn.Linear(DIMENSION, 2), source=NoiseSource(), on_block=on_block)
    return [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(read)]


def main() -> None:
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="dpmix-transcript-") as name:
        found = blocks(Path(name))
    shares, whole = [evidence / total for evidence, total in found], sum(t for _, t in found)
    told = {
        "share": {
            "whole_run": sum(e for e, _ in found) / whole,
            "least_block": min(shares),
            "most_block": max(shares),
        },
        "target_share": 0.02,
        "seconds": whole,
        "milliseconds_a_step": 1e3 * whole / STEPS,
        "setting": {
            "steps": STEPS,
            "units": UNITS,
            "features": DIMENSION,
            "sample_rate": SAMPLE_RATE,
            "load_average_before": load,
            "cores": os.cpu_count(),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(told, indent=1) + "\n")
    sys.stdout.write(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
