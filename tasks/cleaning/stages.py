"""The three levels as Prefect tasks, one a shard and level, and the cleaning of private rows.

A level reads the file the one before it wrote and writes its own; what travels between tasks is a
`ShardWork`: names, digests and paths, never rows. The raw text stays in the intermediate files up
to the last level. Cleaning is bound by the interpreter, so threads would only take turns: by default
shards are cleaned one after another in this process. With ``workers`` above 0 they are cleaned in
that many processes, which live until the corpus is finished; each spends some ten seconds on
imports first, so that it pays beyond a few ten thousand documents on idle cores.

Guarantees: one document's failure never costs its shard; a level interrupted anywhere is redone, a
finished one is not; the same shards and plan give the same files. They stop where a cleaner breaks
its contract (state, chance), see `tasks.cleaning.base`.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.corpus import (
    Part,
    find_part,
    finish,
    part_key,
    read_raw_shard,
    step_errors,
    write_part,
)
from storage.tables import DROP_SCHEMA, STAGE_SCHEMA, count_rows, read_rows, table_writer
from tasks.cleaning.base import (
    LEVELS,
    Cleaner,
    CleaningError,
    Document,
    Drop,
    Level,
    apply,
    build,
    config_digest,
    file_digest,
    find,
)

STEPS = ("html", "repair", "readable", "length", "language", "domain", "pii")


@dataclass(frozen=True)
class CleaningPlan:
    """What is done to every shard of one corpus. Make it with `plan_cleaning`.

    Attributes:
        corpus: Folder of the corpus.
        steps: Names of the cleaning steps.
        options: Their options, by step.
        config: Digest of both and of the code behind them.
        workers: Processes that clean; 0 cleans in this one.
    """

    corpus: str
    steps: tuple[str, ...]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    config: str = ""
    workers: int = 0


@dataclass(frozen=True)
class ShardWork:
    """One shard on its way: what the tasks hand on.

    Attributes:
        shard: File name of the raw shard.
        digest: SHA-256 of its content.
        key: Name of its part in the corpus.
        reused: True when an earlier run finished this very part.
    """

    shard: str
    digest: str
    key: str
    reused: bool = False


def plan_cleaning(
    corpus: Path | str,
    *,
    steps: Sequence[str] = STEPS,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    workers: int = 0,
) -> CleaningPlan:
    """Return the plan, after building every step once to see that it can be built.

    Args:
        corpus: Folder of the corpus.
        steps: Registered names or ``module:Class``; levels run in order whatever the order here.
        options: Constructor arguments by step.
        workers: Processes that clean; 0 cleans in this one.

    Raises:
        CleaningError: A step or an option is wrong; the message names the remedy.
    """
    options = {step: dict(chosen) for step, chosen in (options or {}).items()}
    build(steps, options)
    return CleaningPlan(
        corpus=str(Path(corpus).absolute()),
        steps=tuple(steps),
        options=options,
        config=config_digest(steps, options),
        workers=_checked_workers(workers),
    )


def _checked_workers(workers: int) -> int:
    if not 0 <= workers <= 256:
        msg = f"cleaning.workers must lie in [0, 256]; got {workers}. 0 cleans in one process."
        raise CleaningError(msg)
    return workers


# --- inside a worker -------------------------------------------------------------------------

_built: dict[tuple[str, Level], list[Cleaner]] = {}
_one_at_a_time = threading.Lock()


def _cleaners(plan: CleaningPlan, level: Level) -> list[Cleaner]:
    """Return a level's cleaners, built once a process and configuration."""
    known = _built.get((plan.config, level))
    if known is None:
        steps = [step for step in plan.steps if find(step).level == level]
        names = {find(step).name for step in steps} | set(steps)
        options = {step: chosen for step, chosen in plan.options.items() if step in names}
        known = _built[plan.config, level] = build(steps, options)
    return known


def _work_file(plan: CleaningPlan, key: str, name: str) -> Path:
    return Path(plan.corpus) / "work" / key / f"{name}.parquet"


def _drop_row(document: Document, shard: str, drop: Drop) -> dict[str, Any]:
    return {
        "id": document.id,
        "shard": shard,
        "source": document.source,
        "level": drop.level,
        "step": drop.step,
        "reason": drop.reason,
        "detail": drop.detail,
    }


def _row(document: Document) -> dict[str, Any]:
    return {name: getattr(document, name) for name in STAGE_SCHEMA.names}


def _arrivals(shard: Path) -> Iterator[tuple[Document, Drop | None]]:
    """Yield a shard's documents; a malformed line comes with its drop."""
    for record in read_raw_shard(shard):
        document = Document.of(record.text, source=record.source, label=record.label)
        malformed = Drop("malformed_line", step="read", level="text") if record.malformed else None
        yield document, malformed


def _handed_on(path: Path) -> Iterator[tuple[Document, Drop | None]]:
    for row in read_rows(path):
        yield Document(**row | {"flags": tuple(row["flags"])}), None


def _run_level(plan: CleaningPlan, work: ShardWork, level: Level, source: str) -> None:
    """Read `source` (a raw shard, or the level before), write this level's two files."""
    kept_file = _work_file(plan, work.key, level)
    if kept_file.is_file():
        return
    cleaners = _cleaners(plan, level)
    path = Path(source)
    arrivals = _arrivals(path) if level == LEVELS[0] else _handed_on(path)
    with (
        table_writer(kept_file, STAGE_SCHEMA) as kept,  # takes its place last
        table_writer(_work_file(plan, work.key, f"{level}.drops"), DROP_SCHEMA) as dropped,
    ):
        for document, drop in arrivals:
            outcome = drop or apply(cleaners, document)
            if isinstance(outcome, Drop):
                dropped.add(_drop_row(document, work.shard, outcome))
            else:
                kept.add(_row(outcome))


