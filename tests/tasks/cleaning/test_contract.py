"""What every cleaner promises, whoever wrote it: the registered ones, and those in DPMIX_STEPS."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.cleaning.base import LEVELS, Cleaner, Document, Drop, build, registry

STEPS = sorted(registry()) + os.environ.get("DPMIX_STEPS", "").split()
SNIPPETS = st.sampled_from([
    "<p>", "</p>", "<br />", "<!--", "-->", "<script>", "&amp;amp;", "&lt;b&gt;", "&#8203;", "&shy;",
    "jane@example.org", "%40", " at example dot org", "+1 202 555 0143", "4111 1111 1111 1111",
    "\u200b", "\u202e", "\u00ad", "\ud83d", "\x00", "\x1b[0m", "\ufffd", "Ã©", "â€™", "e\u0301",
    "这部电影很好看", "фильм", "film ",
    "the and of ", "https://example.org/?a=1 ", "\n", "😀", "ﬁ", "，",
])  # fmt: skip
ANY_TEXT = st.one_of(
    st.text(st.characters(codec=None), max_size=200),
    st.lists(st.one_of(SNIPPETS, st.text(max_size=8)), max_size=12).map("".join),
)


@pytest.fixture(params=STEPS)
def cleaner(request, examples) -> Cleaner:
    options = {"domain": {"domain": {"examples": str(examples)}}}
    return build([request.param], options.get(request.param))[0]


def outcome(cleaner: Cleaner, document: Document) -> Document | Drop:
    return cleaner.clean(document)


HARD = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class TestEveryCleaner:
    def test_declares_itself(self, cleaner):
        assert cleaner.name
        assert cleaner.level in LEVELS
        assert isinstance(cleaner.record_local, bool)
        assert all(reason == reason.lower() and reason.isidentifier() for reason in cleaner.reasons)

    @HARD
    @given(text=ANY_TEXT)
    def test_never_raises_and_only_gives_declared_reasons(self, cleaner, text):
        result = outcome(cleaner, Document.of(text, source="test"))
        assert isinstance(result, Document) or result.reason in cleaner.reasons

    @HARD
    @given(text=ANY_TEXT)
    def test_is_deterministic(self, cleaner, text):
        document = Document.of(text, source="test")
        assert outcome(cleaner, document) == outcome(cleaner, document)

    @HARD
    @given(text=ANY_TEXT)
    def test_twice_is_once(self, cleaner, text):
        first = outcome(cleaner, Document.of(text, source="test"))
        if isinstance(first, Document):
            assert outcome(cleaner, first) == first

    @HARD
    @given(text=ANY_TEXT, before=ANY_TEXT)
    def test_keeps_no_state_between_records(self, cleaner, text, before):
        document = Document.of(text, source="test")
        alone = outcome(cleaner, document)
        outcome(cleaner, Document.of(before, source="test"))
        assert outcome(cleaner, document) == alone

    @HARD
    @given(text=ANY_TEXT)
    def test_leaves_the_raw_text_and_the_id_alone(self, cleaner, text):
        document = Document.of(text, source="test")
        result = outcome(cleaner, document)
        if isinstance(result, Document):
            assert (result.id, result.raw, result.source) == (document.id, text, "test")


@HARD
@given(text=ANY_TEXT)
def test_the_text_level_leaves_valid_utf8(text):
    document: Document | Drop = Document.of(text)
    for step in build(["html", "repair"]):
        assert isinstance(document, Document)
        document = step.clean(document)
    assert isinstance(document, Document)
    document.text.encode("utf-8")
