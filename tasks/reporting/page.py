"""Turns the summary of a run into its report: a page, ten lines, a JSON file.

Guarantees: the page is one file that asks nothing of any network (its own content security policy
forbids it); everything from outside is escaped; and **every number has a provenance** that may be
published (`public`, `declared`, `ledger`, `dp(…)`). A number without one, or with a restricted one,
is refused with its name, so that nothing un-noised gets out by being added to a summary. What is
missing, None or not finite is left out of the page. The guarantee stops at the truth of the
provenance itself: whoever fills in the summary states it.

Provenance keys are dotted paths. A key covers all below it, and the longest one counts, so
`cleaning: public` speaks for `cleaning.dropped.too_short`, and `charges: ledger` for every row.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import ChainableUndefined, Environment, FileSystemLoader
from markupsafe import Markup

from storage.files import write_whole
from tasks.balances import FILTERS
from tasks.reporting import figures

PUBLISHABLE = re.compile(r"(public|declared|ledger|dp)(?![\w-])")
# Numbers that are no figures: the version of this format, and provenance itself.
NO_FIGURES = {"schema", "provenance", "versions"}
ARMS = {
    "mixed": "Mixed: private with DP, and public",
    "public_only": "Public data only",
    "dp_private_only": "Private data only, with DP",
}


class UnsourcedFigureError(ValueError):
    """Raised when a summary holds a number whose provenance is missing or may not be published."""


def _present(value: Any) -> Any:
    """The value without what is missing: None, NaN, infinities, and lists that hold them."""
    if isinstance(value, Mapping):
        kept = {str(key): _present(part) for key, part in value.items()}
        return {key: part for key, part in kept.items() if part is not None}
    if isinstance(value, list | tuple):
        parts = [_present(part) for part in value]
        return None if any(part is None for part in parts) else parts
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every number below `value` with its dotted path; a list of numbers counts as one."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if path or key not in NO_FIGURES:
                yield from _numbers(part, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        rows = value if value and isinstance(value[0], list) else [value]
        if value and all(_is_number(part) for row in rows for part in row):
            yield path, value
        else:
            for index, part in enumerate(value):
                yield from _numbers(part, f"{path}.{index}")
    elif _is_number(value):
        yield path, value


def _provenance(summary: Mapping[str, Any], path: str) -> str:
    known = summary.get("provenance", {})
    while path not in known and "." in path:
        path = path.rpartition(".")[0]
    return str(known.get(path, ""))


def _sourced(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary without what is missing, all of its numbers of known and public provenance.

    Raises:
        UnsourcedFigureError: a number has no provenance, or one that may not be published.
    """
    present = _present(summary)
    for path, _ in _numbers(present):
        origin = _provenance(present, path)
        if not PUBLISHABLE.match(origin):
            raise UnsourcedFigureError(
                f"{path} must come from public, declared, ledger or dp(…) to stand in a report; "
                f"its provenance is {origin or 'missing'!r}. State it under provenance, "
                "or keep the figure for the restricted report."
            )
    return present


def _kind(origin: str) -> str:
    match = PUBLISHABLE.match(origin)
    return match[1] if match else ""


def _source_tags(summary: Mapping[str, Any], *paths: str) -> Markup:
    """The distinct provenances of all numbers at or below the paths, as marked words."""
    found = [
        _provenance(summary, path)
        for path, _ in _numbers(summary)
        if any(path == wanted or path.startswith(wanted + ".") for wanted in paths)
    ]
    return Markup(" ").join(
        Markup('<span class="src {}">{}</span>').format(_kind(origin), origin)
        for origin in dict.fromkeys(found)
    )


def _at(summary: Mapping[str, Any], path: str) -> Any:
    value: Any = summary
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _payer(summary: Mapping[str, Any], path: str) -> dict[str, Any] | None:
    """The charge whose ledger row paid for the figure at `path`; none where it is public."""
    row = re.search(r"row\s+(\d+)", _provenance(summary, path))
    charges = summary.get("charges", [])
    return next((c for c in charges if row and str(c.get("row")) == row[1]), None)


def _is_test(summary: Mapping[str, Any]) -> bool:
    return summary.get("mode", "production") != "production"


def _audit_clause(audit: Mapping[str, Any]) -> str:
    match audit.get("verdict"):
        case "pass":
            return "; the audit found nothing to contradict this"
        case "inconclusive":
            return "; the audit could not decide whether this holds"
        case "fail":
            return "; the audit contradicts this"
    return ""


