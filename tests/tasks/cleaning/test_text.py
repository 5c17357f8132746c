from __future__ import annotations

import pytest

from tasks.cleaning.base import Document, Drop, OptionError, apply, build

TAIL = " The middle hour sags, yet the two leads keep the story alive until the credits."


def clean(text, *steps, **options):
    return apply(build(steps or ("html", "repair"), options), Document.of(text))


def text_of(text, *steps):
    result = clean(text, *steps)
    assert isinstance(result, Document)
    return result.text


class TestRepair:
    def test_mojibake_is_repaired_however_often_it_happened(self):
        once = "A naïve café owner falls in love.".encode().decode("cp1252")
        twice = once.encode().decode("cp1252")
        assert text_of(once) == text_of(twice) == "A naïve café owner falls in love."

    @pytest.mark.parametrize(
        "legitimate",
        [
            "SÃO AS AÇÕES DO HERÓI QUE CONTAM, NÃO AS PALAVRAS DE JOÃO.",
            "这部片子很长，但是很好看！",
            "“Quoted”, ‘so to speak’ — and … done.",
            "The ﬁnal cut of the ﬁlm",
            "می‌خواهم این فیلم را ببینم",
        ],
        ids=["portuguese", "full-width", "typographic", "ligature", "persian-joiner"],
    )
    def test_legitimate_text_is_not_rewritten(self, legitimate):
        assert text_of(legitimate) == legitimate

    def test_a_control_character_separates_words(self):
        assert text_of("slow\x00burning\x07 film") == "slow burning  film"

    def test_what_no_reader_sees_is_removed(self):
        assert text_of("un\u200bbe\u00adliev\u200dable \u202ateam\u202c") == "unbelievable team"

    def test_a_lone_surrogate_is_removed(self):
        assert text_of("quiet \ud83d film") == "quiet  film"

    def test_accents_are_composed(self):
        assert text_of("ge\u0301nie") == "génie"


class TestHtml:
    def test_tags_go_text_stays_and_words_stay_apart(self):
        shown = text_of("<p>An <b>odd</b> film.</p><script>var x=1;</script><br />Go<br>see it")
        assert shown.split() == ["An", "odd", "film.", "Go", "see", "it"]

    def test_entities_are_resolved_however_often_they_were_escaped(self):
        assert (
            text_of("this &amp;amp;amp; that &amp;quot;x&amp;quot; &#233;") == 'this & that "x" é'
        )

    def test_escaped_markup_is_markup(self):
        assert text_of("&lt;p&gt;Good.&lt;/p&gt;") == "Good."

    @pytest.mark.parametrize(
        "text", ["I <3 this film", "if a < b and c > d", "Ask <EMAIL_ADDRESS> or <PERSON>", "AT&T"]
    )
    def test_an_angle_bracket_that_opens_no_tag_is_text(self, text):
        assert text_of(text) == text

    def test_a_parameter_that_looks_like_an_entity_is_none(self):
        assert text_of("see /film?a=1&copy=2") == "see /film?a=1&copy=2"


class TestReadable:
    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("\ufffd\ufffd\ufffd story \ufffd\ufffd \ufffd\ufffd\ufffd end", "unreadable"),
            ("😀😀 🎬 👍👍👍", "no_text"),
            ("https://example.org/a/b/c.html?page=2", "no_text"),
            ("12:30 45 99 1,000 77.5 x 13", "no_text"),
            ("10 11 12 13 14 15 abc 16 17 18 19 20 21 22", "not_prose"),
            (
                "import os\nfor a in b:\n    c[a] = d(e[a], {'f': 1})\n    g();\nreturn h[0]\n",
                "not_prose",
            ),
            ("z" * 300, "repetition"),
            ("buy now " * 100, "repetition"),
            ("重复" * 400, "repetition"),
        ],
    )
    def test_what_is_no_prose_is_dropped_with_its_reason(self, text, reason):
        assert clean(text, "readable").reason == reason

    @pytest.mark.parametrize(
        "text",
        [
            "Great fun :) :) (and short!)",
            "No, no, no: this is not how one ends a trilogy.",
            "这部电影的摄影非常出色，演员的表演也很自然。",
            "A 7/10 for 1999, an 8/10 for 2005." + TAIL,
        ],
    )
    def test_prose_is_kept(self, text):
        assert isinstance(clean(text, "readable"), Document)

    def test_shares_outside_their_bounds_are_refused(self):
        with pytest.raises(OptionError, match=r"max_debris.*\[0, 1\].*2"):
            build(["readable"], {"readable": {"max_debris": 2}})


class TestLength:
    def test_both_bounds_have_their_reason(self):
        options = {"min_chars": 5, "max_chars": 10}
        assert clean("four", "length", length=options).reason == "too_short"
        assert clean("eleven char", "length", length=options).reason == "too_long"
        assert isinstance(clean("just right", "length", length=options), Document)

    def test_bounds_that_cross_are_refused(self):
        with pytest.raises(OptionError, match="min_chars"):
            build(["length"], {"length": {"min_chars": 9, "max_chars": 8}})

    def test_two_megabytes_of_prose_are_too_long(self):
        words = " ".join(f"word{number} film" for number in range(160_000))
        assert len(words) > 2_000_000
        assert clean(words, "html", "repair", "readable", "length").reason == "too_long"

    def test_two_megabytes_on_one_line_repeat(self):
        drop = clean("word " * 400_000, "html", "repair", "readable", "length")
        assert isinstance(drop, Drop)
        assert drop.reason == "repetition"
