"""How the report writes its numbers and draws its pictures.

Numbers: a bound on privacy loss is rounded against ourselves (spent up, left down), so that no
printed digit promises more than the ledger holds. The exact values stand in `summary.json`.

Pictures: inline SVG without a fixed width. Horizontal positions are percentages and heights are
pixels, so that lettering keeps its size on a phone, and colours come from the page's style sheet.
Every picture says in its `aria-label` what it shows. Text from outside is escaped by `Markup`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import Any

from markupsafe import Markup

MINUS = "\N{MINUS SIGN}"
LEVELS = {
    "text": "After language and repair",
    "domain": "After the domain check",
    "pii": "After the search for personal data",
}
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _decimals(value: float, places: int, rounding: str) -> str:
    # Twelve significant digits first: 0.1 + 0.2 is to be 0.3, and not to be rounded up from it.
    if abs(value) >= 1e15:
        return power(value)
    exact = Decimal(f"{value:.12g}").quantize(Decimal(1).scaleb(-places), rounding=rounding)
    text = f"{exact:,f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.replace("-", MINUS) if exact else "0"


def count(value: float) -> str:
    """A count with thousands separated; a noised one may be negative or fractional."""
    return _decimals(value, 0, ROUND_HALF_EVEN)


def real(value: float, places: int = 4) -> str:
    """A number to at most `places` decimals, more where it would vanish otherwise."""
    if value != 0 and abs(value) < 10.0**-places:
        return power(value)
    return _decimals(value, places, ROUND_HALF_EVEN)


def upper(value: float) -> str:
    """A privacy loss, rounded up at the fourth decimal."""
    return _decimals(value, 4, ROUND_CEILING)


def lower(value: float) -> str:
    """What is left of a budget, or a lower bound, rounded down at the fourth decimal."""
    return _decimals(value, 4, ROUND_FLOOR)


def score(value: float) -> str:
    """A score between 0 and 1, always to three decimals, so that columns align."""
    return f"{value:.3f}".replace("-", MINUS)


def percent(share: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def at_most(share: float) -> str:
    """A probability that bounds an attacker, rounded up to one decimal of a percent."""
    return percent(math.ceil(1000 * share - 1e-9) / 1000)


def power(value: float) -> str:
    """A small number as a power of ten: 1e-5 is 10⁻⁵, 2.5e-5 is 2.5 × 10⁻⁵."""
    mantissa, exponent = f"{value:.2e}".split("e")
    tens = "10" + str(int(exponent)).translate(SUPERSCRIPTS)
    digits = mantissa.rstrip("0").rstrip(".").replace("-", MINUS)
    if digits == "1":
        return tens
    return f"{digits}\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}{tens}"


def chance(epsilon: float, delta: float = 0.0) -> float:
    """The best chance of guessing right whether one unit was used, from a prior of 50:50.

    Under (ε, δ)-DP a test's true and false positive rates obey TPR ≤ e^ε·FPR + δ, and so do
    their complements (Kairouz, Oh, Viswanath 2015). Maximising (TPR + 1 − FPR)/2 under both gives
    (e^ε + δ)/(1 + e^ε).

    Args:
        epsilon: ≥ 0; may be so large that e^ε overflows.
        delta: in [0, 1].

    Returns:
        A probability in [1/2, 1].
    """
    other = math.exp(-epsilon)
    return min(1.0, (1.0 + delta * other) / (1.0 + other))


def odds(epsilon: float) -> str:
    """The factor e^ε as odds to one, rounded up; powers of ten once digits say nothing more."""
    if epsilon > 13:
        return f"10{str(math.ceil(epsilon / math.log(10))).translate(SUPERSCRIPTS)} : 1"
    factor = math.exp(epsilon)
    digits = 2 if factor < 100 else 0
    return f"{_decimals(factor, digits, ROUND_CEILING)} : 1"


@dataclass(frozen=True)
class Axis:
    """A linear axis from `low` to `high` that places values at percentages of the width."""

    low: float
    high: float
    marks: tuple[float, ...]

    @classmethod
    def over(cls, values: Sequence[float], *, low: float | None = None, wanted: int = 5) -> "Axis":
        """An axis that holds `values` with round marks.

        Args:
            values: what is to be shown; at least one.
            low: where the axis starts; by default at the round mark below the smallest value.
            wanted: about how many intervals between marks.
        """
        bottom, top = min(values) if low is None else low, max(values)
        # Marks are rounded to 12 digits: a range that they cannot resolve is widened.
        if top - bottom <= 1e-9 * max(1.0, abs(top)):
            top = bottom + 1.0
        raw = (top - bottom) / wanted
        unit = 10.0 ** math.floor(math.log10(raw))
        step = unit * next(m for m in (1, 2, 2.5, 5, 10) if m * unit >= raw * (1 - 1e-9))
        first = math.floor(bottom / step + 1e-9)
        last = math.ceil(top / step - 1e-9)
        marks = tuple(round(i * step, 12) for i in range(first, last + 1))
        return cls(marks[0], marks[-1], marks)

    def share(self, value: float) -> float:
        """Where `value` lies, in percent of the axis, cut to its ends."""
        part = (value - self.low) / (self.high - self.low)
        return round(100 * min(1.0, max(0.0, part)), 3)


def _svg(body: Markup, *, height: int, label: str, css: str = "strip") -> Markup:
    return Markup(
        '<svg class="{}" width="100%" height="{}" role="img" aria-label="{}">{}</svg>'
    ).format(css, height, label, body)


def _row(axis: Axis, body: Markup, label: str) -> Markup:
    """A row of a plot as high as its lettering: grid from edge to edge, `body` around y = 0."""
    lines = Markup("").join(
        Markup('<line class="grid" x1="{0}%" x2="{0}%" y1="0" y2="100%"/>').format(axis.share(mark))
        for mark in axis.marks
    )
    middle = Markup('<svg class="middle" y="50%" width="100%" height="1">{}</svg>').format(body)
    return _svg(lines + middle, height=36, label=label)


def scale(axis: Axis) -> Markup:
    """The marks of an axis, lettered; decoration for the eye, since every row says its values."""
    letters = Markup("").join(
        Markup('<text class="mark" x="{}%" y="14" text-anchor="middle">{}</text>').format(
            axis.share(mark), real(mark)
        )
        for mark in axis.marks
    )
    return Markup('<svg class="strip" width="100%" height="18" aria-hidden="true">{}</svg>').format(
        letters
    )


def stacked(parts: Sequence[tuple[str, float]], whole: float, label: str) -> Markup:
    """A bar filled from the left.

    Args:
        parts: (style class, amount ≥ 0), in order.
        whole: the amount that fills the width; more than it is cut.
        label: what a reader without the picture is told.
    """
    axis = Axis(0.0, whole if whole > 0 else 1.0, ())
    body, start = Markup('<rect class="track" x="0" y="3" width="100%" height="12"/>'), 0.0
    for css, amount in parts:
        end = start + max(0.0, amount)
        width = round(axis.share(end) - axis.share(start), 3)
        if width > 0:
            body += Markup('<rect class="{}" x="{}%" y="3" width="{}%" height="12"/>').format(
                css, axis.share(start), width
            )
        start = end
    return _svg(body, height=18, label=label)


def whisker(axis: Axis, value: float, interval: Sequence[float] | None, *, css: str) -> Markup:
    """One row of a forest plot: a dot with its interval."""
    body, label = Markup(""), score(value)
    if interval:
        low, high = (axis.share(end) for end in interval)
        body += Markup(
            '<line class="{0}" x1="{1}%" x2="{2}%" y1="0" y2="0"/>'
            '<line class="{0}" x1="{1}%" x2="{1}%" y1="-5" y2="5"/>'
            '<line class="{0}" x1="{2}%" x2="{2}%" y1="-5" y2="5"/>'
        ).format(f"whisker {css}", low, high)
        label += f", interval {score(interval[0])} to {score(interval[1])}"
    body += Markup('<circle class="dot {}" cx="{}%" cy="0" r="5.5"/>').format(
        css, axis.share(value)
    )
    return _row(axis, body, label)


def bound(
    axis: Axis,
    *,
    lower_bound: float,
    ceiling: float | None = None,
    claim: float | None = None,
    css: str = "main",
) -> Markup:
    """One row of an audit: what was shown, how far the test could have seen, what is claimed."""
    body, label = Markup(""), f"lower bound {lower(lower_bound)}"
    if ceiling is not None:
        body += Markup(
            '<rect class="reach" x="0" y="-4" width="{0}%" height="8"/>'
            '<line class="ceiling" x1="{0}%" x2="{0}%" y1="-9" y2="9"/>'
        ).format(axis.share(ceiling))
        label += f", ceiling {real(ceiling)}"
    if claim is not None:
        # Far beyond the row's height: the picture is cut at its edges.
        body += Markup('<line class="claim" x1="{0}%" x2="{0}%" y1="-99" y2="99"/>').format(
            axis.share(claim)
        )
        label += f", claimed {upper(claim)}"
    body += Markup(
        '<rect class="found {0}" x="0" y="-4" width="{1}%" height="8"/>'
        '<circle class="dot {0}" cx="{1}%" cy="0" r="5.5"/>'
    ).format(css, axis.share(lower_bound))
    return _row(axis, body, label)


def curve(steps: Sequence[float], losses: Sequence[float], claim: float | None) -> Markup:
    """The privacy loss ε over the steps of a run, below the claimed ε.

    Args:
        steps: ascending, at least two.
        losses: as many, each ≥ 0.
        claim: the ε claimed, drawn as a line across.
    """
    height = 200
    across = Axis.over(steps, low=0.0)
    # The last step is always lettered; a round mark that would run into it is not.
    near = tuple(mark for mark in across.marks if mark < 0.92 * max(steps))
    across = Axis(0.0, max(steps), (*near, max(steps)))
    up = Axis.over([*losses, claim or 0.0], low=0.0, wanted=4)
    points = [(across.share(s), 100 - up.share(e)) for s, e in zip(steps, losses, strict=True)]
    line = " ".join(f"{x:g},{y:g}" for x, y in points)
    body = Markup("").join(
        Markup(
            '<line class="grid" x1="0" x2="100%" y1="{0:g}" y2="{0:g}"/>'
            '<text class="mark" x="-8" y="{1:g}" text-anchor="end">{2}</text>'
        ).format(y, y + 4, real(mark))
        for mark in up.marks
        for y in [height * (1 - up.share(mark) / 100)]
    )
    body += Markup("").join(
        Markup('<text class="mark" x="{}%" y="{}" text-anchor="middle">{}</text>').format(
            across.share(mark), height + 18, count(mark)
        )
        for mark in across.marks
    )
    body += Markup(
        '<svg x="0" y="0" width="100%" height="{0}" viewBox="0 0 100 100"'
        ' preserveAspectRatio="none" overflow="visible">'
        '<polygon class="under" points="{1:g},100 {2} {3:g},100"/>'
        '<polyline class="loss" points="{2}" vector-effect="non-scaling-stroke"/></svg>'
    ).format(height, points[0][0], line, points[-1][0])
    label = f"ε rises from {upper(losses[0])} at step {count(steps[0])}"
    label += f" to {upper(losses[-1])} at step {count(steps[-1])}"
    if claim is not None:
        body += Markup('<line class="claim" x1="0" x2="100%" y1="{0:g}" y2="{0:g}"/>').format(
            height * (1 - up.share(claim) / 100)
        )
        label += f"; claimed {upper(claim)}"
    body += Markup('<circle class="dot main" cx="{}%" cy="{:g}" r="4.5"/>').format(
        points[-1][0], height * points[-1][1] / 100
    )
    return _svg(body, height=height + 26, label=label, css="plot")


def hundred(right: float) -> Markup:
    """A hundred guesses as dots: half fall to a coin, the next to the attacker, the rest to none.

    Args:
        right: the attacker's best chance, in [1/2, 1]; rounded up to whole dots.
    """
    won = min(100, math.ceil(100 * right - 1e-9))
    dots = Markup("").join(
        Markup('<circle class="{}" cx="{}" cy="{}" r="4"/>').format(
            "coin" if i < 50 else "gain" if i < won else "rest",
            6 + 12 * (i % 10),
            6 + 12 * (i // 10),
        )
        for i in range(100)
    )
    label = f"Of 100 guesses at most {won} are right; tossing a coin gets 50."
    return Markup(
        '<svg class="hundred" viewBox="0 0 120 120" role="img" aria-label="{}">{}</svg>'
    ).format(label, dots)


def shade(share: float) -> Markup:
    """The style of a cell of a confusion matrix that holds `share` of its row.

    The tint jumps at one half, where the lettering turns white: in between neither dark nor white
    letters would reach a contrast of 4.5 : 1.
    """
    share = min(1.0, max(0.0, share))
    if share < 0.5:
        return Markup("background:rgba(31,86,115,{:.2f})").format(0.8 * share)
    return Markup("background:rgba(31,86,115,{:.2f});color:#fff").format(0.64 + 0.36 * share)


def funnel(cleaning: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """(stage, documents that are left after it, documents that it dropped), from the first on."""
    seen, by_level = cleaning.get("seen"), cleaning.get("by_level", {})
    if not seen:
        return []
    order = [*(level for level in LEVELS if level in by_level), *sorted(by_level.keys() - LEVELS)]
    stages, left = [("Arrived", seen, 0)], seen
    for level in order:
        left -= by_level[level]
        stages.append((LEVELS.get(level, f"After {level}"), left, by_level[level]))
    if "kept" in cleaning and stages[-1][1] != cleaning["kept"]:
        stages.append(("Kept", cleaning["kept"], stages[-1][1] - cleaning["kept"]))
    return stages


def reason(name: str) -> str:
    """A drop reason as words: pii_email becomes “personal information: email”."""
    words = name.replace("_", " ")
    return words.replace("pii ", "personal information: ", 1) if name.startswith("pii_") else words


def written(value: Any) -> str:
    """A figure for the table of all figures: exact, long lists by their ends."""
    if not isinstance(value, list):
        return f"{value:,}".replace("-", MINUS) if isinstance(value, int) else repr(value)
    if isinstance(value[0], list):
        return f"{len(value)} × {len(value[0])} counts"
    if len(value) <= 3:
        return ", ".join(written(part) for part in value)
    return f"{written(value[0])} … {written(value[-1])} ({len(value)} values)"


def matrix(utility: Mapping[str, Any]) -> list[tuple[str, list[tuple[float, float]]]]:
    """Rows of the confusion matrix: the class, and (count, share of its row) for each guess."""
    counts = utility.get("confusion", [])
    names = utility.get("classes", [])
    names = names if len(names) == len(counts) else [f"class {i + 1}" for i in range(len(counts))]
    # Noised counts may be negative; a share is only a tint, so negatives weigh nothing in it.
    totals = [sum(max(0.0, cell) for cell in row) or 1.0 for row in counts]
    return [
        (str(name), [(cell, max(0.0, cell) / total) for cell in row])
        for name, row, total in zip(names, counts, totals, strict=True)
    ]
