"""One user's machine in a folder: everything that the processes write lands where it can be searched."""

from __future__ import annotations

import csv
import json
import os
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from flows.parameters import RefreshPublic, Retrain
from flows.services import ROOT
from storage.settings import Settings
from tasks.demo_data import make_demo_data

HERE = Path(__file__).parent
# What is read then (about 3,450 and 1,850 rows) and sampled (about 3,260 units) is far from every number
# that is written anyway: declared ones, years, page sizes, offsets in a file of weights.
RECORDS, HOLDOUT_RECORDS = 2600, 1400
_AS_LARGE_AS_A_COUNT = re.compile(r"\d{4}|\d,\d{3}")
PROFILE = {
    "dataset": {"name": "films"},
    "cleaning": {"steps": ["html", "repair", "length"], "workers": 0},
    "encoder": {"max_tokens": 8},
    "training": {"epsilon": 0.5, "steps": 10, "sample_rate": 0.95},
    "evaluation": {"epsilon": 1.0, "private_only": True},
    "audit": {"canaries": 100, "guesses": 20, "repeats": 20, "strict": False},
}


@dataclass(frozen=True)
class Markers:
    """Words that stand in private rows and nowhere else in the world.

    They are lower case and in normal form, so that no normalisation hides them.
    """

    word: str
    mail: str
    foreign: str
    person: str
    label: str

    @classmethod
    def fresh(cls) -> Markers:
        number = 100_000_000 + secrets.randbelow(900_000_000)
        return cls(
            word=f"quokka{number}",
            mail=f"wanda.{number}@example.org",
            foreign=f"größe-ñandú-{number}",
            person=f"numbat{number}",
            label=f"dreadful{number}",
        )


class Machine:
    """Home, runs, temporary files and outputs in one folder; what is given, and spied, beside it.

    Args:
        folder: Where.
        replay_key: The auditor's public key.
    """

    def __init__(self, folder: Path, *, replay_key: str) -> None:
        self.searched, self.given, self.spied = (
            folder / name for name in ("searched", "given", "spied")
        )
        self.home, self.runs = self.searched / "var", self.searched / "runs"
        self.outputs, temporary = self.searched / "outputs", self.searched / "tmp"
        for path in (self.outputs, temporary, self.searched / "user", self.given, self.spied):
            path.mkdir(parents=True)
        self.markers = Markers.fresh()
        self.profile = {
            **PROFILE,
            "corpus": {"name": "public", "raw": str(self.given / "raw")},
            "audit": {**PROFILE["audit"], "replay_key": replay_key},
        }
        (self.given / "profile.yaml").write_text(yaml.safe_dump(self.profile))
        self.environment = {
            **os.environ,
            "HOME": str(self.searched / "user"),
            "TMPDIR": str(temporary),
            "DPMIX_HOME": str(self.home),
            "DPMIX_RUNS": str(self.runs),
            "DPMIX_DATA": str(Settings().data),
            "DPMIX_PLANTED": str(self.spied),
            "PYTHONPATH": os.pathsep.join([str(HERE / "planted"), str(ROOT)]),
            "PREFECT_HOME": str(self.home / "prefect"),
            "PREFECT_LOGGING_LEVEL": "DEBUG",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
        }

    def write_data(self) -> int:
        """Write one public shard and the private table; returns the table's number of rows."""
        carriers = Settings().data / "carriers"
        made = make_demo_data(self.given / "demo", carriers=carriers)
        (self.given / "raw").mkdir()
        shard = min(made.shards.glob("*.jsonl"))
        lines = shard.read_text(encoding="utf-8").splitlines(keepends=True)
        # No public number shall pass for a count.
        public = "".join(line for line in lines if not _AS_LARGE_AS_A_COUNT.search(line))
        (self.given / "raw" / shard.name).write_text(public, encoding="utf-8")
        with made.private.open(encoding="utf-8", newline="") as stream:
            reviews = [(row["review"][:60], row["sentiment"]) for row in csv.DictReader(stream)]
        rows = [*self._rows(reviews)]
        with (self.given / "films.csv").open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([("review", "sentiment", "person"), *rows])
            stream.flush()
            stream.buffer.write(b"\xff\xfe\x00 %s,negative,\xff\n" % self.markers.word.encode())
        # The same bytes would be refused before a row is parsed: another dataset has taken them.
        table = (self.given / "films.csv").read_bytes()
        (self.given / "broken.csv").write_bytes(table + b"\n")
        return len(rows) + 1

    def _rows(self, reviews: list[tuple[str, str]]) -> Iterator[tuple[str, ...]]:
        m = self.markers
        for number, (text, label) in enumerate(reviews):
            extra = (m.mail, m.foreign)[number % 2] if number % 50 < 2 else ""
            # Now and then a person with more records than are used.
            person = f"{m.person}-{number - number % 5 if number % 100 < 5 else number}"
            yield f"{text} {extra} {m.word}", label, person
        for text, label, person in (
            (f"{m.word} of no class", m.label, f"{m.person}-no-class"),
            (f"{m.foreign} of nobody", "negative", ""),
            ("", "positive", f"{m.person}-{m.mail}"),
        ):
            yield text, label, person
        yield f"{m.word} and a field too many", "negative", m.person, m.label
        yield (f"{m.word} and a field too few",)

    def up(self) -> None:
        """Start server and worker, on a port that nobody else on this machine would choose."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        done = self.dpmix("up", "--port", port)
        assert done.returncode == 0, done.stderr

    def down(self) -> None:
        """Stop them; what they had to say is written then."""
        assert self.dpmix("down").stdout.startswith("stopped")

    def dpmix(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ours; what it prints is kept where it is searched."""
        return self._run("flows.cli", *arguments)

    def deployed(self, flow: str, **changes: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        """Have the worker run a deployment, and watch it to its end; exits with 0 if it completed."""
        taken = {"refresh-public": RefreshPublic, "retrain": Retrain}[flow].model_fields
        parameters = {k: v for k, v in {**self.profile, **changes}.items() if k in taken}
        url = json.loads((self.home / "services.json").read_text())["url"]
        command = (
            "deployment",
            "run",
            f"{flow}/{flow}",
            "--watch",
            "--params",
            json.dumps(parameters),
        )
        return self._run("prefect", *command, PREFECT_API_URL=f"{url}/api")

    def register(self, name: str) -> subprocess.CompletedProcess[str]:
        """Register the table of that name as a dataset."""
        options = {
            "--text-column": "review",
            "--label-column": "sentiment",
            "--person-column": "person",
            "--records-per-person": "2",
            "--classes": "negative,positive",
            "--records": str(RECORDS),
            "--holdout-records": str(HOLDOUT_RECORDS),
        }
        given = [word for option in options.items() for word in option]
        return self.dpmix("dataset", "register", name, str(self.given / f"{name}.csv"), *given)

    @contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """Let something go wrong meanwhile: see `planted/sitecustomize.py`."""
        path = self.spied / "fault"
        path.write_text(name)
        try:
            yield
        finally:
            path.unlink()

    def records(self, kind: str = "") -> list[dict[str, Any]]:
        """What the spies have written so far."""
        lines = (self.spied / "records.jsonl").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        return [r for r in found if kind in ("", r["kind"])]

    def _run(self, module: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env={**self.environment, **more},
            cwd=ROOT,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )
        number = len(list(self.outputs.iterdir()))
        kept = (done.stdout + done.stderr).encode(errors="surrogateescape")
        (self.outputs / f"{number}.txt").write_bytes(kept)
        return done
