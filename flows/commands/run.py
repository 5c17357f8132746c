"""`dpmix run`: a flow from a profile, here and now."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

from flows import services
from flows.parameters import FlowName, parameters_of, read_profile

REGISTERED: tuple[FlowName, ...] = ("refresh_public", "retrain", "audit")


def run_flow(flow: FlowName, profile: dict[str, Any]) -> Any:
    """Check the flow's parameters, then run it against a server."""
    parameters = parameters_of(profile, flow)
    with services.session():
        return call(flow, parameters)


def call(flow: FlowName, parameters: dict[str, Any]) -> Any:
    """Run a flow in this process; the server is there already."""
    quiet()
    # Imported late: Prefect reads its settings from the environment when it is imported.
    if flow == "refresh_public":
        from flows.refresh_public import refresh_public as chosen
    elif flow == "retrain":
        from flows.retrain import retrain as chosen
    else:
        from flows.audit import audit as chosen
    return chosen(**parameters)


def quiet() -> None:
    """What a user sees is ours: libraries' warnings stay out of the terminal."""
    warnings.filterwarnings("ignore")
    for name in ("presidio-analyzer", "opacus", "absl", "alembic", "faiss", "httpx"):
        logging.getLogger(name).setLevel(logging.ERROR)


def run_profile(flow: FlowName, path: Path, overrides: list[str]) -> Any:
    """Run a flow from a profile file with overrides."""
    return run_flow(flow, read_profile(path, overrides))
