"""`dpmix demo`: the whole pipeline on real data, with embedded defaults."""

from __future__ import annotations

from pathlib import Path

from flows import services
from flows.commands import dataset
from flows.commands.run import call, quiet
from flows.parameters import parameters_of, read_profile
from tasks.progress import console

PROFILE = services.ROOT / "deploy" / "profiles" / "demo.yaml"


def demo() -> Path:
    """Prepare, refresh, retrain, report; returns the report's path."""
    quiet()
    profile = read_profile(PROFILE)
    refresh, retrain = parameters_of(profile, "refresh_public"), parameters_of(profile, "retrain")
    console.print("[bold]dpmix demo[/]: real reviews play the private part, other text is public")
    from tasks.demo_data import make_demo_data

    files = make_demo_data()
    dataset.register(
        "imdb",
        files.private,
        text_column="review",
        label_column="sentiment",
        classes=["negative", "positive"],
        records=4000,
        holdout_records=1500,
        epsilon_cap=2.0,
    )
    console.print("  starting a Prefect server on loopback …")
    with services.session() as running:
        console.print(f"  server at {running.url}")
        call("refresh_public", refresh)
        return Path(call("retrain", retrain))
