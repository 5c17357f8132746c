"""What must not get out, and every form in which it is recognised.

A text or a seed is bytes, looked for anywhere: as they are, in hex, in Base64 at each alignment, and as
Python would print them; a seed by every eight bytes in a row. A number is looked for as a number: a
whole token, never digits inside a longer number, a hash or an identifier. Dates, UUIDs and line numbers
of tracebacks are no numbers. A metric is recognised from six significant digits on, also in per cent.

What this cannot see: a text cut to less than its whole, a number in words, anything encrypted.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

WINDOW = 8
_FEWEST_DIGITS = 6
_NO_NUMBERS = re.compile(
    rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"  # a UUID
    rb"|\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?"  # a date, with its time
    rb'|", line \d+'  # a place in a traceback
)
_NUMBER = re.compile(rb"(?<![0-9A-Za-z.])\d+(?:\.\d+)?(?:[eE][-+]?\d{1,2})?(?![0-9A-Za-z]|\.\d)")
_GROUPED = re.compile(rb"(?<![\[0-9A-Za-z.,])\d{1,3}(?:,\d{3})+(?![\],0-9A-Za-z])")
# Shorter runs of printable bytes come about by chance where there is no text.
_PRINTABLE = re.compile(rb"[\x20-\x7e]{12,}")

Found = set[tuple[str, str]]
"""(needle, encoding) pairs."""


class Needles:
    """A set of needles, by name."""

    def __init__(self) -> None:
        self._literals: dict[int, dict[bytes, tuple[str, str]]] = {}
        self._prefixes: NDArray[np.uint64] | None = None
        self._counts: dict[float, str] = {}
        self._metrics: list[tuple[float, str]] = []
        self._series: list[tuple[re.Pattern[bytes], str]] = []

    def add_text(self, name: str, value: str) -> None:
        """A marker of at least eight bytes."""
        for encoding, form in _forms(value.encode()):
            self._add(name, encoding, form)
        escaped = json.dumps(value)[1:-1]
        self._add(name, "JSON", escaped.encode())
        self._add(name, "JSON", json.dumps(escaped)[1:-1].encode())
        self._add(name, "URL", quote(value).encode())
        self._add(name, "UTF-16", value.encode("utf-16-le"))

    def add_seed(self, name: str, value: bytes) -> None:
        """A secret, of which no eight bytes in a row may be seen."""
        for start in range(len(value) - WINDOW + 1):
            for encoding, form in _forms(value[start : start + WINDOW]):
                self._add(name, encoding, form)

    def add_count(self, name: str, value: int) -> None:
        """A whole number."""
        self._counts.setdefault(float(value), name)

    def add_metric(self, name: str, value: float) -> None:
        """An exact figure, or the same in per cent."""
        self._metrics += [(value, name), (100 * value, name)]

    def add_series(self, name: str, values: list[int]) -> None:
        """Whole numbers one after another, whatever separates them."""
        pattern = rb"\D{1,8}".join(b"%d" % v for v in values)
        self._series.append((re.compile(rb"(?<![\d.])%b(?!\d)" % pattern), name))

    def found_in(self, content: bytes) -> Found:
        """What stands in bytes."""
        text = b"\n".join(_PRINTABLE.findall(content)) if b"\0" in content else content
        return self._literals_in(content) | self._numbers_in(_NO_NUMBERS.sub(b" ", text))

    def found_among(self, values: NDArray[np.generic]) -> Found:
        """What stands in an array of numbers.

        Metrics are not looked for in single precision: vectors and weights hold so many values that one
        agrees with a metric by chance.
        """
        found = {(self._counts[float(v)], "value") for v in np.unique(values) if v in self._counts}
        for metric, name in self._metrics if values.dtype == np.float64 else ():
            if np.isclose(values, metric, rtol=5e-7, atol=0).any():
                found.add((name, "value"))
        return found

    def _add(self, name: str, encoding: str, form: bytes) -> None:
        if len(form) < WINDOW:
            raise ValueError(f"{name} has {len(form)} bytes in {encoding}; at least {WINDOW} tell.")
        prefix = int.from_bytes(form[:WINDOW], "little")
        self._literals.setdefault(prefix, {}).setdefault(form, (name, encoding))
        self._prefixes = None

    def _literals_in(self, content: bytes) -> Found:
        if self._prefixes is None:
            self._prefixes = np.array(sorted(self._literals), dtype="<u8")
        found: Found = set()
        for shift in range(WINDOW if self._literals else 0):
            count = (len(content) - shift) // WINDOW
            if count < 1:
                break
            words = np.frombuffer(content, "<u8", count, shift)
            places = np.searchsorted(self._prefixes, words)
            places[places == len(self._prefixes)] = 0
            for k in np.flatnonzero(self._prefixes[places] == words).tolist():
                start = shift + WINDOW * k
                for form, label in self._literals[int(words[k])].items():
                    if content.startswith(form, start):
                        found.add(label)
        return found

    def _numbers_in(self, text: bytes) -> Found:
        found = {(name, "series") for pattern, name in self._series if pattern.search(text)}
        tokens = set(_NUMBER.findall(text)) if self._counts or self._metrics else set()
        tokens |= {t.replace(b",", b"") for t in _GROUPED.findall(text)} if self._counts else set()
        for token in tokens:
            value = float(token)
            if value in self._counts:
                found.add((self._counts[value], "number"))
            unit = _last_place(token)
            if unit is not None:
                found |= {(name, "number") for m, name in self._metrics
                          if abs(value - m) <= max(unit, 1e-12 * abs(m))}  # fmt: skip
        return found


def _last_place(token: bytes) -> float | None:
    """What one unit of a token's last digit is worth; None if it has too few digits to tell."""
    mantissa, _, exponent = token.lower().partition(b"e")
    decimals = len(mantissa.partition(b".")[2])
    if len(mantissa.replace(b".", b"").lstrip(b"0")) < _FEWEST_DIGITS:
        return None
    return 10.0 ** (int(exponent or 0) - decimals)


def _forms(value: bytes) -> Iterator[tuple[str, bytes]]:
    yield "raw", value
    yield "hex", value.hex().encode()
    yield "hex", value.hex().upper().encode()
    yield "repr", repr(value)[2:-1].encode()
    yield "list", ", ".join(map(str, value)).encode()
    for before in range(3):
        # Only characters that the value alone decides: its neighbours have a part in the others.
        first, last = -(-before * 8 // 6), (before + len(value)) * 8 // 6
        padded = bytes(before) + value
        yield "Base64", base64.b64encode(padded)[first:last]
        yield "Base64", base64.urlsafe_b64encode(padded)[first:last]