def _refusal(summary: Mapping[str, Any]) -> str:
    """Why there was no release, in the run's own words or, lacking those, from the audit."""
    audit = summary.get("audit", {})
    # The command line says who refused; on the page the sentence around it does.
    said = str(summary.get("refusal", "")).strip()
    if reason := said.removeprefix("release refused: ").removeprefix("refused: "):
        return reason if reason[-1] in ".!?" else f"{reason}."
    if audit.get("verdict") == "fail" and {"lower_bound", "claimed"} <= audit.keys():
        return (
            f"the audit’s lower bound, ε ≥ {figures.lower(audit['lower_bound'])}, "
            f"exceeds the ε of {figures.upper(audit['claimed'])} that is claimed."
        )
    return "the run did not pass its release gate."


def _verdict(summary: Mapping[str, Any]) -> tuple[str, str]:
    """The state of the run in a word or two, and the one sentence that stands on top."""
    released, unit = summary.get("released", False), summary.get("privacy_unit", "record")
    if _is_test(summary):
        sentence = (
            "This was a rehearsal in test mode: its noise can be repeated by whoever knows the "
            "seed, so nothing here is private, whatever the figures below would otherwise say."
        )
        if not released and (
            summary.get("refusal") or summary.get("audit", {}).get("verdict") == "fail"
        ):
            sentence += f" Not released: {_refusal(summary)}"
        return "Not private", sentence
    if not released:
        return "Not released", f"This model is not released: {_refusal(summary)}"
    if "epsilon" not in summary:
        return "Released", f"This model is released{_audit_clause(summary.get('audit', {}))}."
    chance = figures.at_most(figures.chance(summary["epsilon"], summary.get("delta", 0.0)))
    used = f"{unit} was" if unit != "person" else "person’s records were"
    if summary.get("claim", unit) == "(person, period)":
        used = "person’s records of one period were"
    return "Released", (
        f"From this model alone, nobody can tell with more than a {chance} chance of being right "
        f"whether a given {used} used to train it, where tossing a coin gives "
        f"50\N{NO-BREAK SPACE}%{_audit_clause(summary.get('audit', {}))}."
    )


def _tightest(ledger: Mapping[str, Any]) -> str | None:
    """The block with the smallest share of its cap left; blocks to train on before the others."""
    shares = {
        name: (block.get("role") != "train", block["remaining"] / block["cap"])
        for name, block in ledger.items()
        if block.get("cap") and "remaining" in block
    }
    return min(shares, key=lambda name: shares[name]) if shares else None


def _environment() -> Environment:
    drawing = (
        "chance",
        "odds",
        "stacked",
        "whisker",
        "bound",
        "curve",
        "hundred",
        "scale",
        "shade",
    )
    writing = ("count", "real", "upper", "lower", "score", "percent", "at_most", "power", "written")
    arranging = ("funnel", "matrix", "reason")
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        name: getattr(figures, name) for name in (*drawing, *writing, *arranging)
    }
    environment.globals |= {"axis": figures.Axis.over, "arms": ARMS}
    environment.globals |= {"kind": _kind, "filters": FILTERS}
    return environment


def render(summary: Mapping[str, Any]) -> str:
    """The report as one self-contained HTML page.

    Args:
        summary: the figures of a run, each with its provenance (see the module's docstring).

    Returns:
        HTML without script, outside requests or fonts.

    Raises:
        UnsourcedFigureError: a number has no provenance, or one that may not be published.
    """
    present = _sourced(summary)
    status, sentence = _verdict(present)
    ledger = present.get("ledger", {})
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            s=present,
            status=status,
            verdict=sentence,
            test=_is_test(present),
            refusal=None if present.get("released") else _refusal(present),
            tightest=_tightest(ledger),
            payer=_payer(present, "utility.macro_f1"),
            src=partial(_source_tags, present),
            at=partial(_at, present),
            all_figures=[(p, v, _provenance(present, p)) for p, v in _numbers(present)],
        )
    )


def _line(label: str, *parts: str | None) -> str:
    text = " · ".join(part for part in parts if part) or "not in this run"
    # A name from outside may hold line breaks or terminal escapes; a line is a line of print.
    words = "".join(c if c.isprintable() else " " for c in text).split()
    return f"{label:<9}{' '.join(words)}"


