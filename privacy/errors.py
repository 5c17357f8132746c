"""The errors of this package: each names the part, its value, the bound and the remedy."""

from __future__ import annotations

import math
import sys


class PrivacyError(ValueError):
    """Base of every refusal by `privacy`; nothing has been charged or read when it is raised."""


class PlanError(PrivacyError):
    """A plan whose parts are out of range or do not match."""


class UnsupportedMechanism(PrivacyError):  # noqa: N818 - named for what it says, as in dp_accounting
    """An event that the accountant asked for cannot price."""


class StepRefused(PrivacyError):  # noqa: N818 - the step is refused; nothing was computed wrongly
    """The configured q, σ, C or step counter is not the plan's; the step was not taken."""


def check_positive(name: str, value: float, *, remedy: str, below: float = math.inf) -> float:
    """Return `value` if it is finite and in (0, below); else raise `PlanError`.

    Finiteness is tested first: ``nan <= 0`` is false, and a gate that forgets it is open.
    """
    number = float(value)
    # Subnormals are refused as well: arithmetic on them loses the digits that a gate relies on.
    if not math.isfinite(number) or number < sys.float_info.min or number >= below:
        bound = "finite and > 0" if math.isinf(below) else f"finite, > 0 and < {below:g}"
        raise PlanError(f"{name} must be {bound}; got {value}. {remedy}")
    return number


def check_whole(name: str, value: object, *, at_least: int, remedy: str) -> int:
    """Return `value` if it is a whole number of at least `at_least`; else raise `PlanError`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise PlanError(f"{name} must be >= {at_least} and a whole number; got {value}. {remedy}")
    if value < at_least:
        raise PlanError(f"{name} must be >= {at_least}; got {value}. {remedy}")
    return value
