"""What all tests share: no time limits, one thread for linear algebra, and a small correct plan."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Behind everything else: tests/ has folders named like the packages.
sys.path.append(str(Path(__file__).parent))
pytest_plugins = ["postgresql"]

# Several test processes share few cores; set before torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile(
    "dpmix",
    deadline=None,  # no test depends on time
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("dpmix")


@pytest.fixture(scope="session")
def make_plan():
    """Builds a small correct plan; keywords change a field."""
    from privacy.plan import Plan

    def make(**changes):
        values = {
            "privacy_unit": "record",
            "declared_units": 1000,
            "epsilon": 8.0,
            "delta": 1e-5,
            "sample_rate": 0.1,
            "steps": 4,
            "noise_multiplier": 1.0,
            "max_grad_norm": 1.0,
            "learning_rate": 0.5,
            "classes": ("bad", "good"),
            "feature_dimension": 3,
        }
        return Plan(**{**values, **changes})

    return make
