from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tasks.cleaning import base
from tasks.cleaning.base import (
    Cleaner,
    CleaningError,
    Document,
    Drop,
    MissingDependencyError,
    OptionError,
    UnknownStepError,
    apply,
    build,
    config_digest,
)


class Shouting(Cleaner):
    """Drops capitals."""

    name = "shouting"
    level = "text"
    record_local = True
    reasons = ("shouting",)

    def clean(self, document):
        return Drop("shouting") if document.text.isupper() else document


class Failing(Cleaner):
    """Raises on everything."""

    name = "failing"
    level = "text"
    record_local = True

    def clean(self, document):
        raise RuntimeError(document.text)


@pytest.fixture
def mystep(monkeypatch):
    module = ModuleType("mystep")
    module.Shouting = Shouting
    module.NotOne = dict
    monkeypatch.setitem(sys.modules, "mystep", module)


class TestBuilding:
    def test_a_class_anywhere_importable_is_a_step(self, mystep):
        (step,) = build(["mystep:Shouting"])
        assert apply([step], Document.of("LOUD")) == Drop("shouting", step="shouting", level="text")

    def test_an_unknown_step_is_told_the_known_ones(self):
        with pytest.raises(UnknownStepError, match=r"'langauge'.*language.*repair"):
            build(["langauge"])

    @pytest.mark.parametrize("step", ["nowhere.to.be:Found", "mystep:Missing", "mystep:NotOne"])
    def test_what_cannot_be_imported_is_named(self, mystep, step):
        with pytest.raises(UnknownStepError, match=step):
            build([step])

    def test_an_unknown_option_is_told_the_accepted_ones(self):
        with pytest.raises(OptionError, match=r"min_char\b.*min_chars, max_chars"):
            build(["length"], {"length": {"min_char": 3}})

    def test_options_of_an_absent_step_are_refused(self):
        with pytest.raises(OptionError, match="pii"):
            build(["length"], {"pii": {}})

    def test_a_missing_required_option_is_named(self):
        with pytest.raises(OptionError, match="examples"):
            build(["domain"])

    @pytest.mark.parametrize(
        ("attribute", "value"),
        [("name", None), ("level", "words"), ("record_local", "yes"), ("reasons", ["too loud"])],
    )
    def test_a_step_that_does_not_declare_itself_is_named(
        self, monkeypatch, mystep, attribute, value
    ):
        monkeypatch.setattr(Shouting, attribute, value)
        with pytest.raises(CleaningError, match=rf"mystep:Shouting must declare {attribute}"):
            build(["mystep:Shouting"])

    def test_a_missing_package_is_named(self, monkeypatch, mystep):
        monkeypatch.setattr(Shouting, "requires", ("no-such-distribution",))
        with pytest.raises(MissingDependencyError, match="pip install no-such-distribution"):
            build(["mystep:Shouting"])

    def test_every_error_is_a_cleaning_error(self):
        for error in (UnknownStepError, OptionError, MissingDependencyError):
            assert issubclass(error, CleaningError)


class TestApplying:
    def test_an_exception_costs_the_document_and_names_the_cleaner_but_not_the_text(self):
        drop = apply([Failing()], Document.of("a secret"))
        assert isinstance(drop, Drop)
        assert (drop.reason, drop.step) == ("cleaner_error", "failing")
        assert "secret" not in drop.detail
        assert "failing" in drop.detail

    @pytest.mark.parametrize("answer", [None, "a secret", Drop("a secret"), Drop("loud")])
    def test_an_answer_that_was_not_declared_is_a_failure_of_the_step(self, monkeypatch, answer):
        monkeypatch.setattr(Failing, "clean", lambda _self, _document: answer)
        drop = apply([Failing()], Document.of("a secret"))
        assert (drop.reason, drop.step) == ("cleaner_error", "failing")
        assert "secret" not in drop.detail

    def test_later_steps_see_nothing_of_a_dropped_document(self):
        assert apply([Shouting(), Failing()], Document.of("LOUD")).reason == "shouting"


class TestIdentity:
    def test_the_same_source_and_raw_text_have_the_same_id(self):
        assert Document.of("a", source="s").id == Document.of("a", source="s", label="x").id
        assert Document.of("a", source="s").id != Document.of("a", source="t").id

    def test_options_order_and_steps_change_the_digest(self):
        digests = {
            config_digest(["length"]),
            config_digest(["length"], {"length": {"min_chars": 3}}),
            config_digest(["repair", "length"]),
            config_digest(["length", "repair"]),
        }
        assert len(digests) == 4

    def test_an_edited_examples_file_changes_the_digest_and_its_place_does_not(
        self, examples, tmp_path
    ):
        copy = tmp_path / "copy.jsonl"
        copy.write_bytes(examples.read_bytes())
        first = config_digest(["domain"], {"domain": {"examples": str(examples)}})
        assert config_digest(["domain"], {"domain": {"examples": str(copy)}}) == first
        copy.write_bytes(examples.read_bytes() + b"\n")
        assert config_digest(["domain"], {"domain": {"examples": str(copy)}}) != first


def test_an_entry_point_cannot_replace_a_built_in_step(monkeypatch):
    entry = type("Entry", (), {"name": "pii", "value": "evil:Nothing"})
    monkeypatch.setattr(base.importlib.metadata, "entry_points", lambda group: [entry])
    assert base.registry()["pii"] == "tasks.cleaning.pii:Pii"


def test_the_steps_in_the_readme_work_as_written(monkeypatch):
    readme = Path(base.__file__).with_name("README.md").read_text("utf-8")
    first, second = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    module = ModuleType("readme")
    monkeypatch.setitem(sys.modules, "readme", module)
    exec(first + second, module.__dict__)
    steps = build(["readme:Shouting", "readme:Length"], {"readme:Length": {"min_chars": 5}})
    outcomes = [apply(steps, Document.of(text)) for text in ("LOUD AND CLEAR", "abc", "just right")]
    assert [getattr(outcome, "reason", None) for outcome in outcomes] == [
        "shouting", "too_short", None,
    ]  # fmt: skip
