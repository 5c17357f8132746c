"""How fast the ledger is: cycles of 8 processes, and admission over a long history.

Run with `make benchmark-ledger` (under 4 minutes); writes tests/benchmarks/ledger.json and prints a
table. What is compared runs interleaved on the same server and disk, five times over; medians and ranges
are given. PostgreSQL runs with its own defaults for durability (fsync and synchronous_commit on).

- ledger: every cycle debits one block that all processes share; with evidence, each cycle also writes
  the eight signed entries of a run, each flushed to disk, into a file of its own.
- bare: a cycle is three transactions of one insert each, with no lock, check or history: what the
  server itself can do. Behind a lock: each of the three takes one advisory lock first.
- admission: one process reserves on a ledger with 100,000 rows and on an empty one in turn.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from postgresql import Server  # noqa: E402

from storage.evidence import Evidence, signing_key  # noqa: E402
from storage.ledger import Block, Charge, Ledger, schema  # noqa: E402

OUTPUT = Path(__file__).with_suffix(".json")
CLIENTS, REPEATS, SECONDS = 8, 5, 2.0
HISTORY, ADMISSIONS, BATCH = 100_000, 40, 1000
TARGETS = {
    "postgresql_with_evidence_cycles_per_s": 150,
    "postgresql_with_evidence_over_bare": 0.5,
    "sqlite_with_evidence_cycles_per_s": 200,
    "sqlite_with_evidence_p99_s": 1.0,
    "admission_over_empty": 1.5,
}

BLOCK = Block(
    name="shared",
    dataset="bench",
    role="train",
    unit="record",
    claim="record",
    relation="add/remove",
    filter="agdp",
    orders=(),
    epsilon_cap=8.0,
    delta=1e-5,
    caps=(10**12, 10**12),
    declared_units=10_000,
)
CHARGE = Charge(
    purpose="model",
    mechanism={"kind": "gaussian", "noise_multiplier": 1.0},
    epsilon=1.0,
    delta=1e-5,
    steps=0,
    costs={"shared": (10, 10)},
)
_BARE = sa.text("INSERT INTO bare (body) VALUES (:body)").bindparams(body="x" * 200)
_LOCK = sa.text("SELECT pg_advisory_xact_lock(1)")

Cycle = Callable[[int], None]


def ledger_cycle(url: str, folder: Path, name: str, *, evidence: bool) -> Cycle:
    """A whole run as the ledger sees it, with or without its evidence."""
    ledger = Ledger(url)
    key = signing_key(folder / "key.pem")

    def cycle(number: int) -> None:
        run = f"{name}-{number}"
        written = Evidence(folder / f"{run}.jsonl", key) if evidence else None
        if written:
            written.append("plan", {"plans": {}, "blocks": ["shared"]})
            written.append("quote", {"rows": []})
        (row,) = ledger.reserve([CHARGE], flow_run_id=run, run_count=1)
        if written:
            reserved = {**{k: getattr(CHARGE, k) for k in ("purpose", "kind", "epsilon", "delta")}}
            reserved |= {"row": row, "mechanism": dict(CHARGE.mechanism), "costs": {"shared": [10]}}
            written.append("reservation", {"ledger": ledger.id, "rows": [reserved]})
            written.append("audit", {"verdict": "pass"})
        grant = ledger.start(row)
        head = ""
        if written:
            holder = {"row": row, "epoch": grant.epoch}
            written.append("start", {**holder, "arm": "mixed"})
            head = written.append("settlement", holder)
        ledger.commit(grant, head=head)
        if written:
            written.append("release", {"row": row})
            written.append("closed", {})

    return cycle


def bare_cycle(url: str, _folder: Path, _name: str, *, lock: bool) -> Cycle:
    """Three transactions of one insert."""
    engine = sa.create_engine(url)

    def cycle(_number: int) -> None:
        for _ in range(3):
            with engine.begin() as connection:
                if lock:
                    connection.execute(_LOCK)
                connection.execute(_BARE)

    return cycle


WORKLOADS: dict[str, tuple[str, Callable[..., Cycle], dict[str, bool]]] = {
    "postgresql_with_evidence": ("postgresql", ledger_cycle, {"evidence": True}),
    "postgresql_bare": ("postgresql", bare_cycle, {"lock": False}),
    "postgresql_without_evidence": ("postgresql", ledger_cycle, {"evidence": False}),
    "postgresql_bare_behind_a_lock": ("postgresql", bare_cycle, {"lock": True}),
    "sqlite_with_evidence": ("sqlite", ledger_cycle, {"evidence": True}),
    "sqlite_without_evidence": ("sqlite", ledger_cycle, {"evidence": False}),
}


def client(workload: str, url: str, folder: Path, name: str, barrier, answers) -> None:
    """One process: cycles for `SECONDS`; answers their latencies, or what went wrong."""
    try:
        _kind, make, options = WORKLOADS[workload]
        cycle = make(url, folder, name, **options)
        cycle(0)  # connects, and compiles the statements
        barrier.wait(60)
        latencies, start, number = [], time.perf_counter(), 1
        while (began := time.perf_counter()) - start < SECONDS:
            cycle(number)
            latencies.append(time.perf_counter() - began)
            number += 1
        answers.put((latencies, time.perf_counter() - start))
    except BaseException as error:  # noqa: BLE001 - told, and raised by the parent
        barrier.abort()
        answers.put(repr(error))


def run(workload: str, url: str, folder: Path, repeat: int) -> dict[str, float]:
    """All clients at once; returns cycles a second and latencies in seconds."""
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(CLIENTS), context.Queue()
    processes = [
        context.Process(
            target=client,
            args=(workload, url, folder, f"{workload}-{repeat}-{k}", barrier, answers),
        )
        for k in range(CLIENTS)
    ]
    for process in processes:
        process.start()
    found = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    for answer in found:
        if isinstance(answer, str):
            raise RuntimeError(f"{workload}: {answer}")  # noqa: TRY004 - what a client said
    latencies = sorted(latency for each, _ in found for latency in each)
    return {
        "cycles_per_s": len(latencies) / max(elapsed for _, elapsed in found),
        "p50_s": statistics.median(latencies),
        "p99_s": latencies[min(len(latencies) - 1, int(0.99 * len(latencies)))],
    }


def cycles(urls: dict[str, str], folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Every workload, interleaved, `REPEATS` times."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in WORKLOADS}
    for repeat in range(REPEATS):
        for name, (kind, _make, _options) in WORKLOADS.items():
            runs[name].append(run(name, urls[kind], folder, repeat))
    found = {
        name: {k: spread([r[k] for r in each]) for k in each[0]} for name, each in runs.items()
    }
    # Each ledger's run is compared with the bare loop that ran right behind it.
    for name in ("postgresql_bare", "postgresql_bare_behind_a_lock"):
        both = zip(runs["postgresql_with_evidence"], runs[name], strict=True)
        ratios = [a["cycles_per_s"] / b["cycles_per_s"] for a, b in both]
        found["postgresql_with_evidence"][f"over_{name.removeprefix('postgresql_')}"] = spread(
            ratios
        )
        both = zip(runs["postgresql_without_evidence"], runs[name], strict=True)
        ratios = [a["cycles_per_s"] / b["cycles_per_s"] for a, b in both]
        found["postgresql_without_evidence"][f"over_{name.removeprefix('postgresql_')}"] = spread(
            ratios
        )
    return found


def spread(values: list[float]) -> dict[str, float]:
    """Median and range."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def fill(url: str) -> None:
    """Book `HISTORY` settled rows."""
    ledger = Ledger(url)
    ledger.open_block(BLOCK)
    for batch in range(HISTORY // BATCH):
        charges = [replace(CHARGE, purpose=f"model {k}") for k in range(BATCH)]
        ledger.record_spent(charges, flow_run_id=f"old-{batch}", run_count=1, note="history")


def copy(source: str, target: str) -> None:
    """Copy a ledger row by row into an empty database on PostgreSQL: a history is built once."""
    Ledger(target)
    old, new = sa.create_engine(source), sa.create_engine(target)
    with old.connect() as reading, new.begin() as writing:
        writing.exec_driver_sql("SET session_replication_role = replica")
        for name in schema.APPEND_ONLY:
            table = schema.metadata.tables[name]
            writing.exec_driver_sql(f'DELETE FROM "{name}"')
            for part in reading.execute(sa.select(table)).mappings().partitions(10_000):
                writing.execute(table.insert(), [dict(row) for row in part])
        writing.exec_driver_sql(
            "SELECT setval('reservations_row_seq', (SELECT max(row) FROM reservations))"
        )
        writing.exec_driver_sql("SET session_replication_role = origin")
    with new.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    old.dispose()
    new.dispose()


def admission(full: str, empty: str) -> dict[str, dict[str, float]]:
    """p50 of `reserve` on a full and an empty ledger, by turns, and their ratio."""
    ledgers = {"full": Ledger(full), "empty": Ledger(empty)}
    ledgers["empty"].open_block(BLOCK)
    medians: dict[str, list[float]] = {"full": [], "empty": []}
    for repeat in range(REPEATS + 1):
        times: dict[str, list[float]] = {"full": [], "empty": []}
        for number in range(ADMISSIONS):
            for name, ledger in ledgers.items():
                began = time.perf_counter()
                ledger.reserve([CHARGE], flow_run_id=f"{name}-{repeat}-{number}", run_count=1)
                times[name].append(time.perf_counter() - began)
        if repeat:  # the first warms up
            for name, values in times.items():
                medians[name].append(statistics.median(values))
    ratios = [f / e for f, e in zip(medians["full"], medians["empty"], strict=True)]
    return {
        "with_history_p50_s": spread(medians["full"]),
        "empty_p50_s": spread(medians["empty"]),
        "over_empty": spread(ratios),
    }


@contextlib.contextmanager
def working_folder() -> Iterator[Path]:
    """A folder on a disk: one in memory would have nothing to flush."""
    with tempfile.TemporaryDirectory(prefix="dpmix-ledger-") as name:
        yield Path(name)


def main() -> None:
    load = os.getloadavg()
    with Server() as server, working_folder() as folder:
        urls = {"postgresql": server.new_url(), "sqlite": f"sqlite:///{folder / 'ledger.db'}"}
        for url in urls.values():
            Ledger(url).open_block(BLOCK)
        server.execute(
            "CREATE TABLE bare (row serial PRIMARY KEY, body text NOT NULL)",
            database=str(sa.make_url(urls["postgresql"]).database),
        )
        found: dict[str, object] = {"cycles": cycles(urls, folder)}
        full = f"sqlite:///{folder / 'full.db'}"
        fill(full)
        filled = server.new_url()
        copy(full, filled)
        found["admission"] = {
            "sqlite": admission(full, f"sqlite:///{folder / 'empty.db'}"),
            "postgresql": admission(filled, server.new_url()),
        }
        (version,) = server.execute("SHOW server_version")[0]
    found["setting"] = {
        "clients": CLIENTS,
        "repeats": REPEATS,
        "seconds_a_repeat": SECONDS,
        "history_rows": HISTORY,
        "cores": os.cpu_count(),
        "load_average_before": load[0],
        "postgresql": version,
        "python": platform.python_version(),
    }
    found["targets"] = TARGETS
    OUTPUT.write_text(json.dumps(found, indent=2) + "\n")
    show(found)


def show(found: dict) -> None:
    """Print the table."""
    out = sys.stdout.write
    out(f"{'':32}{'cycles/s':>10}{'(range)':>16}{'p50 ms':>9}{'p99 ms':>9}\n")
    for name, each in found["cycles"].items():
        rate, p50, p99 = each["cycles_per_s"], each["p50_s"]["median"], each["p99_s"]["median"]
        ranged = f"{rate['min']:.0f}–{rate['max']:.0f}"
        out(f"{name:32}{rate['median']:10.0f}{ranged:>16}{p50 * 1e3:9.1f}{p99 * 1e3:9.1f}\n")
    for name, each in found["cycles"].items():
        for ratio in ("over_bare", "over_bare_behind_a_lock"):
            if ratio in each:
                out(f"{name} {ratio.replace('_', ' ')}: {each[ratio]['median']:.2f}\n")
    for kind, each in found["admission"].items():
        full, empty = each["with_history_p50_s"]["median"], each["empty_p50_s"]["median"]
        out(
            f"admission on {kind}: {full * 1e3:.2f} ms with {HISTORY} rows, {empty * 1e3:.2f} ms empty: "
            f"{each['over_empty']['median']:.2f}\n"
        )


if __name__ == "__main__":
    main()
