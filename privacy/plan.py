"""The frozen plan: sampler, clip, noise, steps and accounting event in one object.

The trainer executes a plan, the ledger prices it, the evidence records it: nobody holds a second copy
of q, σ, C or T that could drift. A plan is checked at construction, before any budget is reserved;
what it holds is public by declaration (n included), never measured on private rows.

Sensitivity. One unit contributes one summed gradient, clipped to L2 norm C, to a step; under
add/remove of a unit the sum moves by at most C, so noise of standard deviation σ·C makes a step the
Gaussian mechanism with multiplier σ, amplified by Poisson sampling at rate q. The divisor q·n and the
learning rate are constants, hence post-processing. The mixture of public neighbours is a function of
one record and of public data, computed inside that unit's loss, so it changes nothing of the above.
The claim stops holding if the loss couples two units (batch normalisation, contrastive terms), if
batches are shuffled rather than sampled, or if any constant here was looked up in private data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from dp_accounting import DpEvent

from privacy.accounting import (
    ACCOUNTANT,
    calibrate_noise,
    dpsgd_event,
    event_from_json,
    event_to_json,
    pld_epsilon,
)
from privacy.errors import PlanError, check_positive, check_whole

SCHEMA = 2
MINIMUM_RECORDS = 1000
RELATION = "add/remove one privacy unit, Poisson sampling"


@dataclass(frozen=True, kw_only=True)
class MixingPlan:
    """How public data enters; every value chosen without private data.

    Attributes:
        strategies: Names from `privacy.mixing`, applied together; empty means DP-SGD alone.
        neighbours: k ≥ 1 public neighbours a record, for the kernel.
        temperature: τ > 0 of the softmax over their similarities.
        weight: λ in (0, 1], the mixture's share in a record's second view.
        whitening: Power in (0, 1] of the public covariance that features are divided by.
        public_digest: Digest of the public vectors and labels used; empty if none.
    """

    strategies: tuple[str, ...] = ()
    neighbours: int = 8
    temperature: float = 0.2
    weight: float = 0.3
    whitening: float = 0.5
    public_digest: str = ""

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature, remedy="Set mixing.temperature.")
        check_positive("weight", self.weight, remedy="Set mixing.weight to at most 1.")
        check_positive("whitening", self.whitening, remedy="Set mixing.whitening to at most 1.")
        for name in ("weight", "whitening"):
            if getattr(self, name) > 1:
                raise PlanError(
                    f"{name} must be at most 1; got {getattr(self, name)}. Set mixing.{name}."
                )
        check_whole("neighbours", self.neighbours, at_least=1, remedy="Set mixing.neighbours.")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A DP-SGD run, complete. Build it with `Plan.calibrated` or `Plan.from_json`.

    Attributes:
        privacy_unit: What is added or removed: ``record`` or ``person``.
        declared_units: n, the declared number of units; never counted.
        records_per_unit: Bound on the records of one unit (1 for ``record``).
        epsilon: Target ε of this run alone (PLD), finite and > 0.
        delta: δ < 1/n.
        sample_rate: q in (0, 1].
        steps: T ≥ 1.
        noise_multiplier: σ > 0.
        max_grad_norm: C > 0, the clip on a unit's summed gradient.
        learning_rate: Step size on the averaged gradient.
        feature_scale: R > 0, the norm of a record's features (see `privacy.features`).
        average_last: Share of final iterates averaged into the result (post-processing).
        classes: The declared class list, in order.
        feature_dimension: d of the frozen embeddings.
        head: ``linear`` or ``package.module:factory``.
        encoder_digest: Content digest of the frozen encoder.
        mixing: How public data enters.
    """

    privacy_unit: Literal["record", "person"]
    declared_units: int
    records_per_unit: int = 1
    epsilon: float
    delta: float
    sample_rate: float
    steps: int
    noise_multiplier: float
    max_grad_norm: float
    learning_rate: float
    feature_scale: float = 10.0
    average_last: float = 0.5
    classes: tuple[str, ...]
    feature_dimension: int
    head: str = "linear"
    encoder_digest: str = ""
    mixing: MixingPlan = field(default_factory=MixingPlan)

    def __post_init__(self) -> None:
        check_declared(units=self.declared_units, delta=self.delta)
        check_positive("epsilon", self.epsilon, remedy="Set training.epsilon in the profile.")
        check_positive(
            "max_grad_norm", self.max_grad_norm, remedy="Set training.max_grad_norm in the profile."
        )
        check_positive(
            "learning_rate", self.learning_rate, remedy="Set training.learning_rate in the profile."
        )
        check_positive(
            "feature_scale", self.feature_scale, remedy="Set training.feature_scale in the profile."
        )
        _ = self.event  # checks σ, q and T
        if not 0 < self.average_last <= 1:
            raise PlanError(
                f"average_last must be in (0, 1]; got {self.average_last}. Set training.average_last."
            )
        if self.privacy_unit not in ("record", "person"):
            raise PlanError(f"privacy_unit must be record or person; got {self.privacy_unit!r}.")
        check_whole(
            "records_per_unit",
            self.records_per_unit,
            at_least=1,
            remedy="Set it when the dataset is registered.",
        )
        if self.privacy_unit == "record" and self.records_per_unit > 1:
            raise PlanError(
                f"records_per_unit must be 1 for unit record and >= 1 for unit person; got "
                f"{self.records_per_unit}. Set it when the dataset is registered."
            )
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise PlanError(
                f"classes must be at least two different names; got {list(self.classes)}. Declare "
                "them when the dataset is registered."
            )
        check_whole(
            "feature_dimension", self.feature_dimension, at_least=1, remedy="It is the encoder's."
        )

    @classmethod
    def calibrated(cls, **values: Any) -> Plan:
        """A plan whose noise multiplier is the smallest that reaches `epsilon` at `delta`.

        Args:
            **values: Every field but `noise_multiplier`.

        Raises:
            PlanError: A field is out of range, or the noise cannot reach the target.
        """
        draft = cls(noise_multiplier=1.0, **values)
        sigma = calibrate_noise(
            lambda s: dpsgd_event(
                noise_multiplier=s, sample_rate=draft.sample_rate, steps=draft.steps
            ),
            epsilon=draft.epsilon,
            delta=draft.delta,
        )
        return cls(noise_multiplier=sigma, **values)

    @property
    def event(self) -> DpEvent:
        """The accounting event of exactly this plan."""
        return dpsgd_event(
            noise_multiplier=self.noise_multiplier, sample_rate=self.sample_rate, steps=self.steps
        )

    @property
    def divisor(self) -> float:
        """The constant by which summed gradients are divided: the *declared* expected batch q·n."""
        return self.sample_rate * self.declared_units

    @property
    def pld_epsilon(self) -> float:
        """Tight ε of this run alone at its δ."""
        return pld_epsilon(self.event, delta=self.delta)

    def to_json(self) -> dict[str, Any]:
        """Plain values for storage and evidence; inverse of `from_json`."""
        value = asdict(self)
        value["classes"] = list(self.classes)
        value["mixing"]["strategies"] = list(self.mixing.strategies)
        return {
            "schema": SCHEMA,
            "relation": RELATION,
            "accountant": ACCOUNTANT,
            "event": event_to_json(self.event),
            "sampler": "poisson",
            "divisor": self.divisor,
            **value,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Plan:
        """Rebuild and re-check a stored plan.

        Raises:
            PlanError: Unknown schema, another sampler or relation, or parts that do not match.
        """
        try:
            plan = cls._rebuilt(value)
        except (KeyError, TypeError, AttributeError) as error:
            raise PlanError(
                f"the stored plan lacks a part or holds an unknown one ({error}). Build it anew."
            ) from None
        if plan.epsilon < plan.pld_epsilon - 1e-9:
            raise PlanError(
                f"epsilon of the stored plan is {plan.epsilon}, but its mechanism costs "
                f"{plan.pld_epsilon}: it was edited. Build the plan anew."
            )
        return plan

    @classmethod
    def _rebuilt(cls, value: Mapping[str, Any]) -> Plan:
        rest = dict(value)
        schema, relation, sampler = rest.pop("schema"), rest.pop("relation"), rest.pop("sampler")
        if schema != SCHEMA or relation != RELATION or sampler != "poisson":
            raise PlanError(
                f"plan of schema {schema}, relation {relation!r}, sampler {sampler!r} does not match "
                f"schema {SCHEMA}, {RELATION!r}, 'poisson': shuffled batches are not Poisson samples. "
                "Build the plan with this version."
            )
        rest.pop("accountant")
        event, divisor = rest.pop("event"), rest.pop("divisor")
        mixing = dict(rest.pop("mixing"))
        mixing["strategies"] = tuple(mixing["strategies"])
        rest["classes"] = tuple(rest["classes"])
        plan = cls(mixing=MixingPlan(**mixing), **rest)
        if event_from_json(event) != plan.event or plan.divisor != divisor:
            raise PlanError(
                "the plan's event or divisor does not follow from its q, σ, T and n: it was edited. "
                "Build the plan anew."
            )
        return plan

    @property
    def digest(self) -> str:
        """Hex SHA-256 of the canonical JSON form."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


def check_declared(*, units: int, delta: float) -> None:
    """Refuse what differential privacy cannot serve at the *declared* size.

    Args:
        units: Declared number of privacy units.
        delta: Target δ.

    Raises:
        PlanError: Fewer than `MINIMUM_RECORDS` units, or δ outside (0, 1/n).
    """
    if isinstance(units, bool) or not isinstance(units, int) or units < MINIMUM_RECORDS:
        raise PlanError(
            f"declared records must be a whole number >= {MINIMUM_RECORDS}; got {units}. With fewer, "
            "the noise drowns the signal at any ε worth claiming. Instead: train on public text alone "
            "(mixing.strategies: [warm_start] with a public label set), wait for more records, or "
            "pool with another owner."
        )
    check_positive("delta", delta, below=1, remedy="Use less than 1/n, for example 1e-5.")
    if delta >= 1 / units:
        raise PlanError(
            f"delta must be below 1/n = {1 / units:.3g} for {units} declared records; got {delta}. A "
            "δ of 1/n lets a mechanism publish one whole record. Set it to at most a tenth of that."
        )
