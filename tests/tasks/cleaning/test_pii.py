from __future__ import annotations

import socket

import pytest

from tasks.cleaning.base import Document, OptionError, apply, build
from tasks.cleaning.pii import THRESHOLDS, Pii, shadow

TAIL = " The middle hour sags, yet the two leads keep the story alive until the credits."


@pytest.fixture(scope="module")
def pii() -> Pii:
    (step,) = build(["pii"], {"pii": {"phone_regions": ["US", "CN"]}})
    return step


HIDDEN = {
    "email": "Mail sam.poe@example.org about the print.",
    "email-zero-width": "Mail sam\u200b.poe\u200d@exam\ufeffple.org about it.",
    "email-soft-hyphen": "Mail sam.\u00adpoe@ex\u00adample.org about it.",
    "email-entity": "Mail sam.poe&#64;example&#46;org about it.",
    "email-double-entity": "Mail sam.poe&amp;#64;example.org about it.",
    "email-percent": "Mail sam.poe%40example.org about it.",
    "email-full-width": "Mail ｓａｍ．ｐｏｅ＠ｅｘａｍｐｌｅ．ｏｒｇ about it.",
    "email-spelt": "Mail sam dot poe at example dot org about it.",
    "email-brackets": "Mail sam.poe [at] example (dot) org about it.",
    "email-spaced": "Mail sam.poe @ example.org about it.",
    "email-reversed": "Mail \u202egro.elpmaxe@eop.mas\u202c about it.",
    "email-reserved-domain": "Mail root@build.internal about it.",
    "email-before-a-sentence": "Mail sam.poe@example.org.Then wait.",
    "email-glued": "请写信到sam.poe@example.org联系",
    "phone": "Ring (212) 555-0147 before noon.",
    "phone-international": "Ring +44 20 7946 0958 before noon.",
    "phone-chinese": "请拨打13800138000与她联系",
    "phone-local-in-context": "You may call 555-0147 before noon.",
    "phone-arabic-digits": "Ring ٢١٢-٥٥٥-٠١٤٧ before noon.",
    "card": "It reads 4242 4242 4242 4242 on the prop.",
    "card-amex": "It reads 378282246310005 on the prop.",
    "iban": "Send it to GB82 WEST 1234 5698 7654 32 today.",
    "iban-glued": "Send it to IBANDE89370400440532013000today.",
    "ip": "Posted from 203.0.113.77 last night.",
    "ip-v6": "Posted from 2001:db8:85a3::8a2e:370:7334 last night.",
    "ssn": "His social security number is 219-09-9999 in the scene.",
    "crypto": "Tips to 1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa please.",
    "url": "See https://example.org/page?id=1&user_id=jroe77 for it.",
}


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
def test_an_identifier_drops_the_document_however_it_is_hidden(pii, text, request):
    kind = request.node.callspec.id.partition("-")[0]
    drop = pii.clean(Document.of(text + TAIL))
    assert drop.reason == f"pii_{kind}"


@pytest.mark.parametrize(
    "text",
    [
        "We sat in SEAT B12 OR A1, row 4, on the M25.",
        "Serial 4242 4242 4242 4241 is on the prop.",
        "Encoded with version 1.2.3.4 of the tool, see section 2.1.3.4.",
        "Tagged 1700000000000 in the archive.",
        "ISBN 0-306-40615-2 and ISBN 978-0-306-40615-7.",
        "Rated 8.5/10 by 1,234,567 people from 1999-2004, $1,000,000,000 later.",
        "Looking back at the dot com bubble, it was a strange time.",
        "We met at noon. Polka dot dresses, everyone.",
        "Ask <EMAIL_ADDRESS> or <PHONE_NUMBER>.",
        "std::vector and a::b are scopes; it starts at 10:30:45.",
        "See https://example.org/film/2125550147/index.html?page=2 for it.",
        "@somebody said it is good, logo@2x.png is not.",
        "Jane Roe and John Doe play the fathers.",
        "From 127.0.0.1 with love.",
    ],
)
def test_what_only_looks_like_one_is_kept(pii, text):
    document = Document.of(text + TAIL)
    assert pii.clean(document) is document


def test_what_the_text_level_strips_is_still_seen():
    raw = '<a href="mailto:sam.poe%40example.org">my page</a> and a long enough sentence.' + TAIL
    steps = build(["html", "repair", "pii"])
    assert "example.org" not in steps[0].clean(Document.of(raw)).text
    assert apply(steps, Document.of(raw)).reason == "pii_email"


def test_an_address_that_markup_splits_is_seen_in_the_text():
    steps = build(["html", "pii"])
    assert apply(steps, Document.of("Mail sam.<b>poe</b>@example.org now.")).reason == "pii_email"


def test_only_listed_entities_count():
    (step,) = build(["pii"], {"pii": {"entities": ["CREDIT_CARD"]}})
    document = Document.of(HIDDEN["email"])
    assert step.clean(document) is document


def test_a_document_too_long_to_search_is_dropped_not_waved_through():
    (step,) = build(["pii"], {"pii": {"max_chars": 1_000}})
    assert step.clean(Document.of("film " * 300)).reason == "pii_unscanned"


def test_a_document_of_nothing_but_marks_ends_in_bounded_work():
    (step,) = build(["pii"], {"pii": {"max_windows": 50}})
    marks = " ".join(f"{number:09d}" + " " * 600 for number in range(900_000_000, 900_000_100))
    assert step.clean(Document.of(marks)).reason in step.reasons


def test_a_megabyte_of_letters_around_at_signs_ends(pii):
    document = Document.of(("a" * 5_000 + "@ ") * 200)
    assert pii.clean(document) is document


def test_findings_have_their_place_in_the_shadow(pii):
    text = HIDDEN["email-zero-width"]
    (finding,) = pii.findings(text)
    assert shadow(text)[finding.start : finding.end] == "sam.poe@example.org"
    assert finding.score >= THRESHOLDS["EMAIL_ADDRESS"]


def test_nothing_is_asked_of_the_network(pii, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("network")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    assert pii.clean(Document.of(HIDDEN["email"])).reason == "pii_email"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"phone_regions": ["UK"]}, r"UK.*ISO 3166"),
        ({"phone_regions": ["us"]}, "us"),
        ({"entities": ["PERSON"]}, "PERSON"),
        ({"thresholds": {"PHONE_NUMBER": 1.5}}, r"\[0, 1\]"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        build(["pii"], {"pii": options})
