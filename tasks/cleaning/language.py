"""Level 1, language: which language a document is in, and whether it is one the profile wants.

The writing system decides first, since it is certain and free: kana is Japanese, Hangul Korean,
Greek Greek, and a Cyrillic text is not English whatever else it is. Latin text with plenty of
English function words is English. langdetect's language profiles arbitrate the rest, by the exact
sum over all n-grams rather than by langdetect's random draws.

Guarantees: a pure function of one record; the same answer in every worker; ``und`` where there is
nothing to go by, never an exception. They stop at languages langdetect does not know (55 of them)
and at Latin text of fewer than three words, which is ``und`` on purpose.
"""

from __future__ import annotations

import json
import re
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from langdetect import PROFILES_DIRECTORY
from langdetect.utils.ngram import NGram

from tasks.cleaning.base import Cleaner, Document, Drop, OptionError

UNDETERMINED = "und"
MIXED = "mixed_language"

# Start of each range of letters and its script; "" ends a range.
_RANGES = (
    (0x0000, "Latin"), (0x0370, "Greek"), (0x0400, "Cyrillic"), (0x0530, "Armenian"),
    (0x0590, "Hebrew"), (0x0600, "Arabic"), (0x0780, ""), (0x0900, "Devanagari"),
    (0x0980, "Bengali"), (0x0A00, "Gurmukhi"), (0x0A80, "Gujarati"), (0x0B00, "Oriya"),
    (0x0B80, "Tamil"), (0x0C00, "Telugu"), (0x0C80, "Kannada"), (0x0D00, "Malayalam"),
    (0x0D80, "Sinhala"), (0x0E00, "Thai"), (0x0E80, "Lao"), (0x0F00, "Tibetan"),
    (0x1000, "Myanmar"), (0x10A0, "Georgian"), (0x1100, "Hangul"), (0x1200, "Ethiopic"),
    (0x13A0, ""), (0x1780, "Khmer"), (0x1800, ""), (0x1E00, "Latin"), (0x1F00, "Greek"),
    (0x2000, ""), (0x2C60, "Latin"), (0x2C80, ""), (0x3005, "Han"), (0x3041, "Kana"),
    (0x3100, ""), (0x3130, "Hangul"), (0x3190, ""), (0x31F0, "Kana"), (0x3200, ""),
    (0x3400, "Han"), (0xA000, ""), (0xA640, "Cyrillic"), (0xA6A0, ""), (0xA720, "Latin"),
    (0xA800, ""), (0xAC00, "Hangul"), (0xD7B0, ""), (0xF900, "Han"), (0xFB00, "Latin"),
    (0xFB13, ""), (0xFB1D, "Hebrew"), (0xFB50, "Arabic"), (0xFE00, ""), (0xFE70, "Arabic"),
    (0xFEFF, ""), (0xFF21, "Latin"), (0xFF5B, ""), (0xFF66, "Kana"), (0xFFA0, ""),
    (0x20000, "Han"), (0x32000, ""),
)  # fmt: skip
_STARTS = [start for start, _ in _RANGES]
_SCRIPTS = [script for _, script in _RANGES]

# Scripts that one written language (nearly) owns.
_OWNER = {
    "Greek": "el", "Armenian": "hy", "Hebrew": "he", "Bengali": "bn", "Gurmukhi": "pa",
    "Gujarati": "gu", "Oriya": "or", "Tamil": "ta", "Telugu": "te", "Kannada": "kn",
    "Malayalam": "ml", "Sinhala": "si", "Thai": "th", "Lao": "lo", "Tibetan": "bo",
    "Myanmar": "my", "Georgian": "ka", "Hangul": "ko", "Ethiopic": "am", "Khmer": "km",
    "Kana": "ja", "Han": "zh",
}  # fmt: skip
# Scripts that several languages share: what langdetect may answer, most likely first.
_SHARED = {
    "Cyrillic": ("ru", "uk", "bg", "mk"),
    "Arabic": ("ar", "fa", "ur"),
    "Devanagari": ("hi", "mr", "ne"),
}
# One ideograph or syllable says about as much as this many letters of an alphabet.
_WEIGHT = {"Han": 2.5, "Kana": 1.5, "Hangul": 2.0}

