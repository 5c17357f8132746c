"""Mechanisms as events: what dp_accounting knows, and three kinds it lacks; stored and read again.

An event says what was done, never what it cost: prices are worked out from it
(`privacy.accounting.prices`, `.renyi`, `.gaussian`), so that a later reader can work them out anew. The
relation is add/remove of one privacy unit, everywhere; a noise multiplier is noise over the
sensitivity under that relation.

Stored form (schema 2): {"schema": 2, "kind": …, its numbers}; parts of a composition need no schema of
their own. Schema 1 has no mark and knew Gaussian, Poisson-sampled, self-composed and composed events
only, under the same names: it is read alike, and can be written for whoever reads nothing else.

A DpEvent can be built without any check, so every price takes the event apart by `leaves`, which checks
each kind and number again: NaN, infinities, negatives, subnormals, counts below one, empty compositions
and unknown kinds are refused there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dp_accounting
from dp_accounting import DpEvent, dp_event

from privacy.errors import (
    PlanError,
    PrivacyError,
    UnsupportedMechanism,
    check_positive,
    check_whole,
)

SCHEMA = 2
_AGAIN = "Price the mechanism again."
_DEEPEST = 32  # nesting of a stored event: a forged one must not exhaust the stack
MOST_REPEATS = 10**9
MOST_SENSITIVITY = 10_000


@dataclass(frozen=True)
class DiscreteGaussianDpEvent(DpEvent):
    """Whole-number noise of scale σ over the L2 sensitivity (Canonne, Kamath and Steinke 2020).

    Its Rényi divergence is at most the continuous Gaussian's; its loss distribution is another, so it
    has no PLD and no Gaussian-DP price here.
    """

    noise_multiplier: float


@dataclass(frozen=True)
class PureDpEvent(DpEvent):
    """Any ε-DP mechanism, of which nothing else is known: permute-and-flip, for example."""

    epsilon: float


@dataclass(frozen=True)
class ApproximateDpEvent(DpEvent):
    """Any (ε, δ)-DP mechanism, of which nothing else is known: a δ of its own.

    It has a PLD and an agdp price, which charges its δ as leak; it has no Rényi price.
    """

    epsilon: float
    delta: float


@dataclass(frozen=True)
class ExponentialDpEvent(DpEvent):
    """The exponential mechanism at ε: ε-DP and ε-bounded-range, hence ε²/8-zCDP.

    Bounded range is Durfee and Rogers (2019); the ⅛ is Cesar and Rogers (2021).
    """

    epsilon: float


def dpsgd_event(*, noise_multiplier: float, sample_rate: float, steps: int) -> DpEvent:
    """The event of `steps` Poisson-sampled Gaussian steps.

    Args:
        noise_multiplier: σ, the noise's standard deviation over the clip norm; finite, > 0.
        sample_rate: q in (0, 1].
        steps: T ≥ 1.

    Raises:
        PlanError: A value is out of its range.
    """
    _check_noise(noise_multiplier)
    check_positive("sample_rate", sample_rate, remedy="It is a probability: use at most 1.")
    if sample_rate > 1:
        raise PlanError(f"sample_rate must be at most 1; got {sample_rate}. It is a probability.")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise PlanError(f"steps must be a whole number >= 1; got {steps}. Set training.steps.")
    gaussian = dp_accounting.GaussianDpEvent(noise_multiplier)
    sampled = dp_accounting.PoissonSampledDpEvent(sample_rate, gaussian)
    return dp_accounting.SelfComposedDpEvent(sampled, steps)


def gaussian_event(*, noise_multiplier: float) -> DpEvent:
    """The event of one continuous Gaussian release; σ over the L2 sensitivity."""
    _check_noise(noise_multiplier)
    return dp_accounting.GaussianDpEvent(noise_multiplier)


def discrete_gaussian_event(*, noise_multiplier: float) -> DpEvent:
    """The event of one discrete Gaussian release; σ over the L2 sensitivity."""
    _check_noise(noise_multiplier)
    return DiscreteGaussianDpEvent(float(noise_multiplier))


def laplace_event(*, noise_multiplier: float) -> DpEvent:
    """The event of one Laplace release; scale over the L1 sensitivity, hence ε = 1/multiplier."""
    _check_noise(noise_multiplier)
    return dp_accounting.LaplaceDpEvent(noise_multiplier)


def discrete_laplace_event(*, noise_parameter: float, sensitivity: int = 1) -> DpEvent:
    """The event of one discrete Laplace release: P(x) ∝ exp(−a·|x|), whole L1 sensitivity."""
    check_positive("noise_parameter", noise_parameter, remedy="It is ε over the sensitivity.")
    check_whole("sensitivity", sensitivity, at_least=1, remedy="Counts move by whole numbers.")
    if sensitivity > MOST_SENSITIVITY:
        raise PlanError(
            f"sensitivity must be at most {MOST_SENSITIVITY}; got {sensitivity}. Use Laplace noise."
        )
    return dp_event.DiscreteLaplaceDpEvent(float(noise_parameter), sensitivity)


def pure_event(*, epsilon: float) -> DpEvent:
    """The event of an ε-DP mechanism of which nothing else is known."""
    return PureDpEvent(check_positive("epsilon", epsilon, remedy="State the mechanism's ε."))


def approximate_event(*, epsilon: float, delta: float) -> DpEvent:
    """The event of an (ε, δ)-DP mechanism of which nothing else is known; δ in (0, 1)."""
    return ApproximateDpEvent(
        check_positive("epsilon", epsilon, remedy="State the mechanism's ε."),
        check_positive("delta", delta, below=1, remedy="State the mechanism's δ, below 1/n."),
    )


def exponential_event(*, epsilon: float) -> DpEvent:
    """The event of one exponential mechanism at ε."""
    return ExponentialDpEvent(check_positive("epsilon", epsilon, remedy="State the mechanism's ε."))


def event_to_json(event: DpEvent, *, schema: int = SCHEMA) -> dict[str, Any]:
    """Serialise an event. Inverse of `event_from_json`.

    Args:
        event: A mechanism, or a composition of mechanisms, that this version can price.
        schema: 2; 1 for readers of the first form.

    Raises:
        UnsupportedMechanism: The event holds a kind that the ledger, or schema 1, does not know.
        PlanError: A number in it is out of range.
    """
    parts = leaves(event)
    if schema == SCHEMA:
        return {"schema": SCHEMA, **_to_json(event)}
    for part, _count in parts:
        if not isinstance(
            part, dp_accounting.GaussianDpEvent | dp_accounting.PoissonSampledDpEvent
        ):
            raise UnsupportedMechanism(
                f"{type(part).__name__} is unknown to schema 1. Use schema 2."
            )
    return _to_json(event)


def _to_json(event: DpEvent) -> dict[str, Any]:
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        return {
            "kind": "poisson_sampled",
            "sample_rate": float(event.sampling_probability),
            "event": _to_json(event.event),
        }
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        return {"kind": "self_composed", "count": int(event.count), "event": _to_json(event.event)}
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return {"kind": "composed", "events": [_to_json(e) for e in event.events]}
    kind, names = next((k, n) for k, (cls, n, _make) in _LEAVES.items() if type(event) is cls)
    numbers = {name: getattr(event, name) for name in names}
    return {"kind": kind} | {n: v if n == "sensitivity" else float(v) for n, v in numbers.items()}


def event_from_json(value: Mapping[str, Any]) -> DpEvent:
    """Rebuild an event; every number is checked again, since the file may have been edited.

    Raises:
        UnsupportedMechanism: A kind or a schema that this version does not know.
        PlanError: A part is missing or out of range.
    """
    try:
        schema = value.get("schema", 1)
        if isinstance(schema, bool) or schema not in (1, SCHEMA):
            raise UnsupportedMechanism(
                f"the stored event has schema {schema!r}; this version reads 1 and {SCHEMA}. Update "
                "dpmix."
            )
        event = _from_json(value, _DEEPEST)
        leaves(event)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, PrivacyError):
            raise
        raise PlanError(
            f"the stored event {value!r} lacks a part or holds a wrong one ({error}). {_AGAIN}"
        ) from None
    return event


def _from_json(value: Mapping[str, Any], depth: int) -> DpEvent:
    if depth == 0:
        raise PlanError(f"the stored event nests more than {_DEEPEST} deep. {_AGAIN}")
    kind = value["kind"]
    if kind == "poisson_sampled":
        inner = _from_json(value["event"], depth - 1)
        if not isinstance(inner, dp_accounting.GaussianDpEvent):
            raise UnsupportedMechanism(
                f"a Poisson-sampled {value['event']['kind']!r} has no price here; only gaussian has."
            )
        return dpsgd_event(
            noise_multiplier=inner.noise_multiplier,
            sample_rate=_number(value["sample_rate"]),
            steps=1,
        ).event
    if kind == "self_composed":
        count = check_whole("count", value["count"], at_least=1, remedy=_AGAIN)
        return dp_accounting.SelfComposedDpEvent(_from_json(value["event"], depth - 1), count)
    if kind == "composed":
        return dp_accounting.ComposedDpEvent([_from_json(e, depth - 1) for e in value["events"]])
    if kind not in _LEAVES:
        raise UnsupportedMechanism(
            f"mechanism kind {kind!r} is unknown to this version; known: {', '.join(_KINDS)}."
        )
    _cls, names, make = _LEAVES[kind]
    return make(**{n: value[n] if n == "sensitivity" else _number(value[n]) for n in names})


def _number(value: object) -> float:
    # float() would take a string or a truth value too; in a stored event either is an edit.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PlanError(f"a stored event's number must be a number; got {value!r}. {_AGAIN}")
    return float(value)


_LEAVES: dict[str, tuple[type[DpEvent], tuple[str, ...], Callable[..., DpEvent]]] = {
    "gaussian": (dp_accounting.GaussianDpEvent, ("noise_multiplier",), gaussian_event),
    "laplace": (dp_accounting.LaplaceDpEvent, ("noise_multiplier",), laplace_event),
    "discrete_gaussian": (
        DiscreteGaussianDpEvent, ("noise_multiplier",), discrete_gaussian_event,
    ),
    "discrete_laplace": (
        dp_event.DiscreteLaplaceDpEvent, ("noise_parameter", "sensitivity"), discrete_laplace_event,
    ),
    "pure": (PureDpEvent, ("epsilon",), pure_event),
    "approximate": (ApproximateDpEvent, ("epsilon", "delta"), approximate_event),
    "exponential": (ExponentialDpEvent, ("epsilon",), exponential_event),
}  # fmt: skip
_KINDS = (*_LEAVES, "poisson_sampled", "self_composed", "composed")


def leaves(event: DpEvent) -> list[tuple[DpEvent, int]]:
    """The single and sampled mechanisms of an event, each once and checked, with its count.

    In one canonical order, so that no price depends on the order of composition. A Poisson-sampled
    Gaussian at rate 1 is a Gaussian.

    Raises:
        UnsupportedMechanism: A kind that no price is known for.
        PlanError: A number out of its range.
    """
    found: Counter[DpEvent] = Counter()
    _collect(event, 1, found)
    for count in found.values():
        if count > MOST_REPEATS:
            raise PlanError(f"count must be at most {MOST_REPEATS}; got {count}. Count the runs.")
    return sorted(found.items(), key=lambda item: repr(item[0]))


def _collect(event: DpEvent, count: int, found: Counter[DpEvent]) -> None:
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        check_whole("count", event.count, at_least=1, remedy="Count the runs.")
        _collect(event.event, count * int(event.count), found)
    elif isinstance(event, dp_accounting.ComposedDpEvent):
        if not event.events:
            raise PlanError("events must hold at least one event; got none. Name what is released.")
        for part in event.events:
            _collect(part, count, found)
    elif isinstance(event, dp_accounting.PoissonSampledDpEvent):
        if not isinstance(event.event, dp_accounting.GaussianDpEvent):
            raise UnsupportedMechanism(
                f"a Poisson-sampled {type(event.event).__name__} has no price here; only a "
                "GaussianDpEvent has."
            )
        step = dpsgd_event(
            noise_multiplier=event.event.noise_multiplier,
            sample_rate=event.sampling_probability,
            steps=1,
        ).event
        found[step.event if step.sampling_probability == 1 else step] += count
    else:
        found[_checked(event)] += count


def _checked(event: DpEvent) -> DpEvent:
    for cls, names, make in _LEAVES.values():
        if type(event) is cls:
            return make(**{name: getattr(event, name) for name in names})
    raise UnsupportedMechanism(
        f"mechanism {type(event).__name__} has no price here. Known: {', '.join(_KINDS)}."
    )


def pure_epsilon(event: DpEvent) -> float | None:
    """ε of a pure mechanism at δ = 0; None for one that has none."""
    if isinstance(event, PureDpEvent | ExponentialDpEvent):
        return event.epsilon
    if isinstance(event, dp_accounting.LaplaceDpEvent):
        return 1 / float(event.noise_multiplier)
    if isinstance(event, dp_event.DiscreteLaplaceDpEvent):
        return float(event.noise_parameter) * int(event.sensitivity)
    return None


LEAST_NOISE, MOST_NOISE = 1e-3, 1e9


def require_priceable(event: DpEvent, least: float = LEAST_NOISE) -> None:
    """Refuse noise that no accountant here can price: it would overflow, or outgrow memory.

    Raises:
        PrivacyError: Naming the multiplier and its range.
    """
    for part, _count in leaves(event):
        inner = part.event if isinstance(part, dp_accounting.PoissonSampledDpEvent) else part
        sigma = getattr(inner, "noise_multiplier", None)
        if sigma is not None and not least <= sigma <= MOST_NOISE:
            raise PrivacyError(
                f"noise_multiplier must lie in [{least:g}, {MOST_NOISE:g}] to be priced; got "
                f"{sigma}. Calibrate it to an epsilon."
            )
        alone = inner.epsilon if isinstance(inner, ApproximateDpEvent) else pure_epsilon(inner)
        if alone is not None and alone > 1 / least:
            raise PrivacyError(
                f"epsilon of one release must be at most {1 / least:g} to be priced; got {alone}. "
                "Ask for less."
            )


def _check_noise(noise_multiplier: float) -> None:
    check_positive("noise_multiplier", noise_multiplier, remedy="Calibrate it to an epsilon.")


def rounded_up(value: float, digits: int) -> float:
    """`value` rounded up to `digits` decimals."""
    scale = 10**digits
    return math.ceil(value * scale) / scale


def finite(value: float) -> float:
    """`value`, if an accountant may have returned it.

    Raises:
        PrivacyError: It is negative, infinite or NaN.
    """
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise PrivacyError(f"the accountant returned {value}: the mechanism is out of its range.")
    return number
