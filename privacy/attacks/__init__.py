"""Attacks on trained models, one a file, and the bounds on ε that they support.

Importing the package registers the built-in attacks; see README.md for how to add one.
"""

from privacy.attacks import canary, loss_threshold
from privacy.attacks.base import Attack, Observation, create, names, register
from privacy.attacks.bounds import (
    Bound,
    Verdict,
    clopper_pearson,
    combine,
    one_run,
    per_bound_confidence,
    verdict,
)

__all__ = [
    "Attack",
    "Bound",
    "Observation",
    "Verdict",
    "canary",
    "clopper_pearson",
    "combine",
    "create",
    "loss_threshold",
    "names",
    "one_run",
    "per_bound_confidence",
    "register",
    "verdict",
]
