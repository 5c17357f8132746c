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
from collections.abc import Callable, Mapping, Sequence

import tldextract
from presidio_analyzer import EntityRecognizer, Pattern, PatternRecognizer
from presidio_analyzer.predefined_recognizers import (
    CreditCardRecognizer,
    CryptoRecognizer,
    EmailRecognizer,
    IbanRecognizer,
    IpRecognizer,
    PhoneRecognizer,
    UsSsnRecognizer,
)

# Presidio's log lines may quote what they could not parse: text of the document.
logging.getLogger("presidio-analyzer").setLevel(logging.CRITICAL)

_SUFFIXES = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)
# Reserved by RFC 2606, 6761 and 8375 or in use inside organisations: no public suffix, and
# addresses all the same.
_SPECIAL_SUFFIXES = frozenset(
    "example invalid test local localhost internal intranet lan corp home onion".split()
)

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
        domain = pattern_text.rpartition("@")[2].rstrip(".-")
        if domain.rpartition(".")[2].lower() in _SPECIAL_SUFFIXES:
            return True
        found = _SUFFIXES(domain)
        return bool(found.domain and found.suffix)


class _Card(CreditCardRecognizer):
    """Card numbers by issuer prefix, length and Luhn."""

    def validate_result(self, pattern_text: str) -> bool:
        digits = re.sub(r"\D", "", pattern_text)
        return bool(_CARDS.fullmatch(digits)) and super().validate_result(digits)


class _Iban(PatternRecognizer):
    """IBANs by registered length and checksum, also where they are glued to a word."""

    def analyze(self, text: str, entities: list[str], nlp_artifacts: object = None, **_: object):  # noqa: ANN201 - Presidio's signature
        results = []
        for start in re.finditer(r"(?=[A-Za-z]{2}\d{2})", text):
            found = _iban_at(text, start.start())
            if found:
                results += IbanRecognizer.analyze(_PRESIDIO_IBAN, found, entities)[:1]
                if results and results[-1].end == len(found):
                    results[-1].start += start.start()
                    results[-1].end += start.start()
        return results


def _iban_at(text: str, start: int) -> str:
    """Return the span that is an IBAN when it begins at `start`, or nothing."""
    length = IBAN_LENGTHS.get(text[start : start + 2].upper())
    if length is None:
        return ""
    end, taken = start, 0
    while end < len(text) and taken < length:
        character = text[end]
        if character.isascii() and character.isalnum():
            taken += 1
        elif character not in " -":
            return ""
        end += 1
    compact = re.sub(r"[ -]", "", text[start:end]).upper()
    if taken < length:
        return ""
    digits = "".join(str(int(character, 36)) for character in compact[4:] + compact[:4])
    return text[start:end] if int(digits) % 97 == 1 else ""
