"""A spy and a saboteur: Python loads this in every process that has the folder on its path.

Where DPMIX_PLANTED names a folder, the product's own functions are wrapped as their modules are
imported. What is never to get out (seeds, batches, reads, exact results) goes to ``records.jsonl`` in
that folder, and the fault that its file ``fault`` names happens in the middle of private work. A
function that is no longer where it is looked for is an error of the process.
"""

from __future__ import annotations

import base64
import functools
import importlib.machinery
import json
import logging
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(os.environ.get("DPMIX_PLANTED", ""))
STRUCK_STEP = 3


class Known:
    """What this process has seen of the newest private read."""

    rows = 0
    units = -1
    text = ""
    seed = b""
    step = 0


def record(kind: str, **values: Any) -> None:
    line = json.dumps({"kind": kind, "pid": os.getpid(), **values}) + "\n"
    handle = os.open(FOLDER / "records.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(handle, line.encode())
    os.close(handle)


def is_due(fault: str) -> bool:
    """Whether this fault is to happen; says so first."""
    path = FOLDER / "fault"
    due = path.is_file() and path.read_text() == fault
    if due:
        record("fault", name=fault)
    return due


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Put `around(original, *arguments)` in the place of a function."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        return around(original, *arguments, **named)

    setattr(owner, name, wrapped)


def watch_noise(noise: ModuleType) -> None:
    def seeded(original, source, seed, nonce, *, private):
        Known.seed, Known.step = seed, 0
        record("seed", value=seed.hex())
        return original(source, seed, nonce, private=private)

    def sampled(original, source, population, sample_rate):
        rows = original(source, population, sample_rate)
        # The audit on public text samples as well; that is nobody's secret.
        if population == Known.units:
            Known.step += 1
            record("batch", size=len(rows))
            if Known.step == STRUCK_STEP:
                strike(len(rows))
        return rows

    wrap(noise.NoiseSource, "_setup", seeded)
    wrap(noise.NoiseSource, "poisson_sample", sampled)


def strike(size: int) -> None:
    said = f"batch of {size} from {Known.units}, {Known.text!r}, seed {Known.seed.hex()}"
    if is_due("failure"):
        logging.getLogger("some.library").critical(said)
        warnings.warn(said, stacklevel=1)
        raise ValueError(said)
    if is_due("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if is_due("leak"):
        sys.stdout.write(f"{size} {Known.text}\n")
        sys.stderr.write(base64.b64encode(b"seed " + Known.seed).decode())
        # Left lying about, named for what it holds.
        tempfile.mkstemp(prefix=f"rows-{Known.rows}-")


def watch_store(store: ModuleType) -> None:
    def read(original, *arguments):
        rows = original(*arguments)
        Known.rows, Known.units, Known.text = len(rows.texts), len(set(rows.units)), rows.texts[0]
        record("read", rows=Known.rows, units=Known.units)
        return rows

    def parse(original, row, *arguments):
        if is_due("parsing"):
            raise ValueError(f"cannot parse {row!r}")
        return original(row, *arguments)

    wrap(store.PrivateStore, "read", read)
    wrap(store, "parse", parse)


def watch_evaluation(evaluation: ModuleType) -> None:
    def noised(original, exact, **named):
        record("matrix", cells=exact.tolist())
        if is_due("leak"):
            from prefect.artifacts import create_markdown_artifact

            create_markdown_artifact(f"exact: {evaluation.macro_f1(exact)}, {exact.tolist()}")
        return original(exact, **named)

    wrap(evaluation, "noised_counts", noised)


def watch_members(attack: ModuleType) -> None:
    def evaluated(original, *arguments, **named):
        result = original(*arguments, **named)
        record("members", result=result)
        return result

    wrap(attack, "evaluate", evaluated)


SEAMS = {
    "privacy.noise": watch_noise,
    "storage.private.store": watch_store,
    "tasks.evaluation": watch_evaluation,
    "privacy.attacks.loss_threshold": watch_members,
}


class Watched:
    """Finds the modules that are watched, and wraps them once they are loaded."""

    @staticmethod
    def find_spec(name: str, path: Any = None, _target: Any = None) -> Any:
        if name not in SEAMS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def load_and_wrap(module: ModuleType) -> None:
            load(module)
            SEAMS[name](module)

        spec.loader.exec_module = load_and_wrap
        return spec


if os.environ.get("DPMIX_PLANTED"):
    record("process")
    sys.meta_path.insert(0, Watched)
