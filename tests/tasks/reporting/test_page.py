"""What a reader of the report, and a reader's browser, may rely on."""

import json
import re
from html.parser import HTMLParser

import pytest

from tasks.reporting import UnsourcedFigureError, concise, render, write_report

VOID = {"meta", "link", "br", "img", "line", "rect", "circle", "polygon", "polyline"}


class Page(HTMLParser):
    """The page as a browser sees it: attributes, visible text by element, nesting."""

    def __init__(self, html):
        super().__init__()
        self.attributes, self.tags, self.text, self.open, self.faults = [], [], [], [], []
        self.pictures = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag == "svg" and "svg" not in self.open:
            self.pictures.append(dict(attrs))
        self.tags.append((tag, dict(attrs)))
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


def numbers(value, path=""):
    """Every number of a summary by its path; written apart from the page's own way of doing it."""
    if isinstance(value, dict):
        for key, part in value.items():
            if path or key not in {"schema", "versions", "provenance"}:
                yield from numbers(part, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and not isinstance(value[0], int | float | list | str):
        for index, part in enumerate(value):
            yield from numbers(part, f"{path}.{index}")
    else:
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, int | float | list) and not isinstance(first, bool) and first != []:
            yield path


CASES = ["summary", "refused", "many_classes", "rehearsal"]


@pytest.fixture(params=CASES)
def any_summary(request):
    return request.getfixturevalue(request.param)


class TestAnyPage:
    def test_asks_nothing_of_a_network(self, any_summary):
        html = render(any_summary)
        loads = [
            value
            for _, name, value in Page(html).attributes
            if name in {"src", "href", "xlink:href", "srcset", "action", "poster", "data"}
        ]
        assert all(value.startswith("#") or value == "data:," for value in loads)
        assert not re.search(r"url\(|@import|<script|https?://", html)
        assert "default-src 'none'" in html

    def test_is_well_formed(self, any_summary):
        page = Page(render(any_summary))
        assert page.faults == []
        assert page.open == []

    def test_shows_every_number_with_its_provenance(self, any_summary):
        html = render(any_summary)
        rows = dict(
            re.findall(r'<th scope="row">([^<]*)</th><td>[^<]*</td><td><span[^>]*>(.+?)<', html)
        )
        assert set(numbers(any_summary)) <= rows.keys()
        assert all(re.match(r"public|declared|ledger|dp\(", origin) for origin in rows.values())

    def test_never_shows_what_is_missing(self, any_summary):
        for text in (Page(render(any_summary)).words, "\n".join(concise(any_summary))):
            assert not re.search(r"\b(None|nan|inf|Undefined)\b", text)

    def test_can_be_heard(self, any_summary):
        page = Page(render(any_summary))
        assert page.pictures
        for attributes in page.pictures:
            assert attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
        names = [tag for tag, _ in page.tags]
        assert names.count("h1") == 1
        assert names.count("table") == names.count("caption")
        assert ("html", "lang", "en") in page.attributes

    def test_links_lead_to_sections_that_exist(self, any_summary):
        page = Page(render(any_summary))
        ids = [value for _, name, value in page.attributes if name == "id"]
        targets = {value[1:] for _, name, value in page.attributes if name == "href"} - {"ata:,"}
        assert targets <= set(ids)
        assert len(ids) == len(set(ids))


class TestVerdict:
    def test_a_release_says_what_an_attacker_may_know(self, summary):
        words = Page(render(summary)).words
        assert "62.3\N{NO-BREAK SPACE}%".replace("\N{NO-BREAK SPACE}", " ") in words
        assert "the audit found nothing to contradict this" in words

    def test_a_block_of_one_period_claims_no_more_than_that_period(self, summary):
        summary |= {"privacy_unit": "person", "claim": "(person, period)"}
        words = Page(render(summary)).words
        assert "whether a given person’s records of one period were used" in words
        assert "per (person, period)" in words
        assert "per person" not in words
        assert "per (person, period)" in concise(summary)[1]

    def test_a_refusal_says_why_and_hides_no_utility(self, refused):
        words = Page(render(refused)).words
        assert f"This model is not released: {refused['refusal']}." in words
        assert "The audit failed." in words
        assert "0.753" in words
        assert "Use the model" not in words

    @pytest.mark.parametrize("who", ["release refused", "refused"])
    def test_a_refusal_is_said_once(self, refused, who):
        refused["refusal"] = f"{who}: the build does not do what its plan says."
        assert "not released: the build does not do what" in render(refused)

    def test_a_refusal_without_words_gives_the_bound_and_the_claim(self, refused):
        refused["refusal"] = None
        assert "ε ≥ 1.94, exceeds the ε of 0.5" in Page(render(refused)).words

    def test_test_mode_is_marked_at_both_ends_and_in_the_title(self, rehearsal):
        html = render(rehearsal)
        assert html.count('class="band"') == 2
        assert "(NOT PRIVATE)</title>" in html
        assert "NOT PRIVATE" in concise(rehearsal)[0]

    def test_test_mode_promises_nothing_even_if_it_says_released(self, rehearsal):
        words = Page(render(rehearsal | {"released": True})).words
        assert "nobody can tell" not in words
        assert "Use the model" not in words

    def test_production_has_no_band(self, summary):
        assert 'class="band"' not in render(summary)