# Function words that tell a language from its neighbours; words two of these share are left out.
_FUNCTION_WORDS = {
    "en": (
        "the of and to that it with for this but you are have be from they which would there "
        "their been than what who were when your has his her my not by or if we at she its more "
        "into only just very about out could these those because while how i is it's don't isn't "
        "doesn't can't i'm every never himself should all i've i'll i'd you're you'll you've "
        "we're we've they're he's she's that's there's let's won't didn't couldn't wasn't hasn't "
        "haven't wouldn't shouldn't what's who's make makes made know think want wants need get "
        "gets getting got go going see good great bad better best much most many even still after "
        "before then like love time way well really something nothing people between without "
        "through enough another some other such again always had him them our any being does did "
        "doing having here where why though yet both each few own same until against during up "
        "down off"
    ),
    "de": (
        "der das und ist nicht ein eine mit dem den sich auf auch als für wird aber einen "
        "einer eines über oder noch nach bei wie zum zur dass wenn ich wir sie es sind im von "
        "dagegen schuld durch kein keine sehr"
    ),
    "fr": (
        "le les et est une dans qui pour pas sur avec au du ce cette sont plus mais il elle "
        "nous vous aux ses ont été même très comme ou où leur être c'est n'est l'on"
    ),
    "es": (
        "el los las y es una por con del se lo pero su más como está muy sin sobre este esta "
        "también hay ser son fue yo ha cuando donde porque"
    ),
    "it": (
        "il di che è gli della dei nel alla sono più anche questo questa ma si delle nella ha "
        "dal degli perché come essere molto"
    ),
    "pt": (
        "o os um uma em não da dos das mas ao seu sua mais são também pelo pela muito você "
        "isso foi já ele ela é"
    ),
    "nl": (
        "het een en van niet zijn dat te voor met aan er maar om ook naar dan nog wordt bij "
        "uit deze geen worden heeft"
    ),
}
_LANGUAGES_OF_WORD: dict[str, list[str]] = {}
for _language, _words in _FUNCTION_WORDS.items():
    for _entry in _words.split():
        _LANGUAGES_OF_WORD.setdefault(_entry, []).append(_language)
_LANGUAGE_OF_WORD = {
    word: owners[0] for word, owners in _LANGUAGES_OF_WORD.items() if len(owners) == 1
}

