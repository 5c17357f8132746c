"""A run's ten entries, made from a real plan, and the key that signs them."""

from __future__ import annotations

import copy

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from storage.evidence import Evidence


@pytest.fixture(scope="session")
def signer():
    return Ed25519PrivateKey.from_private_bytes(bytes(32))


@pytest.fixture(scope="session")
def plan(make_plan):
    return make_plan(epsilon=50.0, classes=("größer", "kleiner"))


@pytest.fixture(scope="session")
def ten(plan):
    """(kind, body) of a released run: one row, two blocks of steps."""
    value, epsilon = plan.to_json(), plan.pld_epsilon
    quoted = {"purpose": "mixed model", "block": "reviews/2030", "epsilon_pld": epsilon}
    row = {
        "row": 7,
        "purpose": "mixed model",
        "kind": "charged",
        "epsilon": epsilon,
        "delta": plan.delta,
        "mechanism": {"event": value["event"], "plan_digest": plan.digest},
        "costs": {"reviews/2030": [10, 20]},
    }
    settled = {
        name: getattr(plan, name)
        for name in ("steps", "sample_rate", "noise_multiplier", "max_grad_norm", "divisor")
    }
    return (
        ("plan", {"plans": {"mixed": value}, "blocks": ["reviews/2030"]}),
        ("quote", {"rows": [quoted]}),
        ("reservation", {"ledger": "1f" * 16, "rows": [row]}),
        ("audit", {"verdict": "pass", "strict": True}),
        ("start", {"row": 7, "epoch": 1, "arm": "mixed", "noise_commitment": "ab" * 32}),
        ("steps", {"row": 7, "epoch": 1, "first": 1, "last": 2, "root": "cd" * 32}),
        ("steps", {"row": 7, "epoch": 1, "first": 3, "last": 4, "root": "ef" * 32}),
        ("settlement", {"row": 7, "epoch": 1, "plan_digest": plan.digest, **settled}),
        ("release", {"row": 7, "model": "a-run"}),
        ("closed", {"released": True}),
    )


@pytest.fixture
def entries(ten):
    """The ten entries, free to be changed."""
    return [(kind, copy.deepcopy(body)) for kind, body in ten]


@pytest.fixture(scope="session")
def write(signer):
    """Writes entries into a file; returns its head."""

    def make(path, entries):
        evidence = Evidence(path, signer)
        for kind, body in entries:
            evidence.append(kind, body)
        return evidence.head

    return make
