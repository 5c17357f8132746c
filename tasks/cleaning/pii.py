"""Level 3, personal information: drops a document that holds identifiers, rather one too many.

Presidio's recognisers (checksums, phone metadata) do the deciding, on *our* list of entities and
with our thresholds. They are called directly: Presidio's engine would run a language model over
every document and look for letters followed by digits that it takes for driver licences.

How: a normalised shadow of the text *and* of the raw document (references and %-escapes resolved,
compatibility forms folded, zero-width characters removed, "at"/"dot" spelt out read as written) is
searched for cheap marks such as "@" or a run of digits; only windows around marks reach Presidio.

Guarantees: a pure function of one record, no network, the same decision on every machine; the work
is bounded by characters and windows, and a document beyond the bound is dropped, not waved
through. They stop at names, addresses and anything else without a structure (the NER tier of
finance and health profiles), and at identifiers split by words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import unquote

import phonenumbers

from tasks.cleaning.base import Cleaner, Document, Drop, OptionError
from tasks.cleaning.text import unescape

if TYPE_CHECKING:
    from tasks.cleaning.recognisers import Recogniser

REASONS = {
    "EMAIL_ADDRESS": "pii_email",
    "PHONE_NUMBER": "pii_phone",
    "CREDIT_CARD": "pii_card",
    "IBAN_CODE": "pii_iban",
    "IP_ADDRESS": "pii_ip",
    "US_SSN": "pii_ssn",
    "CRYPTO": "pii_crypto",
    "URL": "pii_url",
}

# Least score that counts. Checksums and phone metadata score high; the rest needs its context.
THRESHOLDS = {
    "EMAIL_ADDRESS": 0.5,
    "PHONE_NUMBER": 0.4,
    "CREDIT_CARD": 0.5,
    "IBAN_CODE": 0.5,
    "IP_ADDRESS": 0.5,
    "US_SSN": 0.4,
    "CRYPTO": 0.5,
    "URL": 0.5,
}

# Format characters, fillers and variation selectors: nothing a reader sees, and what hides an
# address from a pattern. The controls of C0 except space, tab and line ends do the same.
_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff"
    "\x00-\x08\x0e-\x1f\x7f]"
)
_REVERSED = re.compile("\u202e([^\u202c\n]{1,300})")
_PERCENT = re.compile(r"%[0-9a-fA-F]{2}")
_FULL_STOP = re.compile("(?<=[A-Za-z0-9])[\u3002\uff61](?=[A-Za-z])")
_DIGITS = re.compile(r"[^\W\D]")

_AT = re.compile(r"\s*[\[({<]\s*(?:at|@)\s*[\])}>]\s*|\s+at\s+|\s+@\s*|\s*@\s+", re.IGNORECASE)
_DOT = r"(?:\s*[\[({<]\s*(?:dot|\.)\s*[\])}>]\s*|\s+dot\s+|\s*\.(?=\w))"
_LOCAL = re.compile(rf"(?<![\w-])[\w+-]{{1,64}}(?:{_DOT}[\w+-]{{1,64}}){{0,4}}$", re.IGNORECASE)
_DOMAIN = re.compile(rf"[\w-]{{1,63}}(?:{_DOT}[\w-]{{1,63}}){{1,5}}", re.IGNORECASE)
_DOTS = re.compile(_DOT, re.IGNORECASE)
_WORD_DOT = re.compile(r"[\[({<]|\s+dot\s+", re.IGNORECASE)
# "Find it at example dot org" names a site, "back at the dot com bubble" names nothing.
_NO_LOCAL_WORDS = (
    "a all and are available back be best bought check come find for found go great he her here "
    "him i in is it just laugh look looked looking looks me more now of on online or out page see "
    "seen she site that the them there they this up us visit was we website were what you"
)
_NO_LOCAL = frozenset(_NO_LOCAL_WORDS.split())
_NO_DOMAIN_WORDS = "a an any every her his its my our some that the their this your"
_NO_DOMAIN = frozenset(_NO_DOMAIN_WORDS.split())

# Cheap marks; only what surrounds one is shown to Presidio. Every quantifier is bounded.
_MARKS = {
    "EMAIL_ADDRESS": re.compile("@"),
    "PHONE_NUMBER": re.compile(r"\d(?:[\s().\-/+\u2010-\u2015~]{0,3}\d){6,19}"),
    "CREDIT_CARD": re.compile(r"\d(?:[ -]?\d){11,18}"),
    "IBAN_CODE": re.compile(r"[A-Za-z]{2}\d{2}[ -]?[A-Za-z0-9]"),
    "IP_ADDRESS": re.compile(r"\d\.\d{1,3}\.\d{1,3}\.\d|[0-9a-fA-F:]:[0-9a-fA-F]{0,4}:"),
    "US_SSN": re.compile(r"\d{3}[- .]?\d{2}[- .]?\d{4}"),
    "CRYPTO": re.compile(r"(?:bc1|[13])[a-zA-HJ-NP-Z0-9]{25}"),
    "URL": re.compile(r"https?://[^\s<>?]{1,500}\?", re.IGNORECASE),
}
_BEFORE, _AFTER = 120, 320  # an address has 64 characters before its "@" and 255 behind it
_WINDOW = 4_000
_LINK = re.compile(r"(?:https?://|www\.)[^\s<>\"']{1,2000}", re.IGNORECASE)


def shadow(text: str) -> str:
    """Return a text as somebody determined to read the identifiers in it would.

    References and %-escapes are resolved, compatibility forms folded (NFKC), digits of every
    script turned to ASCII, hidden characters removed, reversed runs turned round, and addresses
    that are spelt out ("jane dot roe at example dot org") appended as written.
    """
    if not text.isascii():
        turned = [run[::-1] for run in _REVERSED.findall(text)]
        text = "\n".join([text, *turned])
    for _ in range(3):
        before = text
        if "&" in text:
            text = unescape(text)
        if _PERCENT.search(text):
            text = unquote(text, errors="replace")
        if text == before:
            break
    text = _HIDDEN.sub("", text)
    if not text.isascii():
        text = _FULL_STOP.sub(".", unicodedata.normalize("NFKC", text))
        text = _DIGITS.sub(lambda match: str(unicodedata.decimal(match[0])), text)
    spelt = _spelt_out(text)
    return "\n".join([text, *spelt]) if spelt else text


def _spelt_out(text: str) -> list[str]:
    """Return the addresses that a text spells with words or brackets."""
    if not ("@" in text or _WORD_DOT.search(text)):
        return []
    found = []
    for at in _AT.finditer(text):
        domain = _DOMAIN.match(text, at.end(), at.end() + 300)
        if domain is None:
            continue
        worded = bool(_WORD_DOT.search(domain[0])) or not at[0].strip().isalpha()
        local = _LOCAL.search(text, max(0, at.start() - 200), at.start()) if worded else None
        if local is None:
            continue
        plain = at[0].strip().isalpha()
        name, host = (_DOTS.sub(".", part[0]) for part in (local, domain))
        if plain and name.rpartition(".")[2].lower() in _NO_LOCAL:
            continue
        if host.partition(".")[0].lower() not in _NO_DOMAIN:
            found.append(f"{name}@{host}")
    return found


@dataclass(frozen=True, slots=True)
class Finding:
    """An identifier in the shadow of a text.

    Attributes:
        entity: Presidio's name of its kind.
        start: First character, in the shadow.
        end: One behind the last.
        score: Presidio's, in [0, 1].
    """

    entity: str
    start: int
    end: int
    score: float


class WorkBudgetError(Exception):
    """Raised when a document holds more marks or characters than one may cost."""


class Pii(Cleaner):
    """Drops a document that holds an identifier of a listed kind."""

    name = "pii"
    level = "pii"
    record_local = True
    reasons = (*REASONS.values(), "pii_unscanned")
    requires = ("presidio-analyzer", "phonenumbers", "tldextract")

    def __init__(
        self,
        *,
        entities: Sequence[str] = tuple(REASONS),
        thresholds: Mapping[str, float] | None = None,
        phone_regions: Sequence[str] = ("US",),
        max_chars: int = 2_000_000,
        max_windows: int = 2_000,
    ) -> None:
        unknown = sorted((set(entities) | set(thresholds or {})) - set(REASONS))
        if unknown:
            msg = f"pii.entities names {', '.join(unknown)}; known are {', '.join(REASONS)}."
            raise OptionError(msg)
        for entity, value in (thresholds or {}).items():
            if not 0.0 <= value <= 1.0:
                msg = f"pii.thresholds.{entity} must lie in [0, 1]; got {value}."
                raise OptionError(msg)
        wrong = sorted(set(phone_regions) - phonenumbers.SUPPORTED_REGIONS)
        if wrong:
            msg = (
                f"pii.phone_regions names {', '.join(wrong)}, which is no ISO 3166 region that "
                "phonenumbers knows. Write upper-case codes such as US, GB or CN."
            )
            raise OptionError(msg)
        self._entities = tuple(entities)
        self._thresholds = dict(thresholds or {})
        self._phone_regions = tuple(phone_regions)
        self._max_chars = max_chars
        self._max_windows = max_windows

    @cached_property
    def _recognisers(self) -> dict[str, list[Recogniser]]:
        from tasks.cleaning.recognisers import recognisers  # noqa: PLC0415 - imports spaCy

        return recognisers(
            self._entities, thresholds=self._thresholds, phone_regions=self._phone_regions
        )

    def findings(self, text: str) -> list[Finding]:
        """Return the identifiers in a text, by place.

        Raises:
            WorkBudgetError: The text is too long or marked in too many places.
        """
        return sorted(self._search(text), key=lambda finding: (finding.start, finding.end))

    def clean(self, document: Document) -> Document | Drop:
        """Return the document unchanged when neither its text nor its raw form identifies."""
        texts = dict.fromkeys((document.raw, document.text))
        try:
            found = next((found for text in texts for found in self._search(text)), None)
        except WorkBudgetError as error:
            return Drop("pii_unscanned", detail=str(error))
        return document if found is None else Drop(REASONS[found.entity], detail=found.entity)

    def _search(self, text: str) -> Iterator[Finding]:
        if len(text) > self._max_chars:
            msg = f"more than {self._max_chars} characters"
            raise WorkBudgetError(msg)
        text = shadow(text)
        seen = 0
        for entity in self._entities:
            # A long number inside a link is a page, not a telephone.
            searched = _LINK.sub(_blank, text) if entity == "PHONE_NUMBER" else text
            for start, end in _windows(_MARKS[entity], searched):
                seen += 1
                if seen > self._max_windows:
                    msg = f"more than {self._max_windows} places to look at"
                    raise WorkBudgetError(msg)
                for recogniser in self._recognisers[entity]:
                    for first, last, score in recogniser.find(searched[start:end]):
                        yield Finding(entity, start + first, start + last, score)


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _windows(mark: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Yield the stretches around marks, merged where they touch, none much over 4,000 long."""
    start = end = -1
    for match in mark.finditer(text):
        first, last = max(0, match.start() - _BEFORE), min(len(text), match.end() + _AFTER)
        if start < 0:
            start, end = first, last
        elif first <= end and last - start <= _WINDOW:
            end = last
        else:
            yield start, end
            start, end = first, last
    if start >= 0:
        yield start, end
