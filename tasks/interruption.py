"""Ctrl-C that nothing swallows: noted when it comes, and raised again before the next stage.

An interruption that falls into a library's own clean-up can be lost there, and the run would go on to
its next private read. Only a command line listens; a worker's runs are cancelled through Prefect.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

_came = threading.Event()


def listen() -> None:
    """Note every SIGINT from here on, besides raising it. Call from the main thread."""
    signal.signal(signal.SIGINT, _note)


def check() -> None:
    """Raise again what came and was lost, where the main thread can be stopped.

    Raises:
        KeyboardInterrupt: One came since `listen`.
    """
    if _came.is_set() and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


def _note(number: int, frame: FrameType | None) -> None:
    _came.set()
    signal.default_int_handler(number, frame)
