"""Level 1, text: markup to text, repair of encodings, what cannot be read, what has no fit length.

Guarantees: every step is a pure function of one record, linear in its length, idempotent, and its
output is valid UTF-8. Legitimate text is not rewritten: typographic quotes, full-width punctuation
and ligatures stay as they are. The guarantees stop at markup in no known HTML vocabulary (left as
text) and at encodings that ftfy does not recognise.
"""

from __future__ import annotations

import html
import re
import unicodedata
import zlib

import ftfy
from selectolax.lexbor import LexborHTMLParser

from tasks.cleaning.base import Cleaner, Document, Drop, OptionError

# Space-like controls that are text: tab, line feed, carriage return. Everything else of C0 is not.
_C0 = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_C1 = re.compile(r"[\x80-\x9f]")
_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
# Zero-width space and no-break space, word joiner and invisible operators, bidi marks and
# isolates, the Mongolian separator, language tags: they carry no letters and hide what does.
_ZERO_WIDTH = re.compile(
    "[\u200b\u200e\u200f\u061c\u180e\u2060-\u2064\u202a-\u202e\u2066-\u206f\ufeff"
    "\U000e0000-\U000e007f]"
)
# Joiners have a meaning in Arabic, Indic and emoji text; between Latin letters they only hide.
_JOINERS = re.compile("(?<=[\\x00-\u024f])[\u200c\u200d]+(?=[\\x00-\u024f])")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_DEEP_AMPERSAND = re.compile(r"&(?:amp;)+", re.IGNORECASE)
_SPACES = re.compile(r"[ \t\u00a0]+")
_AROUND_BREAK = re.compile(r" ?\n ?")
_BREAKS = re.compile(r"\n{3,}")

_BLOCK_NAMES = (
    "address article aside blockquote br center dd div dl dt fieldset figcaption figure footer "
    "form h1 h2 h3 h4 h5 h6 header hr legend li main nav ol option p pre section select table "
    "tbody td tfoot th thead title tr ul"
)
_INLINE_NAMES = (
    "a abbr acronym b base basefont bdi bdo big body button canvas caption cite code col colgroup "
    "data del dfn em embed font frame frameset head html i iframe img input ins kbd label link map "
    "mark meta noframes noscript object param picture q s samp script small source span strike "
    "strong style sub sup svg template textarea time tt u var video audio wbr"
)
_BLOCKS = _BLOCK_NAMES.split()
_TAG_NAME = "|".join(sorted(_BLOCKS + _INLINE_NAMES.split(), key=len, reverse=True))
_MARKUP = re.compile(rf"</?(?:{_TAG_NAME})(?:\s[^<>]*)?/?>|<!--|<!doctype\b", re.IGNORECASE)
# A "<" that opens no known tag is a character: "I <3 it", "a < b", "<EMAIL_ADDRESS>".
_NO_MARKUP = re.compile(rf"<(?!/?(?:{_TAG_NAME})(?:\s[^<>]*)?/?>|!--|!doctype\b)", re.IGNORECASE)
_UNSEEN = ("script", "style", "template", "noscript", "svg", "iframe", "object", "textarea")
# Markup nested in escapes nested in markup: deeper than this is an attack, not a document.
_MAX_PASSES = 6


def remove_invisible(text: str) -> str:
    """Return the text without zero-width and bidi characters and lone surrogates."""
    if text.isascii():
        return text
    text = _SURROGATES.sub("", text)
    return _JOINERS.sub("", _ZERO_WIDTH.sub("", text))


def unescape(text: str) -> str:
    """Return the text with character references resolved, however often they were escaped."""
    for _ in range(_MAX_PASSES):
        if "&" not in text:
            break
        once = _ENTITY.sub(lambda match: html.unescape(match[0]), _DEEP_AMPERSAND.sub("&", text))
        if once == text:
            break
        text = once
    return text


def _strip(text: str) -> str:
    """Return what a browser would show of an HTML fragment."""
    tree = LexborHTMLParser(_NO_MARKUP.sub("&lt;", text))
    tree.strip_tags(list(_UNSEEN))
    for node in tree.css(",".join(_BLOCKS)):
        node.insert_before("\n")
        node.insert_after("\n")
    shown = tree.root.text(deep=True) if tree.root else ""
    shown = _AROUND_BREAK.sub("\n", _SPACES.sub(" ", shown))
    return _BREAKS.sub("\n\n", shown).strip()


class Html(Cleaner):
    """Turns markup and character references into the text a reader would see.

    selectolax (Lexbor) does the parsing: some 80,000 documents a second, where extractors that
    guess the main part of a page do a thousand.
    """

    name = "html"
    level = "text"
    record_local = True
    requires = ("selectolax",)

    def clean(self, document: Document) -> Document | Drop:
        """Return the document without markup; never drops."""
        text = remove_invisible(document.text)
        if "\x00" in text:
            text = text.replace("\x00", " ")  # the parser would join the words around it
        for _ in range(_MAX_PASSES):
            before = text
            if "<" in text and _MARKUP.search(text):
                text = _strip(text)
            text = remove_invisible(unescape(text))
            if text == before:
                break
        return document.with_text(text)


