"""The cleaner: one small step that keeps, changes or drops one document.

Holds the values that travel (`Document`, `Drop`), the abstract class every step derives from, the
registry that finds steps by name, and `apply`, which runs a list of them.

Guarantees: a step that raises on one document costs that document, never its shard (`apply` turns
the exception into the drop `cleaner_error` and keeps neither its message nor the text); an unknown
step or option is refused when the steps are built, before any document is read. They stop where a
cleaner keeps state between documents or is not deterministic: the contract test in
tests/tasks/cleaning catches both for every registered cleaner, nothing catches them in one that is
only named by ``module:Class`` and never tested.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

Level = Literal["text", "domain", "pii"]
LEVELS: tuple[Level, ...] = ("text", "domain", "pii")
ENTRY_POINTS = "dpmix.cleaners"

_BUILT_IN = {
    "html": "tasks.cleaning.text:Html",
    "repair": "tasks.cleaning.text:Repair",
    "readable": "tasks.cleaning.text:Readable",
    "length": "tasks.cleaning.text:Length",
    "language": "tasks.cleaning.language:Language",
    "domain": "tasks.cleaning.domain:Domain",
    "pii": "tasks.cleaning.pii:Pii",
}


class CleaningError(ValueError):
    """Raised when a list of steps cannot be built: the profile is wrong, not a document."""


class UnknownStepError(CleaningError):
    """Raised when a profile names a step that is neither registered nor importable."""


class OptionError(CleaningError):
    """Raised when an option of a step is unknown, missing or outside its bounds."""


class MissingDependencyError(CleaningError):
    """Raised at construction when a package that a step declares is not installed."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document on its way through the levels.

    Attributes:
        id: Hex digest of source and raw text: the same document has the same id in every run.
        raw: The text as it arrived. It travels along because the personal-information level must
            see what the text level strips (``mailto:`` links, query strings).
        text: The text as cleaned so far.
        source: Where the document came from, as its shard states it.
        label: Class label, empty where there is none.
        language: ISO 639-1 code, ``und`` or empty before the language step.
        flags: What was noticed without dropping the document.
    """

    id: str
    raw: str
    text: str
    source: str
    label: str = ""
    language: str = ""
    flags: tuple[str, ...] = ()

    @classmethod
    def of(cls, raw: str, *, source: str = "", label: str = "") -> Document:
        """Return a document fresh from its source, with its content id."""
        digest = hashlib.sha256(f"{source}\0{raw}".encode("utf-8", "surrogatepass")).hexdigest()
        return cls(id=digest[:32], raw=raw, text=raw, source=source, label=label)

    def with_text(self, text: str) -> Document:
        """Return this document with another text; itself when nothing changed."""
        return self if text == self.text else replace(self, text=text)


@dataclass(frozen=True, slots=True)
class Drop:
    """The decision not to keep a document.

    Attributes:
        reason: snake_case; becomes a counter in the funnel.
        detail: Which rule spoke. Never text of the document.
        step: The cleaner that decided; `apply` fills it in.
        level: Its level; `apply` fills it in.
    """

    reason: str
    detail: str = ""
    step: str = ""
    level: str = ""


class Cleaner(ABC):
    """One step. Options are keyword-only arguments of the constructor.

    Attributes:
        name: What a profile calls it.
        level: The level it runs in; levels run in the order text, domain, pii.
        record_local: True when the outcome depends on the one document alone. Only such steps may
            touch private rows.
        reasons: Every drop reason it may give.
        requires: Distribution names that must be installed.
    """

    name: ClassVar[str]
    level: ClassVar[Level]
    record_local: ClassVar[bool]
    reasons: ClassVar[tuple[str, ...]] = ()
    requires: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def clean(self, document: Document) -> Document | Drop:
        """Return the document, changed or not, or the reason to drop it."""

    @classmethod
    def identity(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return what decides this step's outcome: its source, its options, its dependencies.

        The digest of a corpus is built from it, so that an edited step or an upgraded library
        recleans instead of reusing. Files named by options go in by content: override and replace
        the path by `file_digest`, as the domain step does.
        """
        module = inspect.getsourcefile(cls)
        return {
            "name": cls.name,
            "options": dict(options),
            "source": file_digest(Path(module)) if module else "",
            "requires": {name: importlib.metadata.version(name) for name in cls.requires},
        }


@cache
def _digest_of(path: Path, _size: int, _mtime_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_digest(path: Path) -> str:
    """Return the hex SHA-256 of a file, read again only when its size or time changed."""
    stat = path.stat()
    return _digest_of(path, stat.st_size, stat.st_mtime_ns)


def registry() -> dict[str, str]:
    """Return every known step by name, as ``module:Class``.

    Built-in steps first, then the entry points of installed packages in the group
    ``dpmix.cleaners``; a third party cannot replace a built-in step by taking its name.
    """
    found = {
        entry.name: entry.value.replace(" ", "")
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)
    }
    return {**found, **_BUILT_IN}


