"""Presidio's recognisers as this project uses them: bounded patterns, checksums, no network.

Importing this module imports Presidio and with it spaCy, seconds of work: `pii` does so on the
first document that holds a mark of an identifier, not before.

Guarantees: every pattern has bounded quantifiers, so the work is linear in the text; public
suffixes come from the snapshot inside tldextract, never from the network; scores are those of the
table below on every machine. They stop at what the patterns can express: identifiers with a
structure.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tldextract
from presidio_analyzer import (
    EntityRecognizer,
    LocalRecognizer,
    Pattern,
    PatternRecognizer,
    RecognizerResult,
)
from presidio_analyzer.predefined_recognizers import (
    CreditCardRecognizer,
    CryptoRecognizer,
    EmailRecognizer,
    IpRecognizer,
    PhoneRecognizer,
    UsSsnRecognizer,
)

from tasks.cleaning.pii import THRESHOLDS

# Presidio's log lines may quote what they could not parse: text of the document.
logging.getLogger("presidio-analyzer").setLevel(logging.CRITICAL)

_SUFFIXES = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)
# Reserved by RFC 2606, 6761 and 8375 or in use inside organisations: no public suffix, and
# addresses all the same.
_SPECIAL_SUFFIX_NAMES = "example invalid test local localhost internal intranet lan corp home onion"
_SPECIAL_SUFFIXES = frozenset(_SPECIAL_SUFFIX_NAMES.split())

_IBAN_LENGTHS = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 "
    "DK18 DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 "
    "IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 "
    "MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 "
    "SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
)
IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _IBAN_LENGTHS.split()}

# Issuer prefixes with the lengths their cards have; Luhn alone passes one number in ten.
_CARDS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})"  # Visa
    r"|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}"  # Mastercard
    r"|3[47]\d{13}"  # American Express
    r"|3(?:0[0-5]|[689]\d)\d{11}"  # Diners Club
    r"|6(?:011|5\d\d|4[4-9]\d)\d{12}(?:\d{3})?|62\d{14}(?:\d{3})?"  # Discover, UnionPay
    r"|35(?:2[89]|[3-8]\d)\d{12}"  # JCB
    r"|(?:50|5[6-9]|6\d)\d{10,17}"  # Maestro
)


class _Email(EmailRecognizer):
    """Addresses at a public suffix or a reserved one, with the lengths that RFC 5321 allows."""

    def validate_result(self, pattern_text: str) -> bool:
        """Return whether the domain of an address can exist."""
        labels = pattern_text.rpartition("@")[2].strip(".-").split(".")
        # The next sentence may be glued to the address: "jane@example.org.Then".
        return any(_can_exist(labels[:length]) for length in range(len(labels), 1, -1))


def _can_exist(labels: Sequence[str]) -> bool:
    if labels[-1].lower() in _SPECIAL_SUFFIXES:
        return True
    found = _SUFFIXES(".".join(labels))
    return bool(found.domain and found.suffix)


class _Card(CreditCardRecognizer):
    """Card numbers by issuer prefix, length and Luhn."""

    def validate_result(self, pattern_text: str) -> bool:
        """Return whether some issuer could have given the number out."""
        digits = re.sub(r"\D", "", pattern_text)
        return bool(_CARDS.fullmatch(digits)) and super().validate_result(digits)


class _Iban(LocalRecognizer):
    """IBANs by registered length and checksum, also where they are glued to a word.

    Presidio's own takes the longest run of characters, and misses what has a letter too many.
    """

    def load(self) -> None:
        """Nothing to load."""

    def analyze(
        self, text: str, entities: list[str], nlp_artifacts: Any = None
    ) -> list[RecognizerResult]:
        """Return the spans in a text that pass the checksum of a country's IBAN."""
        del entities, nlp_artifacts
        starts = (match.start() for match in _IBAN_START.finditer(text))
        spans = [(start, _iban_end(text, start)) for start in starts]
        return [RecognizerResult("IBAN_CODE", start, end, 1.0) for start, end in spans if end]


_IBAN_START = re.compile(r"(?=[A-Z]{2}\d{2}|(?<![A-Za-z0-9])[A-Za-z]{2}\d{2})", re.ASCII)


def _iban_end(text: str, start: int) -> int:
    """Return where the IBAN that begins at `start` ends, 0 when there is none."""
    length = IBAN_LENGTHS.get(text[start : start + 2].upper())
    if length is None:
        return 0
    compact = ""
    end = start
    while end < len(text) and len(compact) < length:
        character = text[end]
        if character.isascii() and character.isalnum():
            compact += character.upper()
        elif character not in " -":
            return 0
        end += 1
    if len(compact) < length or sum(map(str.isdigit, compact)) < 8:
        return 0
    digits = "".join(str(int(character, 36)) for character in compact[4:] + compact[:4])
    return end if int(digits) % 97 == 1 else 0


class _Ip(IpRecognizer):
    """Addresses of machines that may be somebody's: not loopback, not a chain of five numbers."""

    def invalidate_result(self, pattern_text: str) -> bool:
        """Return whether an address points at nobody."""
        try:
            address = ipaddress.ip_interface(pattern_text).ip
        except ValueError:
            return True
        if address.is_loopback or address.is_unspecified or address.is_multicast:
            return True
        if address.version == 4:
            return False
        # "a::b" is a scope operator in several languages; an address has digits and groups.
        groups = [group for group in pattern_text.split(":") if group]
        return len(groups) < 3 or not any(map(str.isdigit, pattern_text))