class Repair(Cleaner):
    """Repairs encodings and removes what no reader sees; composes accents (NFC)."""

    name = "repair"
    level = "text"
    record_local = True
    requires = ("ftfy",)

    def __init__(self) -> None:
        # Each False is a rewriting of legitimate text: curly quotes, full-width forms and
        # ligatures are correct somewhere. Entities belong to Html, control characters to us,
        # since ftfy deletes them and thereby joins words.
        self._config = ftfy.TextFixerConfig(
            unescape_html=False,
            remove_terminal_escapes=False,
            fix_latin_ligatures=False,
            fix_character_width=False,
            uncurl_quotes=False,
            remove_control_chars=False,
            normalization="NFC",
            explain=False,
        )

    def clean(self, document: Document) -> Document | Drop:
        """Return the repaired document; never drops."""
        text = document.text
        for _ in range(_MAX_PASSES):  # a removed character can complete what ftfy recognises
            before, text = text, self._repair(text)
            if text == before:
                break
        return document.with_text(text)

    def _repair(self, text: str) -> str:
        text = _TERMINAL.sub("", text)
        if text.isascii():
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        else:
            # ftfy before the soft hyphens and C1 controls go: both are bytes of mojibake.
            text = ftfy.fix_text(_SURROGATES.sub("", text), self._config)
            text = _C1.sub(" ", remove_invisible(text.replace("\u00ad", "")))
            text = unicodedata.normalize("NFC", text)
        return _C0.sub(" ", text).strip()


_URL = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_CODE_SYMBOLS = re.compile(r"[{}\[\]()=;<>_\\|#*`~^]")
_CODE_LINE = re.compile(
    r"^\s*(?:def|class|import|from|return|raise|for|if|elif|else|while|try|except|function|var|"
    r"let|const|public|private|static|void|int|#include|package|using|struct)\b.*[:;{()]\s*$"
    r"|^.*[;{}]\s*$",
    re.MULTILINE,
)
_WORD = re.compile(r"[^\W\d_]+")
_SAMPLE = 20_000


class Readable(Cleaner):
    """Drops what is no readable prose: debris, no letters, source code, endless repetition.

    Only the first and last 20,000 characters are looked at, so a huge document costs no more than
    a long one.
    """

    name = "readable"
    level = "text"
    record_local = True
    reasons = ("unreadable", "no_text", "not_prose", "repetition")

    def __init__(self, *, max_debris: float = 0.1, max_code: float = 0.1) -> None:
        for option, value in (("max_debris", max_debris), ("max_code", max_code)):
            if not 0.0 <= value <= 1.0:
                msg = f"readable.{option} must lie in [0, 1]; got {value}. It is a share."
                raise OptionError(msg)
        self._max_debris = max_debris
        self._max_code = max_code

    def clean(self, document: Document) -> Document | Drop:
        """Return the document unchanged, or why nobody could read it."""
        text = document.text
        if len(text) > 2 * _SAMPLE:
            text = text[:_SAMPLE] + text[-_SAMPLE:]
        visible = len("".join(text.split()))
        debris = text.count("\ufffd") + sum(map(text.count, "\ufffe\uffff"))
        if visible and debris > self._max_debris * visible:
            return Drop("unreadable", detail="replacement characters")
        prose = _URL.sub(" ", text) if "://" in text or "www." in text.lower() else text
        letters = sum(map(len, _WORD.findall(prose)))
        if letters < 3:
            return Drop("no_text", detail="fewer than three letters")
        if _repeats(prose):
            return Drop("repetition")
        if letters < 0.4 * len("".join(prose.split())):
            return Drop("not_prose", detail="mostly digits or symbols")
        if self._is_code(prose):
            return Drop("not_prose", detail="source code")
        return document

    def _is_code(self, text: str) -> bool:
        symbols = len(_CODE_SYMBOLS.findall(text))
        if symbols < 8:
            return False
        visible = len("".join(text.split()))
        lines = [line for line in text.splitlines() if line.strip()]
        code_lines = len(_CODE_LINE.findall(text))
        dense = symbols > self._max_code * visible
        return dense and (code_lines * 2 > len(lines) or symbols > 2 * self._max_code * visible)


def _repeats(text: str) -> bool:
    """Return whether a text says next to nothing at length."""
    visible = "".join(text.split())
    if len(visible) >= 20:
        head = visible[:_SAMPLE]
        commonest = max(map(head.count, set(head[:50])), default=0)
        if commonest > 0.6 * len(head):
            return True
    words = text.lower().split()
    if len(words) >= 12 and len(set(words)) <= 0.15 * min(len(words), 200):
        return True
    encoded = text.encode("utf-8", "ignore")
    return len(encoded) >= 400 and len(zlib.compress(encoded, 1)) < 0.12 * len(encoded)


class Length(Cleaner):
    """Drops documents with too few characters to say anything, or too many to be one document."""

    name = "length"
    level = "text"
    record_local = True
    reasons = ("too_short", "too_long")

    def __init__(self, *, min_chars: int = 20, max_chars: int = 200_000) -> None:
        if not 0 <= min_chars <= max_chars:
            msg = (
                f"length.min_chars must lie between 0 and max_chars = {max_chars}; got "
                f"{min_chars}. Lower min_chars or raise max_chars."
            )
            raise OptionError(msg)
        self._min_chars = min_chars
        self._max_chars = max_chars

    def clean(self, document: Document) -> Document | Drop:
        """Return the document unchanged, or on which side it missed the bounds."""
        size = len(document.text)
        if size < self._min_chars:
            return Drop("too_short", detail=f"{size} < {self._min_chars} characters")
        if size > self._max_chars:
            return Drop("too_long", detail=f"{size} > {self._max_chars} characters")
        return document
