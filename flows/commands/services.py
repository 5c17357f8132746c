"""`dpmix up` and `dpmix down`: server, pool, worker and deployments on one machine."""

from __future__ import annotations

from dataclasses import replace

from flows import services

POOL = "cpu"
_TRIES = 20


def up(port: int) -> str:
    """Start everything, or say that it runs; returns what to print.

    Raises:
        ServiceError: A service did not come up; the others are stopped.
    """
    running = services.current()
    if running is not None:
        return f"running already: {running.url}"
    for candidate in range(port, port + _TRIES):
        if services.is_free(candidate):
            break
    else:
        raise services.ServiceError(f"ports {port} to {port + _TRIES - 1} are all taken.")
    started = services.start_server(candidate)
    try:
        services.prefect(started, "work-pool", "create", POOL, "--type", "process", "--overwrite")
        services.prefect(started, "deploy", "--prefect-file", "deploy/prefect.yaml", "--all")
        started = replace(started, worker=services.start_worker(started, POOL))
    except BaseException:
        services.stop(started.server)
        raise
    services.remember(started)
    return (
        f"{started.url}\nStart a run: Deployments → retrain → Run. Schedules are inactive. "
        "Stop: make down"
    )


def down() -> str:
    """Stop worker and server."""
    running = services.current()
    if running is None:
        services.forget()
        return "nothing is running."
    if running.worker:
        services.stop(running.worker)
    services.stop(running.server)
    services.forget()
    return "stopped."
