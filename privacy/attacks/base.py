"""The one interface of all attacks, and their registry.

What this holds: what an attacker gets to see (``Observation``), the abstract class that turns it
into one score per example (``Attack``), and a registry by name. Third parties add an attack by
an entry point in the group ``dpmix.attacks``; nothing else changes.

What it guarantees: every registered attack declares its tier and what it may publish, and the
member tier can only be restricted. Scores have one entry per example and no NaN.

When the guarantee stops: the declaration binds those who read it. Storage and report must keep
the tiers apart; an attack cannot see where its scores go.

Tiers:
    mechanism: canaries in a public twin, through the production code. Costs no budget.
    canary: canaries put into the real run by coins; sees only the released model.
    member: real members. Restricted report only, and never a gate.
"""

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from importlib.metadata import entry_points
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
Tier = Literal["mechanism", "canary", "member"]
Publishes = Literal["release", "restricted"]

ENTRY_POINT_GROUP = "dpmix.attacks"


@dataclass(frozen=True, kw_only=True, eq=False)
class Observation:
    """What the attacker sees of a model, and the examples that it asks about.

    Attributes:
        labels: (n,) integer class of each example asked about.
        logits: (n, K), or (n, V, K) for V views of each example.
        weight_before: (K, d) weights of the linear head before training (public).
        weight_after: (K, d) weights after training.
        bias_before: (K,) biases before training (public).
    """

    labels: IntArray
    logits: NDArray[Any] | None = None
    weight_before: NDArray[Any] | None = None
    weight_after: NDArray[Any] | None = None
    bias_before: NDArray[Any] | None = None


class Attack(ABC):
    """Scores examples by how much the model looks trained on them: higher means "in".

    Attributes:
        name: what profiles call it.
        tier: ``mechanism``, ``canary`` or ``member`` (see the module's docstring).
        publishes: ``release``, or ``restricted`` for what may never leave the restricted report.
        needs: the fields of ``Observation`` that must be present.
    """

    name: ClassVar[str]
    tier: ClassVar[Tier]
    publishes: ClassVar[Publishes]
    needs: ClassVar[frozenset[str]]

    @abstractmethod
    def score(self, seen: Observation) -> FloatArray:
        """One score per example of ``seen.labels``, deterministic in what is seen."""

    def __call__(self, seen: Observation) -> FloatArray:
        """Score the examples, and check what goes in and out.

        Args:
            seen: with at least the fields in ``needs``.

        Returns:
            (n,) float64, no NaN; −inf for an example that cannot be scored.

        Raises:
            ValueError: a needed field is missing, or the scores have another shape or a NaN.
        """
        missing = sorted(field for field in self.needs if getattr(seen, field) is None)
        if missing:
            raise ValueError(f"attack {self.name!r} needs {', '.join(missing)}; got None.")
        scores = np.asarray(self.score(seen), dtype=np.float64)
        if scores.shape != np.shape(seen.labels):
            raise ValueError(
                f"attack {self.name!r} must give one score per example, shape "
                f"{np.shape(seen.labels)}; got {scores.shape}."
            )
        if np.isnan(scores).any():
            raise ValueError(f"scores of attack {self.name!r} must not be NaN.")
        return scores


_REGISTRY: dict[str, type[Attack]] = {}
_A = TypeVar("_A", bound=Attack)


def register(attack: type[_A]) -> type[_A]:
    """Enter an attack into the registry; use as a class decorator.

    Args:
        attack: concrete class with ``name``, ``tier``, ``publishes`` and ``needs``.

    Returns:
        The class itself.

    Raises:
        ValueError: a declaration is missing or contradictory, or the name is taken.
    """
    _check(attack)
    if _REGISTRY.get(attack.name, attack) is not attack:
        raise ValueError(f"attack name must be unique; {attack.name!r} is taken.")
    _REGISTRY[attack.name] = attack
    return attack


def names() -> tuple[str, ...]:
    """Names of all attacks, built in or installed, sorted; imports none of the latter."""
    installed = {entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)}
    return tuple(sorted(installed | set(_REGISTRY)))


def create(name: str) -> Attack:
    """Make the attack of that name.

    Args:
        name: as listed by ``names``. A built-in attack cannot be replaced by an entry point.

    Returns:
        A new instance.

    Raises:
        ValueError: there is no such attack, or an entry point's class breaks the interface.
    """
    if name not in _REGISTRY:
        for entry in entry_points(group=ENTRY_POINT_GROUP):
            if entry.name == name:
                loaded = entry.load()
                _check(loaded)
                if loaded.name != name:
                    raise ValueError(
                        f"entry point {name!r} must name its attack {name!r}; got {loaded.name!r}."
                    )
                register(loaded)
                break
        else:
            raise ValueError(f"attack must be one of {', '.join(names())}; got {name!r}.")
    return _REGISTRY[name]()


def _check(attack: object) -> None:
    if not (isinstance(attack, type) and issubclass(attack, Attack)):
        raise ValueError(f"an attack must be a subclass of Attack; got {attack!r}.")  # noqa: TRY004
    if inspect.isabstract(attack):
        raise ValueError(f"attack {attack.__name__} must implement score.")
    for declared in ("name", "tier", "publishes", "needs"):
        if not hasattr(attack, declared):
            raise ValueError(f"attack {attack.__name__} must declare {declared}.")
    if attack.tier not in get_args(Tier):
        raise ValueError(f"tier must be one of {get_args(Tier)}; got {attack.tier!r}.")
    if attack.publishes not in get_args(Publishes):
        raise ValueError(
            f"publishes must be one of {get_args(Publishes)}; got {attack.publishes!r}."
        )
    if attack.tier == "member" and attack.publishes != "restricted":
        raise ValueError(f"publishes of member attack {attack.name!r} must be 'restricted'.")
    unknown = sorted(attack.needs - {field.name for field in fields(Observation)})
    if unknown:
        raise ValueError(f"needs must be fields of Observation; got {unknown}.")
