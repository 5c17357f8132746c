"""`dpmix ledger`: every command on a small installation, without a server."""

from __future__ import annotations

import json

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from flows import cli
from flows.commands import dataset
from storage.errors import BlockRetired, LedgerError, PrivateDataError
from storage.ledger import Charge
from tasks.installation import Installation


@pytest.fixture
def installation(tmp_path, monkeypatch):
    """One registered dataset with a hold-out, in a home of its own."""
    monkeypatch.setenv("DPMIX_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("DPMIX_RUNS", str(tmp_path / "runs"))
    rows = "".join(f"text {i},{i % 2}\n" for i in range(40))
    (tmp_path / "notes.csv").write_text("text,label\n" + rows)
    dataset.register(
        "notes",
        tmp_path / "notes.csv",
        text_column="text",
        label_column="label",
        classes=["0", "1"],
        records=1000,
        holdout_records=400,
    )
    return Installation.open()


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "profile.yaml"
    values = {
        "dataset": {"name": "notes"},
        "corpus": {"name": "c", "raw": "raw"},
        "training": {"epsilon": 0.5, "steps": 20, "sample_rate": 0.25},
    }
    path.write_text(yaml.safe_dump(values))
    return str(path)


def dpmix(*arguments, code=0, **more):
    found = CliRunner().invoke(cli.app, [*map(str, arguments)], **more)
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == code, found.output
    return found.stdout


def as_json(*arguments):
    return json.loads(dpmix(*arguments, "--json"))


def spend(ledger, *, share, run="r", start=True):
    """Book a share of the training block's cap in units."""
    block = next(b for b in ledger.blocks() if b.role == "train")
    costs = tuple(max(1, int(c * share)) for c in block.caps)
    charge = Charge(
        purpose="p", mechanism={}, epsilon=1.0, delta=1e-5, steps=1, costs={block.name: costs}
    )
    (row,) = ledger.reserve([charge], flow_run_id=run, run_count=1)
    if start:
        ledger.start(row)
    return row


def test_status_shows_every_block_with_its_filter(installation):
    rows = {r["block"]: r for r in as_json("ledger", "status")}
    assert set(rows) == {"notes/all", "notes/all/holdout"}
    assert (rows["notes/all"]["cap"], rows["notes/all"]["spent"]) == (3.0, 0.0)
    assert rows["notes/all"]["shows"].startswith("ε of the ")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_cell_is_cut_or_folded_on_a_narrow_terminal(installation, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    printed = dpmix("ledger", "status")
    assert "notes/all/holdout" in printed
    assert "remaining" in printed
    assert "…" not in printed


def test_a_check_of_an_empty_ledger_is_quiet(installation):
    dpmix("ledger", "status", "--check")


def test_a_check_tells_how_full_the_fullest_block_is(installation):
    spend(installation.ledger, share=0.999)
    found = CliRunner().invoke(cli.app, ["ledger", "status", "--check"])
    assert found.exit_code == 95
    assert "notes/all" in found.stderr


def test_a_retired_block_raises_no_alarm(installation):
    spend(installation.ledger, share=0.999)
    dpmix("ledger", "retire", "notes/all", "--reason", "full")
    dpmix("ledger", "status", "--check")


def test_a_further_period_is_opened_on_the_datasets_terms(installation):
    dpmix("ledger", "open", "notes", "--period", "2026-12", "--epsilon-cap", "2")
    rows = {r["block"]: r["cap"] for r in as_json("ledger", "status")}
    assert (rows["notes/2026-12"], rows["notes/2026-12/holdout"]) == (2.0, 6.0)


def test_other_terms_for_an_open_block_are_refused(installation):
    with pytest.raises(LedgerError, match="terms are frozen"):
        dpmix("ledger", "open", "notes", "--epsilon-cap", "2")


def test_a_block_of_an_unknown_dataset_is_not_opened(installation):
    with pytest.raises(PrivateDataError, match="'nobody' is not registered"):
        dpmix("ledger", "open", "nobody")


def test_a_retired_block_pays_no_more_and_says_so(installation):
    dpmix("ledger", "retire", "notes/all", "--reason", "last year's")
    assert {r["block"]: r["retired"] for r in as_json("ledger", "status")}["notes/all"]
    with pytest.raises(BlockRetired, match="has retired"):
        spend(installation.ledger, share=0.1)


@pytest.mark.parametrize("command", [["retire"], ["raise-cap", "--epsilon-cap", "4", "--yes"]])
def test_an_unknown_block_is_named_with_those_that_are_open(installation, command):
    name, *more = command
    with pytest.raises(LedgerError, match="'nowhere' is not open; open are: notes/all"):
        dpmix("ledger", name, "nowhere", *more, "--reason", "x")


@pytest.mark.parametrize("command", [["retire"], ["raise-cap", "--epsilon-cap", "4", "--yes"]])
def test_a_decision_needs_a_reason(installation, command):
    name, *more = command
    with pytest.raises(LedgerError, match="--reason must say why"):
        dpmix("ledger", name, "notes/all", *more, "--reason", " ")


def test_a_raised_cap_is_signed_by_the_officer_and_disclosed(installation, tmp_path):
    key = Ed25519PrivateKey.generate()
    (tmp_path / "officer.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    dpmix("ledger", "raise-cap", "notes/all", "--epsilon-cap", "4", "--reason", "board, item 3",
          "--key", tmp_path / "officer.pem", "--yes")  # fmt: skip
    row = {r["block"]: r for r in as_json("ledger", "status")}["notes/all"]
    assert (row["cap"], row["opened_cap"]) == (4.0, 3.0)
    (raised,) = row["raised"]
    assert raised["public_key"] == key.public_key().public_bytes_raw().hex()
    assert "cap raised to ε=4" in dpmix("ledger", "status")


@pytest.mark.parametrize("cap", ["3", "2", "nan", "inf"])
def test_a_cap_is_only_raised(installation, cap):
    with pytest.raises(LedgerError, match="must be above 3"):
        dpmix("ledger", "raise-cap", "notes/all", "--epsilon-cap", cap, "--reason", "x", "--yes")


def test_a_cap_is_not_raised_unless_confirmed(installation):
    arguments = ["ledger", "raise-cap", "notes/all", "--epsilon-cap", "4", "--reason", "x"]
    dpmix(*arguments, code=1, input="n\n")
    assert {r["cap"] for r in as_json("ledger", "status")} == {3.0, 6.0}


def test_an_officers_key_that_is_missing_is_named_and_none_is_made(installation, tmp_path):
    missing = tmp_path / "nobody.pem"
    with pytest.raises(LedgerError, match=r"nobody\.pem does not exist"):
        dpmix("ledger", "raise-cap", "notes/all", "--epsilon-cap", "4", "--reason", "x", "--yes",
              "--key", missing)  # fmt: skip
    assert not missing.exists()


def test_a_quote_shows_the_runs_epsilon_beside_what_the_block_pays(installation, profile):
    rows = {r["block"]: r for r in as_json("ledger", "quote", "-p", profile)}
    row = rows["notes/all"]
    assert 0 < row["epsilon_of_one"] <= 0.5 < row["filter_cost"]
    assert row["filter_after"] == row["filter_cost"]
    assert row["fits"]


def test_a_retired_block_fits_nothing(installation, profile):
    dpmix("ledger", "retire", "notes/all", "--reason", "x")
    rows = {r["block"]: r["fits"] for r in as_json("ledger", "quote", "-p", profile)}
    assert rows == {"notes/all": False, "notes/all/holdout": True}


def test_a_forecast_counts_the_runs_that_the_quote_admits(installation, profile):
    (row,) = [r for r in as_json("ledger", "forecast", "-p", profile) if r["block"] == "notes/all"]
    assert row["runs_left"] > 1
    assert row["binds"]
    assert "ends first" in dpmix("ledger", "forecast", "-p", profile)


def test_an_interval_that_is_none_is_refused(installation, profile):
    with pytest.raises(ValueError, match="--every must be month, week or a number of days"):
        dpmix("ledger", "forecast", "-p", profile, "--every", "fortnight")


def test_the_export_closes_with_the_head_that_verify_prints(installation, tmp_path):
    spend(installation.ledger, share=0.1)
    printed = dpmix("ledger", "export", tmp_path / "export.jsonl")
    last = json.loads((tmp_path / "export.jsonl").read_text().splitlines()[-1])
    assert last["head"] in printed
    assert last["head"] in dpmix("ledger", "verify")


def test_a_reservation_is_released_and_a_started_row_is_spent(installation):
    waiting = spend(installation.ledger, share=0.1, run="a", start=False)
    gone = spend(installation.ledger, share=0.1, run="b")
    dpmix("ledger", "release", waiting)
    dpmix("ledger", "spend", gone, "--reason", "machine lost")
    states = {r["row"]: r["state"] for r in as_json("ledger", "history")}
    assert states == {waiting: "RELEASED", gone: "SPENT"}


def test_a_started_row_is_not_released(installation):
    row = spend(installation.ledger, share=0.1)
    with pytest.raises(LedgerError, match="there is no refund"):
        dpmix("ledger", "release", row)


def test_migrate_prints_what_a_role_needs(installation):
    printed = dpmix("ledger", "migrate", "--grants", "dpmix_app")
    assert "GRANT INSERT" in printed
    assert "UPDATE" not in printed
    assert "DELETE" not in printed
