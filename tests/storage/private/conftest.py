"""A private store with a ledger of its own, and declarations that differ in one term."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from storage.ledger import Ledger
from storage.private import Dataset, PrivateStore

ROOT = Path(__file__).parents[3]


@pytest.fixture
def ledger(tmp_path):
    return Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")


@pytest.fixture
def store(tmp_path, ledger):
    return PrivateStore(tmp_path / "private", ledger)


@pytest.fixture
def new_store(tmp_path, ledger):
    """Makes a further store: within one, a record has one home."""
    return lambda: PrivateStore(tmp_path / f"private-{secrets.token_hex(4)}", ledger)


@pytest.fixture
def declare(store, ledger):
    """Declares a dataset of a fresh name; keywords change its terms."""

    def make(store=store, **changes):
        values = {
            "name": f"reviews-{secrets.token_hex(4)}",
            "text_column": "text",
            "label_column": "label",
            "classes": ("bad", "good"),
            "unit": "record",
            "records_per_unit": 1,
            "records": 7000,
            "holdout_records": 3000,
            "epsilon_cap": 4.0,
            "holdout_epsilon_cap": 1.0,
            "delta": 1e-5,
            "ledger_id": ledger.id,
        }
        if changes.get("unit") == "person":
            values |= {"person_column": "person", "records_per_unit": 3}
        return store.declare(Dataset(**{**values, **changes}))

    return make


@pytest.fixture(scope="session")
def children():
    """Runs ingestions in real processes that start together; gives their exits."""
    with subprocess.Popen(
        [sys.executable, Path(__file__).with_name("ingesting.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    ) as process:

        def run(*orders):
            process.stdin.write(json.dumps(orders) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield run
        process.stdin.close()
