"""A process that forks victims: each runs a scenario and is struck at one point.

Reads orders from its standard input, one JSON object a line: {"do", "scenario", "url", "folder", ...}.
A forked child carries each out and leaves what it found in ``<do>.json`` in the folder; the answer on
standard output is {"status"}, the child's exit as `waitpid` gives it. The imports are done once, before
the first fork, so that a victim costs milliseconds.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

import alembic.autogenerate  # noqa: F401 - imported lazily by migrations; a victim shall not pay
import psycopg
import sqlalchemy as sa
from points import Points
from scenarios import Actor, Ledger, recover, snapshot

from storage.errors import StorageError

FINISHED, REFUSED, FAILED = 0, 3, 4


def main() -> None:
    Ledger("sqlite:///:memory:")  # loads what is loaded late
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _obey(order)
        _child, status = os.waitpid(child, 0)
        sys.stdout.write(json.dumps({"status": status}) + "\n")
        sys.stdout.flush()


def _obey(order: dict) -> None:
    folder = Path(order["folder"])
    try:
        found = DEEDS[order["do"]](order, folder)
        (folder / f"{order['do']}.json").write_text(json.dumps(found))
    except StorageError as error:
        (folder / "error").write_text(f"{type(error).__name__}: {error}")
        os._exit(REFUSED)
    except BaseException:  # noqa: BLE001 - told to the parent by the status
        (folder / "error").write_text(traceback.format_exc())
        os._exit(FAILED)
    os._exit(FINISHED)


def suffer(order: dict, folder: Path) -> list[str]:
    """Run a scenario and be struck at the point `target`; names the points if none is to be struck."""
    points = Points(order.get("target", 0), _cutter(order.get("cut", "")))
    actor = Actor(order["url"], folder, at_step=lambda: points.at("step"))
    points.watch()
    actor.run(order["scenario"])
    return points.names


def witness(order: dict, folder: Path) -> list[dict]:
    """Run a scenario undisturbed; gives the snapshot before it and after each call."""
    actor = Actor(order["url"], folder)
    found = [snapshot(order["url"], folder)] if order["scenario"] != "opening" else []
    actor.run(order["scenario"], lambda: found.append(snapshot(order["url"], folder)))
    return found


def inspect(order: dict, folder: Path) -> list[dict]:
    """What was left, and what the next run makes of it."""
    found = snapshot(order["url"], folder)
    recover(order["url"], folder)
    return [found, snapshot(order["url"], folder)]


DEEDS = {"suffer": suffer, "witness": witness, "inspect": inspect}


def _cutter(server: str):
    """Ends the session of the connection in use, from another one; None kills the process instead."""
    if not server:
        return None

    def cut(connection) -> None:
        if connection is None:
            return
        address = sa.make_url(server)
        # Its own waits are points as well; they come after the target and strike no more.
        with psycopg.connect(
            host=address.host,
            port=address.port,
            user=address.username,
            password=address.password,
            dbname="postgres",
            autocommit=True,
        ) as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [connection.info.backend_pid])

    return cut


if __name__ == "__main__":
    main()
