"""The command line. `dpmix --help` is its manual.

Exit codes: 0 done, 1 unexpected, 2 wrong input, 3 refused by the ledger, 4 refused by the audit,
130 interrupted. No traceback reaches the user; an unexpected one is kept in a file that is named.
"""

from __future__ import annotations

import errno
import json
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.exceptions import TyperException

INTERRUPTED = 130

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train on private text under differential privacy, mixing in public text.",
)
dataset_app = typer.Typer(no_args_is_help=True, help="Private datasets, their blocks and caps.")
ledger_app = typer.Typer(no_args_is_help=True, help="What has been spent on whose data, by what.")
evidence_app = typer.Typer(no_args_is_help=True, help="Evidence that others can verify.")
app.add_typer(dataset_app, name="dataset")
app.add_typer(ledger_app, name="ledger")
app.add_typer(evidence_app, name="evidence")

_QUOTE_NOTE = (
    "ε of one: PLD for a training run, Rényi for an evaluation. Block before and after: ε of the "
    "Rényi filter, which gates."
)
Profile = Annotated[Path, typer.Option("--profile", "-p", help="Profile (YAML).")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="section.key=value; may be given several times.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DatasetName = Annotated[str | None, typer.Option("--dataset", help="Only this dataset.")]


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


@dataset_app.command("register")
def dataset_register(
    name: Annotated[str, typer.Argument(help="Lower-case name.")],
    file: Annotated[Path, typer.Argument(help="CSV, TSV, JSON Lines or Parquet.")],
    text_column: Annotated[str | None, typer.Option(help="Column of the text.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Column of the label.")] = None,
    person_column: Annotated[
        str | None, typer.Option(help="Column of the person key; makes the unit a person.")
    ] = None,
    period_column: Annotated[
        str | None, typer.Option(help="Column that must equal --period, else the row is ignored.")
    ] = None,
    period: Annotated[str, typer.Option(help="Period of this file, for example 2026-11.")] = "",
    classes: Annotated[
        str | None, typer.Option(help="Declared classes, separated by commas.")
    ] = None,
    records: Annotated[
        int | None, typer.Option(help="Declared number of training records (or persons).")
    ] = None,
    holdout_records: Annotated[
        int | None, typer.Option(help="Declared number held out for evaluation.")
    ] = None,
    records_per_person: Annotated[
        int | None, typer.Option(help="Most records of one person that are used.")
    ] = None,
    epsilon_cap: Annotated[float | None, typer.Option(help="ε_total of a block. [3]")] = None,
    holdout_epsilon_cap: Annotated[
        float | None, typer.Option(help="ε_total of a hold-out block. [6]")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="δ, below 1/n. [1e-5]")] = None,
) -> None:
    """Register a private table, or next month's file of one: the same command."""
    from flows.commands.dataset import register

    dataset = register(
        name,
        file,
        period=period,
        text_column=text_column,
        label_column=label_column,
        person_column=person_column,
        period_column=period_column,
        classes=[c.strip() for c in classes.split(",")] if classes else None,
        records=records,
        holdout_records=holdout_records,
        records_per_unit=records_per_person,
        epsilon_cap=epsilon_cap,
        holdout_epsilon_cap=holdout_epsilon_cap,
        delta=delta,
    )
    typer.echo(f"registered {dataset.block(period)} (unit: {dataset.claim(period)})")


@dataset_app.command("list")
def dataset_list() -> None:
    """Names of the registered datasets."""
    from tasks.installation import Installation

    for name in Installation.open().store.datasets():
        typer.echo(name)


@ledger_app.command("status")
def ledger_status(dataset: DatasetName = None, as_json: AsJson = False) -> None:
    """Cap, spent, reserved and remaining of every block."""
    from flows.commands import ledger

    rows = ledger.status(dataset)
    columns = {
        "block": "block", "role": "role", "claim": "unit", "cap": "cap ε", "spent": "spent",
        "reserved": "reserved", "remaining": "remaining", "delta": "δ",
    }  # fmt: skip
    note = "ε of each block's Rényi filter. A started run counts as spent."
    _show(rows, columns, note, as_json=as_json)


@ledger_app.command("history")
def ledger_history(dataset: DatasetName = None, as_json: AsJson = False) -> None:
    """Every reservation, oldest first."""
    from flows.commands import ledger

    columns = {
        "row": "row", "state": "state", "purpose": "purpose", "blocks": "blocks",
        "epsilon": "ε alone", "steps_counted": "steps", "changed_at": "changed",
    }  # fmt: skip
    note = "ε of each mechanism alone: PLD for training, Rényi for evaluation, 0 if restricted."
    _show(ledger.history(dataset), columns, note, as_json=as_json)


