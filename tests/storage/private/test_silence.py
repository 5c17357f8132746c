"""An ingestion that fails unforeseen: the failure is named, its text and its context are not."""

from __future__ import annotations

import traceback

import pytest

from storage.errors import PrivateDataError
from storage.private.silence import in_silence


def test_an_unexpected_error_is_named_and_not_quoted():
    with pytest.raises(PrivateDataError, match="KeyError") as caught, in_silence():
        raise KeyError("a secret row")
    assert "secret" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("error", [PrivateDataError("declared"), OSError(28, "No space left")])
def test_ours_and_the_systems_pass(error):
    with pytest.raises(type(error)) as caught, in_silence():
        raise error
    assert caught.value is error


def test_an_ingestion_is_silent(store, declare, tmp_path, monkeypatch):
    def spoil(*_):
        raise ValueError("a secret row")

    monkeypatch.setattr("storage.private.store.parse", spoil)
    dataset, path = declare(), tmp_path / "rows.csv"
    path.write_text("text,label\none,good\n")
    with pytest.raises(PrivateDataError, match="ValueError") as caught:
        store.ingest(dataset, path)
    assert "secret" not in "".join(traceback.format_exception(caught.value))