def find(step: str) -> type[Cleaner]:
    """Return the class of a step, by registered name or by ``module:Class``.

    Raises:
        UnknownStepError: No such name, module or class, or the class is no cleaner.
    """
    known = registry()
    target = step if ":" in step else known.get(step)
    if target is None:
        msg = (
            f"cleaning.steps names {step!r}, which is no known step. Known: "
            f"{', '.join(sorted(known))}. Name one of them, or your own as package.module:Class."
        )
        raise UnknownStepError(msg)
    module, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        msg = (
            f"cleaning.steps names {step!r}, but {target} cannot be imported ({error}). "
            "Install the package, or start dpmix in the folder that holds it (a worker: PYTHONPATH), "
            "and check both names."
        )
        raise UnknownStepError(msg) from error
    if not (isinstance(found, type) and issubclass(found, Cleaner)):
        msg = f"cleaning.steps names {step!r}, but {target} is no Cleaner. Derive it from Cleaner."
        raise UnknownStepError(msg)
    _check_declaration(found, target)
    return cast("type[Cleaner]", found)


def _check_declaration(cleaner: type[Cleaner], target: str) -> None:
    """Refuse a class that does not say what it is, before it meets a document."""
    reasons = getattr(cleaner, "reasons", None)
    named = isinstance(reasons, tuple) and all(
        isinstance(r, str) and r.isidentifier() for r in reasons
    )
    problems = {
        "name (a text)": isinstance(getattr(cleaner, "name", None), str),
        f"level (one of {', '.join(LEVELS)})": getattr(cleaner, "level", None) in LEVELS,
        "record_local (True or False)": isinstance(getattr(cleaner, "record_local", None), bool),
        "reasons (a tuple of snake_case words)": named,
    }
    wrong = [what for what, right in problems.items() if not right]
    if wrong:
        msg = f"the cleaning step {target} must declare {'; '.join(wrong)}. Set it in the class."
        raise CleaningError(msg)


def build(
    steps: Sequence[str], options: Mapping[str, Mapping[str, Any]] | None = None
) -> list[Cleaner]:
    """Return the steps' cleaners, in the order given.

    Args:
        steps: Registered names or ``module:Class``.
        options: Constructor arguments by step, under the same string as in `steps` or under the
            cleaner's own name.

    Raises:
        UnknownStepError: A step does not exist.
        MissingDependencyError: A package that a step requires is not installed.
        OptionError: An option is unknown, missing or out of bounds, or belongs to no step.
    """
    given = dict(options or {})
    classes = [(step, find(step)) for step in steps]
    stray = set(given) - {step for step, _ in classes} - {found.name for _, found in classes}
    if stray:
        msg = (
            f"cleaning.options names {', '.join(sorted(stray))}, but the steps are "
            f"{', '.join(steps) or '(none)'}. Add the step or remove its options."
        )
        raise OptionError(msg)
    return [_construct(found, options_of(step, found, given)) for step, found in classes]


def options_of(
    step: str, cleaner: type[Cleaner], options: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return the options meant for one step."""
    return options.get(step) or options.get(cleaner.name) or {}


def _construct(cleaner: type[Cleaner], options: Mapping[str, Any]) -> Cleaner:
    missing = [name for name in cleaner.requires if not _installed(name)]
    if missing:
        msg = (
            f"the cleaning step {cleaner.name!r} needs {', '.join(missing)}, which is not "
            f"installed. Run pip install {' '.join(missing)}, or take the step out of the profile."
        )
        raise MissingDependencyError(msg)
    parameters = inspect.signature(cleaner).parameters
    unknown = sorted(set(options) - set(parameters))
    if unknown:
        msg = (
            f"the cleaning step {cleaner.name!r} has no option {', '.join(unknown)}. It accepts: "
            f"{', '.join(parameters) or 'none'}."
        )
        raise OptionError(msg)
    lacking = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind is parameter.KEYWORD_ONLY
        and name not in options
    ]
    if lacking:
        msg = (
            f"the cleaning step {cleaner.name!r} needs the option {', '.join(lacking)}. "
            f"Set it in the profile under cleaning.options.{cleaner.name}."
        )
        raise OptionError(msg)
    return cleaner(**options)


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def config_digest(
    steps: Sequence[str], options: Mapping[str, Mapping[str, Any]] | None = None
) -> str:
    """Return the hex digest of everything that decides what the steps do.

    Two runs with the same digest over the same shard give the same result, so the second may reuse
    the first one's. Code that a step imports from elsewhere is covered only as far as `requires`
    names its distribution.
    """
    classes = [(step, find(step)) for step in steps]
    parts = [
        {"step": step, **found.identity(options_of(step, found, options or {}))}
        for step, found in classes
    ]
    parts.append({"base": file_digest(Path(__file__))})
    canonical = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()


def apply(cleaners: Sequence[Cleaner], document: Document) -> Document | Drop:
    """Run cleaners over one document, until one drops it.

    An exception becomes ``Drop("cleaner_error")`` that names the cleaner and the exception's type.
    Its message stays out: it may quote the document. So does a step that answers with something else
    than a document or one of its declared reasons.
    """
    for cleaner in cleaners:
        try:
            outcome = cleaner.clean(document)
        except Exception as error:  # noqa: BLE001 - one document must never cost its shard
            outcome = _failed(cleaner, type(error).__name__)
        if isinstance(outcome, Drop) and outcome.reason not in (*cleaner.reasons, "cleaner_error"):
            # Not quoted: a reason made up on the way may hold the document's text.
            outcome = _failed(cleaner, "a reason that it does not declare")
        if not isinstance(outcome, Document | Drop):
            outcome = _failed(cleaner, f"{type(outcome).__name__} in place of a Document or Drop")
        if isinstance(outcome, Drop):
            return replace(outcome, step=cleaner.name, level=cleaner.level)
        document = outcome
    return document


def _failed(cleaner: Cleaner, how: str) -> Drop:
    return Drop("cleaner_error", detail=f"{cleaner.name}: {how}")
