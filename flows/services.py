"""Prefect's server and workers as child processes: started for a demo, or kept up for the UI.

`session` gives a flow run a server: the one that `dpmix up` keeps, or one of its own on a free loopback
port, with its own SQLite, stopped at the end, also after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from storage.settings import Settings

_START_TIMEOUT = 120.0
ROOT = Path(__file__).resolve().parent.parent


class ServiceError(RuntimeError):
    """A server or worker did not come up; names the log to read."""


@dataclass(frozen=True)
class Services:
    """Running services.

    Attributes:
        url: The server's UI.
        server: Process id of the server.
        worker: Process id of the worker; 0 if none was started.
    """

    url: str
    server: int
    worker: int = 0

    @property
    def api(self) -> str:
        """The server's API."""
        return f"{self.url}/api"


def environment(url: str = "") -> dict[str, str]:
    """Prefect's settings as environment variables; ours alone, never a user's profile."""
    settings = Settings()
    values = {
        "PREFECT_HOME": str(settings.home / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_UI_V2_ENABLED": "false",
        "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
        # Idle OpenMP threads sleep instead of spinning: many small tensors, few cores.
        "OMP_WAIT_POLICY": "PASSIVE",
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
            "prefect.server.concurrency.lease_storage.filesystem"
        ),
        "DPMIX_HOME": str(settings.home),
        "DPMIX_DATA": str(settings.data),
        "DPMIX_RUNS": str(settings.runs),
    }
    if settings.ledger_url:
        values["DPMIX_LEDGER_URL"] = settings.ledger_url
    if url:
        values["PREFECT_API_URL"] = f"{url}/api"
    return values


def prepare() -> None:
    """Put our Prefect settings into this process; before Prefect is first imported."""
    os.environ.update(environment())
    # Prefect warns when it is imported and its home is not there yet.
    Path(os.environ["PREFECT_HOME"]).mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def session() -> Iterator[Services]:
    """A Prefect server for the flows of this process."""
    running = current()
    services = running or start_server()
    from prefect.settings import PREFECT_API_URL, temporary_settings  # noqa: PLC0415 - see `prepare`

    try:
        with temporary_settings({PREFECT_API_URL: services.api}):
            yield services
    finally:
        _flush_logs()
        if running is None:
            stop(services.server)


def _flush_logs() -> None:
    """Deliver what is queued for the server's log before the server goes."""
    from prefect.logging.handlers import APILogHandler  # noqa: PLC0415 - see `prepare`

    APILogHandler().flush()


def start_server(port: int = 0) -> Services:
    """Start a server on loopback and wait until it answers.

    Raises:
        ServiceError: It ended, or did not answer in time.
    """
    port = port or _free_port()
    url = f"http://127.0.0.1:{port}"
    process = _spawn(
        ["server", "start", "--host", "127.0.0.1", "--port", str(port)],
        "server",
        # Without these two the UI asks another port than the server listens on.
        {"PREFECT_SERVER_API_PORT": str(port), "PREFECT_SERVER_API_HOST": "127.0.0.1"},
    )
    services = Services(url, process.pid)
    deadline = time.monotonic() + _START_TIMEOUT
    try:
        while not healthy(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise ServiceError(  # noqa: TRY301 - the clean-up below is for this as well
                    f"the Prefect server did not come up at {url}. Read {_log('server')}; a port in "
                    "use or a full disk is the usual cause."
                )
            time.sleep(0.2)
    except BaseException:
        stop(process.pid)
        raise
    return services


def start_worker(services: Services, pool: str) -> int:
    """Start a process worker on a pool; returns its process id."""
    arguments = ["worker", "start", "--pool", pool, "--type", "process"]
    return _spawn(arguments, f"worker-{pool}", environment(services.url)).pid


def prefect(services: Services, *arguments: str) -> None:
    """Run one command of Prefect's own CLI against the services.

    Raises:
        ServiceError: It failed; with what it said.
    """
    done = subprocess.run(  # noqa: S603 - our own arguments
        [sys.executable, "-m", "prefect", "--no-prompt", *arguments],
        env={**os.environ, **environment(services.url)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ServiceError(f"prefect {' '.join(arguments)} failed: {done.stdout}{done.stderr}")


def healthy(url: str) -> bool:
    """Whether a server answers there."""
    try:
        with urllib.request.urlopen(f"{url}/api/health", timeout=2) as answer:  # noqa: S310 - loopback
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def stop(pid: int) -> None:
    """End a service and its children."""
    for number, patience in ((signal.SIGTERM, 8.0), (signal.SIGKILL, 2.0)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            try:
                os.killpg(pid, 0)
            except (ProcessLookupError, PermissionError):
                return
            time.sleep(0.1)


def current() -> Services | None:
    """The services that `dpmix up` keeps, if they still answer."""
    path = _state()
    try:
        found = Services(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return found if healthy(found.url) else None


def remember(services: Services) -> None:
    """Keep the services for later commands."""
    _state().write_text(json.dumps(asdict(services)))


def forget() -> None:
    """Forget them."""
    _state().unlink(missing_ok=True)


def _state() -> Path:
    folder = Settings().home
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "services.json"


def _log(name: str) -> Path:
    folder = Settings().home / "prefect"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.log"


def _spawn(arguments: list[str], log: str, more: dict[str, str]) -> subprocess.Popen[bytes]:
    with _log(log).open("ab") as stream:
        return subprocess.Popen(  # noqa: S603 - our own arguments
            [sys.executable, "-m", "prefect", *arguments],
            env={**os.environ, **environment(), **more},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            # Its own session: Ctrl-C reaches us, and we end it when our work is done.
            start_new_session=True,
        )


def is_free(port: int) -> bool:
    """Whether a loopback port can be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