_LOCAL = r"(?<![\w.+-])[\w!#$%&'*+/=?^`{|}~-][\w!#$%&'*+/=?^`{|}~.-]{0,63}"  # of bounded length
_EMAILS = [
    # Two domains: one that ends where ASCII does, since Chinese sets no space behind it.
    Pattern("address", _LOCAL + r"@[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,8}", 0.5),
    Pattern("international address", _LOCAL + r"@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}", 0.5),
]
_CARD = Pattern("card", r"(?<![\d.])\d(?:[ -]?\d){11,18}(?!\d)", 0.3)
_URL = Pattern(
    "identifying query",
    r"https?://[^\s<>\"'?]{1,500}\?[^\s<>\"']{0,500}?(?<![a-z])(?:user(?:_?name|_?id)?|uid|e?mail|"
    r"phone|tel|mobile|token|access_token|session(?:_?id)?|sid|jsessionid|auth|account|ssn)"
    r"=[^&\s\"'<>]{3,100}",
    0.6,
)


@dataclass(frozen=True, slots=True)
class Recogniser:
    """A Presidio recogniser with what surrounds it.

    Attributes:
        entity: What it finds.
        engine: The recogniser.
        threshold: Least score that counts.
        context: Whole words shortly before a finding that raise its score, as in Presidio by 0.35.
        veto: Whole words shortly before a finding that make it something else.
    """

    entity: str
    engine: EntityRecognizer
    threshold: float
    context: re.Pattern[str] | None = None
    veto: re.Pattern[str] | None = None

    def find(self, text: str) -> Iterator[tuple[int, int, float]]:
        """Yield start, end and score of every finding at or above the threshold."""
        for result in self.engine.analyze(text, [self.entity], None):
            before = text[max(0, result.start - 40) : result.start].lower()
            if self.veto and self.veto.search(before):
                continue
            score = result.score
            if self.context and self.context.search(before):
                score = min(1.0, max(score + 0.35, 0.4))
            if score >= self.threshold:
                yield result.start, result.end, score


def _words(words: str) -> re.Pattern[str]:
    """Return a pattern of whole words; substrings where a script sets no spaces."""
    parts = [rf"\b{word}\b" if word.isascii() else word for word in words.split()]
    return re.compile("|".join(parts))


_CALL = _words(
    "phone telephone tel cell cellphone mobile call calling called fax whatsapp sms hotline dial "
    "telefon téléphone teléfono 电话 手机 拨打 联系 微信 電話 携帯 전화 телефон"
)
_NO_CALL = re.compile(r"\b(?:isbn|issn|doi|oclc|asin|ean|upc|isbn-1[03])\b[\s:#-]*$")
_NO_IP = re.compile(
    r"(?:\b(?:version|versions|v|ver|vers|release|build|firmware|update|patch|kernel|section|"
    r"chapter|clause|paragraph|figure|table)|§)\W{0,3}(?:\w+\W{1,3}){0,2}$|\d\.$"
)


class _WeakPhone(PhoneRecognizer):
    """Numbers that are possible rather than valid: they count after a word such as "call"."""

    SCORE = 0.05


def recognisers(
    entities: Sequence[str], *, thresholds: Mapping[str, float], phone_regions: Sequence[str]
) -> dict[str, list[Recogniser]]:
    """Return the recognisers of each entity.

    Args:
        entities: Names out of `THRESHOLDS`.
        thresholds: Overrides of `THRESHOLDS`, by entity.
        phone_regions: ISO 3166 regions whose national numbers count; international ones always do.
    """
    regions = tuple(phone_regions) or ("ZZ",)  # ZZ: only numbers that name their country
    made: dict[str, Callable[[], list[tuple[EntityRecognizer, Any, Any]]]] = {
        "EMAIL_ADDRESS": lambda: [(_Email(patterns=_EMAILS), None, None)],
        "PHONE_NUMBER": lambda: [
            (PhoneRecognizer(supported_regions=regions, leniency=1), None, _NO_CALL),
            (_WeakPhone(supported_regions=regions, leniency=0), _CALL, _NO_CALL),
        ],
        "CREDIT_CARD": lambda: [(_Card(patterns=[_CARD]), None, None)],
        "IBAN_CODE": lambda: [(_Iban(supported_entities=["IBAN_CODE"]), None, None)],
        "IP_ADDRESS": lambda: [(_Ip(), None, _NO_IP)],
        "US_SSN": lambda: [
            (UsSsnRecognizer(), _words("social security ssn ssns taxpayer"), None),
        ],
        "CRYPTO": lambda: [(CryptoRecognizer(), None, None)],
        "URL": lambda: [(PatternRecognizer("URL", patterns=[_URL]), None, None)],
    }
    return {
        entity: [
            Recogniser(entity, engine, thresholds.get(entity, THRESHOLDS[entity]), context, veto)
            for engine, context, veto in made[entity]()
        ]
        for entity in entities
    }