def concise(summary: Mapping[str, Any]) -> list[str]:
    """The figures of a run in exactly ten lines for a terminal.

    Print them without markup: brackets in them are intervals.

    Args:
        summary: as for `render`.

    Returns:
        Ten lines without line breaks or control characters.

    Raises:
        UnsourcedFigureError: as for `render`.
    """
    s = _sourced(summary)

    def put(template: str, path: str, write: Any = str) -> str | None:
        value = _at(s, path)
        return None if value is None else template.format(write(value))

    def interval(path: str) -> str:
        ends = _at(s, path)
        return f" [{figures.score(ends[0])}, {figures.score(ends[1])}]" if ends else ""

    status, _ = _verdict(s)
    why = _refusal(s) if not s.get("released") and status != "Not private" else None
    ledger, block = s.get("ledger", {}), _tightest(s.get("ledger", {}))
    left = ledger.get(block, {}) if block else {}
    charges = [
        f"row {c['row']} {str(c.get('purpose', '')).partition(' (')[0]} "
        + figures.upper(c["epsilon_filter"])
        for c in s.get("charges", [])
        if {"row", "epsilon_filter"} <= c.keys()
    ]
    dropped = s.get("cleaning", {}).get("dropped", {})
    worst = max(dropped, key=lambda name: dropped[name], default=None)
    return [
        _line("Run", put("{}", "dataset"), put("{}", "run_id"), f"{status.upper()}", why),
        _line(
            "Privacy",
            put("ε = {}", "epsilon", figures.upper),
            put("δ = {}", "delta", figures.power),
            put("per {}", "claim"),
            put("PLD {}", "accounting.pld", figures.upper),
            put("ledger’s filter {}", "accounting.filter_cost_epsilon", figures.upper),
            put("{}", "notice"),
        ),
        _line(
            "Plan",
            put("σ = {}", "noise_multiplier", figures.real),
            put("q = {}", "sample_rate", figures.real),
            put("T = {}", "steps", figures.count),
            put("C = {}", "max_grad_norm", figures.real),
            put("n = {} declared", "declared_records", figures.count),
        ),
        _line("Charged", *charges, "ε of the ledger’s filter" if charges else None),
        _line(
            "Left",
            f"{figures.lower(left['remaining'])} of ε {figures.lower(left['cap'])} on {block}"
            if left
            else None,
            f"the tightest of {len(ledger)} blocks" if len(ledger) > 1 else None,
        ),
        _line(
            "Cleaned",
            put("{} public documents seen", "cleaning.seen", figures.count),
            put("{} kept", "cleaning.kept", figures.count),
            f"most dropped as {figures.reason(worst)} ({figures.count(dropped[worst])})"
            if worst
            else None,
        ),
        _line(
            "Macro-F1",
            put("{}" + interval("utility.interval"), "utility.macro_f1", figures.score),
            put("{}", "utility.split"),
        ),
        _line(
            "Beside",
            put("public only {}", "utility.public_only", figures.score),
            put("private only, with DP {}", "utility.dp_private_only", figures.score),
        ),
        _line(
            "Audit",
            put("{}", "audit.verdict"),
            put("lower bound {}", "audit.lower_bound", figures.lower),
            put("claimed {}", "audit.claimed", figures.upper),
            put("ceiling {}", "audit.ceiling", figures.real),
        ),
        _line("Verify", put("{}", "evidence.verify")),
    ]


def write_report(summary: Mapping[str, Any], directory: Path) -> Path:
    """Writes `summary.json` and `report.html`, each whole or not at all.

    Args:
        summary: as for `render`; without NaN or infinities.
        directory: made if it is not there.

    Returns:
        The path of the page.

    Raises:
        UnsourcedFigureError: as for `render`; nothing is written then.
        ValueError: a number is not finite; nothing is written then.
    """
    try:
        figures_json = json.dumps(
            summary, allow_nan=False, ensure_ascii=False, indent=2, sort_keys=True
        )
    except ValueError as error:
        raise ValueError(
            "summary must hold finite numbers only; got NaN or an infinity. "
            "Leave out what was not measured."
        ) from error
    page = render(summary)
    directory.mkdir(parents=True, exist_ok=True)
    # A lone surrogate from a damaged name: an escape is valid in JSON, a substitute in HTML.
    write_whole(
        directory / "summary.json", (figures_json + "\n").encode("utf-8", "backslashreplace")
    )
    path = directory / "report.html"
    write_whole(path, page.encode("utf-8", "replace"))
    return path
