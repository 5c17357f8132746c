"""Speed of the production noise beside torch.randn: 10⁷ float32 normals, one core, interleaved pairs.

Writes noise.json: median and range of each, and of the ratio within a pair (above 1: ours is faster).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch

from privacy.noise import NoiseSource

COUNT, PAIRS = 10_000_000, 15


def seconds(make) -> float:
    start = time.process_time()
    make()
    return time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    source = NoiseSource()
    source.normal(COUNT), torch.randn(COUNT)
    ours, theirs = [], []
    for _ in range(PAIRS):
        ours.append(seconds(lambda: source.normal(COUNT)))
        theirs.append(seconds(lambda: torch.randn(COUNT)))
    ratios = [t / o for o, t in zip(ours, theirs, strict=True)]

    def spread(values: list[float]) -> dict[str, float]:
        return {"median": statistics.median(values), "min": min(values), "max": max(values)}

    found = {
        "normals": COUNT,
        "pairs": PAIRS,
        "load_average": os.getloadavg()[0],
        "ours_seconds": spread(ours),
        "torch_randn_seconds": spread(theirs),
        "speed_against_torch_randn": spread(ratios),
        "target": 0.8,
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
