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
from collections.abc import Mapping, Sequence
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
