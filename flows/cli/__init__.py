"""The command line. `dpmix --help` is its manual.

Exit codes: 0 done, 1 unexpected, 2 wrong input, 3 refused by the ledger, 4 refused by the audit,
130 interrupted; `ledger status --check` ends with 50, 80 or 95 instead. No traceback reaches the user;
an unexpected one is kept in a file that is named.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows.cli import dataset, evidence, ledger
from flows.cli.options import Overrides, Profile
from flows.cli.outcomes import INTERRUPTED, explain, fail

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train on private text under differential privacy, mixing in public text.",
)
app.add_typer(dataset.app, name="dataset")
app.add_typer(ledger.app, name="ledger")
app.add_typer(evidence.app, name="evidence")


@app.command()
def demo() -> None:
    """Run the whole pipeline on real data: clean, embed, train, audit, report."""
    from flows.commands.demo import demo as run_demo

    _print_report(run_demo())


@app.command()
def run(
    flow: Annotated[str, typer.Argument(help="refresh_public, retrain or audit.")],
    profile: Profile,
    overrides: Overrides = None,
) -> None:
    """Run a flow from a profile, here and now."""
    from flows.commands.run import REGISTERED, run_profile
    from flows.parameters import ProfileError

    name = flow.replace("-", "_")
    if name not in REGISTERED:
        raise ProfileError(f"flow {flow!r} is unknown; known: {', '.join(REGISTERED)}.")
    result = run_profile(name, profile, overrides or [])  # type: ignore[arg-type]
    if name == "retrain":
        _print_report(Path(result))
    else:
        Console().print_json(json.dumps(result))


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a released model.")],
    source: Annotated[str, typer.Argument(help="File with one text a line, or - for stdin.")],
) -> None:
    """Use a released model: one JSON object a line, in order."""
    from flows.commands.run import quiet
    from tasks.prediction import Predictor

    quiet()
    try:
        stream = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise typer.BadParameter(
            f"{source} cannot be read: {error.strerror}. Give a text file, or - for stdin."
        ) from None
    texts = stream.decode("utf-8", "replace").splitlines()
    for found in Predictor(model)(texts):
        typer.echo(json.dumps({"label": found.label, "confidence": found.confidence}))


@app.command()
def up(
    port: Annotated[int, typer.Option(help="Port of the UI; the next free one if taken.")] = 4200,
) -> None:
    """Start server, pool, worker and deployments, and print the URL of the UI."""
    from flows.commands.services import up as start

    typer.echo(start(port))


@app.command()
def down() -> None:
    """Stop what `dpmix up` started."""
    from flows.commands.services import down as end

    typer.echo(end())


def _print_report(page: Path) -> None:
    from tasks.reporting import concise

    summary = json.loads((page.parent / "summary.json").read_text())
    for line in concise(summary):
        typer.echo(line)
    typer.echo(f"\nreport: {page}")
    typer.echo("UI:     make up   (then open the URL that it prints)")


def main() -> None:
    """Run the command line; turn every outcome into an exit code and a message of ours."""
    from flows import services
    from tasks import interruption

    # A stranger verifies on a machine that has no installation, and shall not get one.
    if sys.argv[1:3] not in (["evidence", "verify"], ["evidence", "keygen"]):
        services.prepare()
    # A cleaning step or a head of the user's own is a file in the folder where dpmix is started.
    sys.path.append(str(Path.cwd()))
    interruption.listen()
    code: object = INTERRUPTED
    try:
        # An exit or an interruption inside a command comes back as a number, not as an exception.
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        pass
    except typer.Exit as ended:
        code = ended.exit_code
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - the last line of defence
        explain(error)
    if code == INTERRUPTED:
        fail("interrupted. What had started stays charged; see `dpmix ledger status`.", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)