def _close_part(plan: CleaningPlan, work: ShardWork) -> None:
    files = {level: _work_file(plan, work.key, level) for level in LEVELS}
    drops = {level: _work_file(plan, work.key, f"{level}.drops") for level in LEVELS}
    write_part(
        Path(plan.corpus),
        key=work.key,
        shard=work.shard,
        digest=work.digest,
        config=plan.config,
        documents=read_rows(files["pii"]),
        drops=(row for level in LEVELS for row in read_rows(drops[level])),
        # What the first level wrote is what it read: counted before the others could lose any.
        seen=count_rows(files["text"]) + count_rows(drops["text"]),
    )


def _last_level(plan: CleaningPlan, work: ShardWork, level: Level, source: str) -> None:
    _run_level(plan, work, level, source)
    _close_part(plan, work)


# --- the pool --------------------------------------------------------------------------------

_lock = threading.Lock()
_pools: list[ProcessPoolExecutor] = []


def _leave_with_parent() -> None:
    """End this worker when the process that started it ends, even by SIGKILL."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def _in_pool(plan: CleaningPlan, work: Callable[..., None], *arguments: Any) -> None:
    if plan.workers == 0:
        with _one_at_a_time:
            work(plan, *arguments)
        return
    with _lock:
        if not _pools:
            # Spawned, not forked: the parent holds threads and perhaps torch.
            context = multiprocessing.get_context("spawn")
            _pools.append(
                ProcessPoolExecutor(
                    plan.workers, mp_context=context, initializer=_leave_with_parent
                )
            )
        pool = _pools[0]
    try:
        pool.submit(work, plan, *arguments).result()
    except BrokenProcessPool as error:
        close_pool()
        msg = (
            "a cleaning process was killed, most likely for want of memory. Lower cleaning.workers "
            "or split the raw shards; what was finished is kept."
        )
        raise CleaningError(msg) from error


def close_pool() -> None:
    """End the cleaning processes; the next level starts new ones."""
    with _lock:
        pools, _pools[:] = list(_pools), []
    for pool in pools:
        pool.shutdown(wait=False, cancel_futures=True)


# --- the tasks -------------------------------------------------------------------------------


@task(task_run_name="clean-text-{shard}", persist_result=False, cache_policy=NO_CACHE)
def clean_text(shard: Path | str, plan: CleaningPlan) -> ShardWork:
    """Level 1: repair, strip, measure and identify the documents of one raw shard.

    Raises:
        CorpusError: The shard is not JSON Lines.
    """
    path = Path(shard)
    digest = file_digest(path)
    key = part_key(path.name, digest, plan.config)
    reused = find_part(Path(plan.corpus), key) is not None
    work = ShardWork(shard=path.name, digest=digest, key=key, reused=reused)
    if not work.reused:
        _in_pool(plan, _run_level, work, "text", str(path))
    return work


@task(task_run_name="clean-domain-{work.shard}", persist_result=False, cache_policy=NO_CACHE)
def clean_domain(work: ShardWork, plan: CleaningPlan) -> ShardWork:
    """Level 2: drop what is about something else."""
    if not work.reused:
        _in_pool(plan, _run_level, work, "domain", str(_work_file(plan, work.key, "text")))
    return work


@task(task_run_name="clean-pii-{work.shard}", persist_result=False, cache_policy=NO_CACHE)
def clean_pii(work: ShardWork, plan: CleaningPlan) -> ShardWork:
    """Level 3: drop what identifies somebody, and close the shard's part."""
    if not work.reused:
        _in_pool(plan, _last_level, work, "pii", str(_work_file(plan, work.key, "domain")))
    return work


@task(task_run_name="finish-corpus", persist_result=False, cache_policy=NO_CACHE)
def finish_corpus(works: Sequence[ShardWork], plan: CleaningPlan) -> dict[str, Any]:
    """Write the manifest and return ``{"path", "digest", "reused", "shards", "funnel", "errors"}``.

    Raises:
        CorpusError: No document survived; the message gives the reasons.
    """
    close_pool()
    corpus = Path(plan.corpus)
    parts: list[Part] = [part for work in works if (part := find_part(corpus, work.key))]
    if len(parts) != len(works):
        lost = Counter(work.shard for work in works) - Counter(part.shard for part in parts)
        msg = f"the parts of {', '.join(lost)} are missing. Clean these shards again."
        raise CleaningError(msg)
    finished = finish(corpus, parts, config=plan.config)
    return {
        "path": str(corpus),
        "digest": finished.digest,
        "reused": sum(work.reused for work in works),
        "shards": {part.shard: part.seen for part in parts},
        "funnel": finished.funnel(),
        "errors": step_errors(corpus, parts),
    }


def clean_private(
    texts: Sequence[str],
    steps: Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[str]:
    """Run record-local cleaners over private rows, behind the read grant.

    A record that is dropped, fails or is no text becomes "", which contributes nothing to training.
    Nothing is logged, counted or raised about any record: how many were dropped is private too.

    Raises:
        CleaningError: A step cannot be built, or is not record-local. Seen before any row.
    """
    cleaners = build(steps, options)
    foreign = [cleaner.name for cleaner in cleaners if not cleaner.record_local]
    if foreign:
        msg = (
            f"the steps {', '.join(foreign)} look at more than one record, so one person's row "
            "would change what is done to another's. Take them out of the private steps."
        )
        raise CleaningError(msg)
    cleaned = []
    for text in texts:
        # Sensitive: stays in this loop.
        document = Document.of(text) if isinstance(text, str) else None
        outcome = apply(cleaners, document) if document else None
        cleaned.append(outcome.text if isinstance(outcome, Document) else "")
    return cleaned
