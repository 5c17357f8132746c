"""`dpmix dataset`: make a private table known, with its blocks and caps."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from privacy.plan import check_declared
from storage.errors import PrivateDataError
from storage.private import Dataset
from tasks.budget import open_blocks
from tasks.installation import Installation

_PER_PERIOD = ("records", "holdout_records", "epsilon_cap", "holdout_epsilon_cap", "delta")
_DEFAULTS: dict[str, Any] = {
    "person_column": "",
    "period_column": "",
    "records_per_unit": 1,
    "holdout_records": 0,
    "epsilon_cap": 3.0,
    "holdout_epsilon_cap": 6.0,
    "delta": 1e-5,
    "filter": "agdp",
}


def register(name: str, file: Path, *, period: str = "", **given: Any) -> Dataset:
    """Declare (the first time), ingest the file, open the period's blocks.

    Args:
        name: The dataset's name.
        file: CSV, TSV, JSON Lines or Parquet.
        period: Whose block the file feeds; '' for a dataset of one block.
        **given: Fields of `Dataset`; None means the standing value, or the default at first.

    Raises:
        PrivateDataError: The declaration or the file is wrong, or differs from what stands, or another
            dataset has taken the file in.
        PlanError: Too few declared records, or δ ≥ 1/n.
        LedgerError: The period's block is open with other terms.
    """
    installation = Installation.open()
    stated = {k: v for k, v in given.items() if v is not None}
    dataset = (
        _standing(installation.store.dataset(name), stated)
        if name in installation.store.datasets()
        else _new(name, stated, installation.ledger.id)
    )
    terms = {k: stated.get(k, getattr(dataset, k)) for k in _PER_PERIOD}
    # Everything that can be refused is refused before the first row is read.
    check_declared(units=terms["records"], delta=terms["delta"])
    with installation.store.registration(name, file):
        installation.store.declare(dataset)
        open_blocks(installation.ledger, dataset, period=period, **terms)
        installation.store.ingest(dataset, file, period=period)
    return dataset


def _new(name: str, stated: dict[str, Any], ledger_id: str) -> Dataset:
    missing = [k for k in ("text_column", "label_column", "classes", "records") if k not in stated]
    if missing:
        options = ", ".join("--" + k.replace("_", "-") for k in missing)
        raise PrivateDataError(f"the first registration of {name!r} needs {options}.")
    values = {**_DEFAULTS, **stated}
    values["classes"] = tuple(values["classes"])
    unit = "person" if values["person_column"] else "record"
    return Dataset(name=name, unit=unit, ledger_id=ledger_id, **values)


def _standing(dataset: Dataset, stated: dict[str, Any]) -> Dataset:
    fixed = {k: v for k, v in asdict(dataset).items() if k not in _PER_PERIOD}
    changed = [
        f"{k} = {fixed[k]!r}, not {v!r}"
        for k, v in stated.items()
        if k in fixed and (tuple(v) if k == "classes" else v) != fixed[k]
    ]
    if changed:
        raise PrivateDataError(
            f"dataset {dataset.name!r} stands with {'; '.join(changed)}. These are fixed for its "
            "life: leave them out, or register another name."
        )
    return dataset
