"""An interruption that a library swallowed is raised before the next stage."""

from __future__ import annotations

import contextlib
import signal

import pytest

from tasks import interruption
from tasks.progress import stage


@pytest.fixture
def listening():
    before = signal.getsignal(signal.SIGINT)
    interruption.listen()
    yield
    signal.signal(signal.SIGINT, before)
    interruption._came.clear()


def test_it_is_raised_at_once(listening):
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_one_that_was_swallowed_stops_the_next_stage(listening):
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), stage("private: reading"):
        pytest.fail("the stage was entered")


def test_without_one_a_stage_is_entered(listening):
    with stage("private: reading"):
        return