_NOT_LANGUAGE = re.compile(r"(?:https?://|www\.)\S+|\S+@\S+|[@#]\w+", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+")
_CHARACTERS = 1_000  # enough for any detector, and it bounds the work on a long document

_LONGEST_GRAM = 3
_SMOOTHING = 1e-4
# The profile's languages start ahead by this much log-likelihood: four words of English are Catalan
# to a detector that takes all languages for equally likely. A full sentence outweighs it.
_AHEAD = 8.0

_lock = threading.Lock()


def scripts(text: str) -> Counter[str]:
    """Return the letters of a text by script, weighted by how much one of them says."""
    found: Counter[str] = Counter()
    for character, times in Counter(text).items():
        if character.isalpha():
            script = _SCRIPTS[bisect_right(_STARTS, ord(character)) - 1]
            if script:
                found[script] += times
    for script, weight in _WEIGHT.items():
        if script in found:
            found[script] = round(found[script] * weight)
    return found


@dataclass(frozen=True, slots=True)
class _Profiles:
    """langdetect's language profiles as one table.

    Attributes:
        languages: ISO 639-1 code of each column.
        rows: Row of each n-gram of one to three characters.
        logs: Logarithm of the smoothed frequency, n-grams by languages.
    """

    languages: tuple[str, ...]
    rows: dict[str, int]
    logs: np.ndarray

    @classmethod
    def load(cls) -> _Profiles:
        """Return the profiles, by sorted name: the order decides how sums round."""
        paths = sorted(path for path in Path(PROFILES_DIRECTORY).iterdir() if path.is_file())
        profiles = [json.loads(path.read_text("utf-8")) for path in paths]
        rows: dict[str, int] = {}
        for profile in profiles:
            for gram in profile["freq"]:
                rows.setdefault(gram, len(rows))
        table = np.zeros((len(rows), len(profiles)), dtype=np.float32)
        for column, profile in enumerate(profiles):
            for gram, count in profile["freq"].items():
                if 1 <= len(gram) <= _LONGEST_GRAM:
                    table[rows[gram], column] = count / profile["n_words"][len(gram) - 1]
        languages = tuple(profile["name"].partition("-")[0] for profile in profiles)
        return cls(languages=languages, rows=rows, logs=np.log(table + _SMOOTHING))

    def grams(self, text: str) -> list[int]:
        """Return the rows of a text's n-grams, normalised as the profiles were made."""
        window = NGram()
        found = []
        for character in NGram.normalize_vi(text):
            window.add_char(character)
            if window.capitalword:
                continue
            for length in range(1, min(_LONGEST_GRAM, len(window.grams)) + 1):
                row = self.rows.get(window.grams[-length:])
                if row is not None:
                    found.append(row)
        return found


@cache
def _profiles() -> _Profiles:
    with _lock:
        return _Profiles.load()


def _arbitrate(text: str, *, among: Sequence[str] = (), likely: Sequence[str] = ()) -> str:
    """Return the language whose profile explains all n-grams of a text best.

    langdetect itself draws n-grams at random until it is convinced, which makes short texts a
    lottery; the whole sum is exact, needs no seed, and is faster.
    """
    profiles = _profiles()
    # The profiles have few upper-case n-grams: a shout looks like nothing known.
    grams = profiles.grams(text.lower() if text.isupper() else text)
    if not grams:
        return UNDETERMINED
    scores = profiles.logs[grams].sum(axis=0, dtype=np.float64)
    for column, language in enumerate(profiles.languages):
        if among and language not in among:
            scores[column] = -np.inf
        elif language in likely:
            scores[column] += _AHEAD
    return profiles.languages[int(scores.argmax())]


def _sure(words: Sequence[str]) -> str:
    """Return the language that the function words leave no doubt about, or nothing.

    Distinct words count, not their repetitions: "to" alone is a word in a dozen languages.
    """
    hits: Counter[str] = Counter()
    distinct: dict[str, set[str]] = {}
    for word in words:
        found = _LANGUAGE_OF_WORD.get(word.replace("\u2019", "'"))
        if found:
            hits[found] += 1
            distinct.setdefault(found, set()).add(word)
    if not hits:
        return ""
    (language, most), *others = hits.most_common(2)
    kinds = len(distinct[language])
    share = most / len(words)
    clear = (kinds >= 3 and share >= 0.18) or (kinds == 2 and share >= 0.4)
    return language if clear and most > 3 * (others[0][1] if others else 0) else ""


def _latin(text: str, likely: Sequence[str]) -> str:
    words = _WORD.findall(text.lower())
    sure = _sure(words)
    if sure == "en":  # the other lists are short of their neighbours: Catalan, Danish, Galician
        return sure
    if len(words) < 3 or sum(map(len, words)) < 12:
        return UNDETERMINED
    return _arbitrate(text, likely=likely)


def identify(text: str, *, likely: Sequence[str] = ()) -> str:
    """Return the ISO 639-1 code of the language most of a text is in, or ``und``.

    Args:
        text: Any string; its first thousand characters are looked at.
        likely: Languages that a text in doubt is taken for: those the profile asks for.
    """
    text = _NOT_LANGUAGE.sub(" ", text[:_CHARACTERS])
    if text.isascii():
        return _latin(text, likely)
    found = scripts(text)
    script, weight = (found.most_common(1) or [("", 0)])[0]
    if script in ("Han", "Kana"):
        # Japanese writes with both; a Chinese text quotes a kana or two at most.
        return "ja" if found["Kana"] > 0.1 * (found["Han"] + found["Kana"]) else "zh"
    if weight < 3:
        return UNDETERMINED
    if script in _SHARED:
        return _arbitrate(text, among=_SHARED[script])
    return _OWNER.get(script) or _latin(text, likely)


def languages_in(text: str) -> list[str]:
    """Return the languages that each hold a good part of a text, the largest first.

    Evidence is counted by sentence: function words for languages in Latin letters, the script for
    others. One foreign quotation or product name is not a second language.
    """
    parts: Counter[str] = Counter()
    for sentence in _SENTENCE.split(_NOT_LANGUAGE.sub(" ", text[: 4 * _CHARACTERS])):
        words = _WORD.findall(sentence.lower())
        if not words:
            continue
        language = _sure(words)
        if not language and not sentence.isascii():
            script, weight = (scripts(sentence).most_common(1) or [("", 0)])[0]
            if script in ("Han", "Kana"):
                language = identify(sentence)
            elif script != "Latin" and weight >= 8:
                language = _OWNER.get(script) or script
        if language:
            parts[language] += sum(map(len, words))
    total = sum(parts.values())
    return [language for language, size in parts.most_common() if size >= 0.25 * total]


class Language(Cleaner):
    """Labels a document with its language and drops those the profile does not ask for."""

    name = "language"
    level = "text"
    record_local = True
    reasons = ("language_undetermined", "other_language")
    requires = ("langdetect",)

    def __init__(self, *, languages: Sequence[str] = ("en",)) -> None:
        if isinstance(languages, str) or not all(re.fullmatch("[a-z]{2,3}", c) for c in languages):
            msg = (
                f"language.languages must be a list of ISO 639-1 codes; got {languages!r}. "
                "Write [en] or [en, de]; an empty list keeps every language."
            )
            raise OptionError(msg)
        self._languages = frozenset(languages)
        self._likely = tuple(sorted(self._languages))

    def clean(self, document: Document) -> Document | Drop:
        """Return the document with its language and, where there are two, the flag."""
        language = identify(document.text, likely=self._likely)
        if language == UNDETERMINED:
            return Drop("language_undetermined")
        several = languages_in(document.text)
        mixed = len(several) > 1
        if self._languages and language not in self._languages:
            return Drop("other_language", detail=language)
        flags = document.flags
        if mixed and MIXED not in flags:
            flags = (*flags, MIXED)
        return replace(document, language=language, flags=flags)