class TestSections:
    def test_a_lower_bound_never_proves_privacy(self, summary):
        assert "A lower bound never proves privacy." in render(summary)

    def test_utility_names_the_row_that_paid(self, summary):
        assert "Paid for by ledger row 14" in Page(render(summary)).words

    def test_utility_on_a_public_twin_names_no_row(self, summary):
        summary["provenance"] |= {"utility": "public", "utility.public_only": "public"}
        assert "Paid for by" not in render(summary)

    def test_the_comparison_on_a_public_twin_stands_beside_the_hold_out(self, summary):
        arm = {"macro_f1": 0.625, "interval": [0.5, 0.75]}
        arms = {"mixed": arm, "dp_private_only": {**arm, "macro_f1": 0.375}}
        summary["utility"]["twin"] = {"records": 321, "arms": arms}
        summary["provenance"]["utility.twin"] = "public"
        page = render(summary)
        assert "Macro-F1 on the public twin" in page
        assert all(shown in page for shown in ("321", "0.625", "0.375"))

    def test_says_what_public_data_did(self, summary):
        summary["mixing"] = {"strategies": ["warm_start", "someone_elses"]}
        page = render(summary)
        assert "training began at weights fitted on public text; someone elses. None of it" in page
        summary["mixing"] = {"strategies": []}
        assert "No public data was mixed in" in render(summary)

    def test_an_arm_that_was_not_asked_for_is_not_mentioned(self, many_classes):
        assert "Private data only" not in render(many_classes)
        assert "private only" not in concise(many_classes)[7]

    def test_twenty_classes_are_all_there(self, many_classes):
        page = Page(render(many_classes))
        assert sum(name == "class" and value == "own" for _, name, value in page.attributes) == 20
        assert "−3" in page.words

    @pytest.mark.parametrize(
        "section",
        ["ledger", "charges", "trajectory", "cleaning", "utility", "audit", "evidence", "seconds"],
    )
    @pytest.mark.parametrize("gone", [None, {}, float("nan")])
    def test_any_section_may_be_missing(self, summary, section, gone):
        summary[section] = gone
        page = Page(render(summary))
        assert page.faults == []
        assert not re.search(r"\b(None|nan)\b", page.words)
        assert len(concise(summary)) == 10

    def test_a_run_refused_before_it_began_has_a_page(self):
        empty = {"dataset": "d", "released": False, "refusal": "no budget", "provenance": {}}
        assert "This model is not released: no budget." in Page(render(empty)).words
        assert len(concise(empty)) == 10

    def test_what_is_withheld_is_said(self, summary):
        assert "Attacks on real members" in render(summary)


class TestEscaping:
    HOSTILE = "<script>alert(1)</script>\"'&{{ 7*7 }}"

    def hostile(self, value):
        if isinstance(value, str):
            return value + self.HOSTILE
        if isinstance(value, dict):
            return {key + self.HOSTILE: self.hostile(part) for key, part in value.items()}
        return [self.hostile(part) for part in value] if isinstance(value, list) else value

    def test_no_text_from_outside_becomes_markup(self, summary):
        for key in (
            "dataset",
            "run_id",
            "refusal",
            "model",
            "use",
            "claim",
            "relation",
            "versions",
        ):
            summary[key] = self.hostile(summary[key] or "")
        for key in ("created_at", "privacy_unit", "flow_run_id"):
            summary[key] = self.hostile(summary[key])
        summary["ledger"] = {k + self.HOSTILE: v for k, v in summary["ledger"].items()}
        summary["cleaning"]["dropped"] = self.hostile(summary["cleaning"]["dropped"])
        summary["cleaning"]["by_source"] = {
            k + self.HOSTILE: v for k, v in summary["cleaning"]["by_source"].items()
        }
        summary["utility"]["classes"] = self.hostile(summary["utility"]["classes"])
        for part in (*summary["charges"], *summary["audit"]["bounds"], summary["evidence"]):
            part |= {k: self.hostile(v) for k, v in part.items() if isinstance(v, str)}
        summary["provenance"] = {
            k: self.hostile(v) if v != "declared" else v for k, v in summary["provenance"].items()
        }
        for released in (True, False):
            page = Page(render(summary | {"released": released}))
            assert "script" not in [tag for tag, _ in page.tags]
            assert page.faults == []
            assert "{{ 7*7 }}" in page.words


