"""The errors of this package: each names the part, its value, the bound and the remedy."""

from __future__ import annotations

import math


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
    if not math.isfinite(number) or number <= 0 or number >= below:
        bound = "finite and > 0" if math.isinf(below) else f"finite, > 0 and < {below:g}"
        raise PlanError(f"{name} must be {bound}; got {value}. {remedy}")
    return number
