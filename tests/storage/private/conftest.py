"""A private store with a ledger of its own, and declarations that differ in one term."""

from __future__ import annotations

import secrets

import pytest

from storage.ledger import Ledger
from storage.private import Dataset, PrivateStore


@pytest.fixture
def ledger(tmp_path):
    return Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")


@pytest.fixture
def store(tmp_path, ledger):
    return PrivateStore(tmp_path / "private", ledger)


@pytest.fixture
def declare(store, ledger):
    """Declares a dataset of a fresh name; keywords change its terms."""

    def make(**changes):
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
