"""The trust zone: what goes wrong with private rows is said nowhere but in the restricted folder."""

from __future__ import annotations

import logging
import shutil
import traceback
import warnings

import pytest

from flows.commands import dataset
from privacy.errors import PrivacyError
from storage.errors import PrivateDataError
from tasks.installation import Installation
from tasks.private_data import PrivateStageError, trust_zone

SECRET = "quokka wrote this row"


@pytest.fixture
def installation(tmp_path, monkeypatch):
    monkeypatch.setenv("DPMIX_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("DPMIX_RUNS", str(tmp_path / "runs"))
    (tmp_path / "rows.csv").write_text("body,kind\none,a\n")
    dataset.register(
        "letters", tmp_path / "rows.csv", text_column="body", label_column="kind",
        classes=["a", "b"], records=1000,
    )  # fmt: skip
    return Installation.open()


@pytest.fixture
def fail(installation):
    """What comes out of the trust zone when `error` is raised inside."""

    def make(error, kind=PrivateStageError):
        with pytest.raises(kind) as caught, trust_zone(installation, "letters", "run"):
            raise error
        return caught.value

    return make


def told(error):
    return "".join(traceback.format_exception(error))


class TestUnexpected:
    @pytest.mark.parametrize("kind", [ValueError, KeyError, RuntimeError, SystemExit, UnicodeError])
    def test_is_replaced_and_its_text_is_not_in_the_context(self, fail, kind):
        error = fail(kind(SECRET))
        assert kind.__name__ in str(error)
        assert "quokka" not in told(error)
        assert error.__suppress_context__

    def test_is_kept_for_its_owner_alone(self, fail, installation):
        error = fail(ValueError(SECRET))
        path = installation.store.restricted("letters") / "run-error.txt"
        assert str(path) in str(error)
        assert SECRET in path.read_text()
        assert path.stat().st_mode & 0o077 == 0

    def test_that_cannot_be_kept_is_lost_rather_than_told(self, fail, installation):
        folder = installation.settings.private / "letters" / "restricted"
        shutil.rmtree(folder, ignore_errors=True)
        folder.write_text("no folder")
        error = fail(ValueError(SECRET))
        assert "could not be kept" in str(error)
        assert "quokka" not in told(error)

    def test_an_interruption_passes_without_what_it_says(self, fail):
        assert "quokka" not in told(fail(KeyboardInterrupt(SECRET), KeyboardInterrupt))


class TestOurOwn:
    @pytest.mark.parametrize("kind", [PrivateDataError, PrivacyError])
    def test_passes_without_the_error_that_it_stands_for(self, installation, kind):
        def work():
            with trust_zone(installation, "letters", "run"):
                try:
                    raise ValueError(SECRET)  # noqa: TRY301
                except ValueError:
                    raise kind("a declared figure")  # noqa: B904

        with pytest.raises(kind, match="declared") as caught:
            work()
        assert "quokka" not in told(caught.value)


class TestMeanwhile:
    def test_nothing_is_logged_or_warned_of(self, installation, caplog, recwarn):
        with trust_zone(installation, "letters", "run"):
            logging.getLogger("some.library").critical(SECRET)
            warnings.warn(SECRET, stacklevel=1)
        assert not caplog.records
        assert not recwarn.list

    def test_logs_are_heard_again_afterwards(self, fail, caplog):
        fail(ValueError(SECRET))
        logging.getLogger("some.library").critical("heard")
        assert [r.message for r in caplog.records] == ["heard"]