@ledger_app.command("quote")
def ledger_quote(profile: Profile, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """What `retrain` with this profile would cost, before it costs anything."""
    from flows.commands import ledger
    from flows.parameters import parameters_of, read_profile

    rows = ledger.quote(parameters_of(read_profile(profile, overrides or []), "retrain"))
    columns = {
        "block": "block", "releases": "releases", "epsilon_of_one": "ε of one",
        "filter_before": "block before", "filter_after": "block after", "cap": "cap ε", "fits": "fits",
    }  # fmt: skip
    _show(rows, columns, _QUOTE_NOTE, as_json=as_json)


@ledger_app.command("release")
def ledger_release(row: Annotated[int, typer.Argument(help="Ledger row.")]) -> None:
    """Give back a reservation whose run never started; a started one stays charged."""
    from tasks.installation import Installation

    Installation.open().ledger.release(row, note="released by the operator")
    typer.echo(f"row {row} released")


@evidence_app.command("verify")
def evidence_verify(
    files: Annotated[list[Path], typer.Argument(help="evidence.jsonl of one or more runs.")],
    public_key: Annotated[
        str, typer.Option(help="Public key: 64 hex digits as published, or evidence.pub.")
    ],
    head: Annotated[str, typer.Option(help="Head of the one file, as published.")] = "",
    ledger: Annotated[Path | None, typer.Option(help="Export of the ledger.")] = None,
    as_json: AsJson = False,
) -> None:
    """Verify chain, signatures and order, and recompute every ε; needs no database."""
    from flows.commands.evidence import verify_command

    found = verify_command(files, public_key=public_key, head=head, ledger=ledger)
    if as_json:
        typer.echo(json.dumps(found.to_json(), ensure_ascii=False))
    else:
        for line in found.lines:
            typer.echo(line)
    raise typer.Exit(found.exit_code)


@evidence_app.command("replay")
def evidence_replay(
    run: Annotated[Path, typer.Argument(help="Folder of the run.")],
    auditor_key: Annotated[Path, typer.Option(help="The auditor's private key (PEM).")],
) -> None:
    """Repeat a run from its sealed seeds and compare the model; needs the data and the auditor's key."""
    from flows.commands.evidence import replay_command
    from flows.commands.run import quiet

    quiet()
    for line in replay_command(run, auditor_key=auditor_key):
        typer.echo(line)


@evidence_app.command("keygen")
def evidence_keygen(
    folder: Annotated[Path, typer.Argument(help="Folder of the auditor's keys.")],
) -> None:
    """Make an auditor's key pair, to which seeds can be sealed for a replay."""
    from flows.commands.evidence import keygen_command

    for line in keygen_command(folder):
        typer.echo(line)


def _show(rows: list[dict[str, Any]], columns: dict[str, str], note: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    from flows.commands.ledger import show

    show(rows, columns, note)


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
        _explain(error)
    if code == INTERRUPTED:
        _fail(
            "interrupted. What had started stays charged; see `dpmix ledger status`.", INTERRUPTED
        )
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: BaseException) -> None:
    from storage.errors import BudgetRefused, StorageError

    # Typer's own copy of click: a wrong or missing argument, which knows how to say so.
    if isinstance(error, TyperException) and hasattr(error, "show"):
        error.show()
        sys.exit(2)
    if isinstance(error, BudgetRefused):
        _fail(str(error), 3)
    if type(error).__name__ == "ReleaseRefused":
        _fail(str(error), 4)
    if isinstance(error, ValueError | StorageError | FileNotFoundError) or (
        type(error).__module__.split(".")[0] in {"flows", "tasks"}
    ):
        _fail(str(error), 2)
    if _is_full(error):
        first = str(error).splitlines()[0]
        _fail(
            f"the disk is full: {first}. Free some space and run again. What had started stays "
            "charged; see `dpmix ledger status`.",
            1,
        )
    _fail(f"unexpected {type(error).__name__}: {error}\n{_keep(error)}", 1)


def _is_full(error: BaseException) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if getattr(seen, "errno", None) == errno.ENOSPC or "disk is full" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _keep(error: BaseException) -> str:
    """Write the traceback where its reader finds it; says where, or why not."""
    from storage.settings import Settings

    log = Settings().home / "errors" / f"{datetime.now(UTC):%Y%m%dT%H%M%S}.txt"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("".join(traceback.format_exception(error)))
    except OSError as unwritten:
        return f"details could not be written to {log}: {unwritten.strerror}"
    return f"details: {log}"


def _fail(message: str, code: int) -> None:
    typer.secho(message, err=True, fg="red" if code != INTERRUPTED else None)
    sys.exit(code)


if __name__ == "__main__":
    main()