class TestProvenance:
    def test_a_number_without_provenance_is_refused_by_name(self, summary):
        summary["utility"]["arms"]["mixed"]["loss"] = 0.3
        del summary["provenance"]["utility"]
        with pytest.raises(UnsourcedFigureError, match=r"utility\.macro_f1 must come from"):
            render(summary)

    @pytest.mark.parametrize("origin", ["restricted", "", "private", "dp-ish", "publicly known"])
    def test_a_number_that_may_not_be_published_is_refused(self, summary, origin):
        summary["provenance"]["utility.macro_f1"] = origin
        for door in (render, concise):
            with pytest.raises(UnsourcedFigureError, match="keep the figure for the restricted"):
                door(summary)

    def test_the_longest_key_speaks(self, summary):
        summary["provenance"]["cleaning.seen"] = "declared"
        row = r">cleaning\.seen</th><td>24,000</td><td><span[^>]*>declared<"
        assert re.search(row, render(summary))


class TestConcise:
    def test_has_exactly_ten_lines(self, any_summary):
        lines = concise(any_summary)
        assert len(lines) == 10
        assert all(line.isprintable() for line in lines)

    def test_cannot_be_broken_by_names(self, summary):
        summary["dataset"] = "a\nb\x1b[31m\r\u2028c"
        lines = concise(summary)
        assert len("\n".join(lines).splitlines()) == 10
        assert "\x1b" not in lines[0]

    def test_says_against_whom_a_run_is_not_private(self, summary):
        notice = "not private against the holder of the auditor's key"
        assert notice not in "\n".join(concise(summary))
        assert concise(summary | {"notice": notice})[1].endswith(notice)

    def test_holds_the_figures(self, summary):
        text = "\n".join(concise(summary))
        for figure in ("ε = 0.5", "10⁻⁵", "1.7713", "0.753 [0.731, 0.775]", "0.0312", "4,000"):
            assert figure in text


class TestWriteReport:
    def test_writes_both_files_and_returns_the_page(self, summary, tmp_path):
        path = write_report(summary, tmp_path / "runs" / "one")
        assert path.read_text("utf-8") == render(summary)
        assert json.loads((path.parent / "summary.json").read_text("utf-8")) == summary
        assert sorted(p.name for p in path.parent.iterdir()) == ["report.html", "summary.json"]

    def test_the_json_is_stable(self, summary, tmp_path):
        write_report(summary, tmp_path)
        text = (tmp_path / "summary.json").read_text("utf-8")
        assert text == json.dumps(summary, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    def test_refuses_numbers_that_are_not_finite_and_writes_nothing(self, summary, tmp_path, bad):
        summary["utility"]["macro_f1"] = bad
        with pytest.raises(ValueError, match="finite numbers only"):
            write_report(summary, tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_an_unsourced_figure_leaves_what_was_there(self, summary, tmp_path):
        write_report(summary, tmp_path)
        before = (tmp_path / "summary.json").read_bytes()
        with pytest.raises(UnsourcedFigureError):
            write_report(summary | {"loss": 0.1}, tmp_path)
        assert (tmp_path / "summary.json").read_bytes() == before

    def test_survives_a_damaged_name(self, summary, tmp_path):
        path = write_report(summary | {"dataset": "caf\udce9"}, tmp_path)
        assert path.exists()
        assert json.loads((tmp_path / "summary.json").read_text("utf-8"))["dataset"] == "caf\udce9"


def test_advice_notice_and_raised_caps_stand_on_the_page(refused):
    refused["advice"] = ["Ask for less."]
    refused["notice"] = "not private against the holder of the auditor's key"
    block = refused["ledger"]["imdb/2026-11"]
    block |= {
        "retired": True,
        "opened_cap": 2.0,
        "raised": [{"to": 3.0, "day": "2026-11-30", "reason": "board", "public_key": "ab" * 32}],
    }
    page = render(refused)
    for said in (
        "<li>Ask for less.</li>",
        "Not private against the holder",
        "has retired",
        "was raised to ε = 3",
    ):
        assert said in page
