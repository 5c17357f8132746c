"""Files that are no ledger, and disks that are full: an error says so, and nothing is lost."""

from __future__ import annotations

import os
import resource
import signal

import pytest
from scenarios import BLOCKS, block, charge

from storage.errors import LedgerError
from storage.ledger import Ledger

pytestmark = pytest.mark.only_on("sqlite")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def filled(path):
    """A ledger with a committed row, all of it in the one file."""
    ledger = Ledger(f"sqlite:///{path}")
    ledger.open_block(block(BLOCKS[0]))
    (row,) = ledger.reserve([charge(BLOCKS[0])], flow_run_id="run", run_count=1)
    ledger.commit(ledger.start(row))
    ledger._database._engine.dispose()
    return path


def test_a_file_that_is_no_database_is_refused_and_left_alone(database_kind, path):
    path.write_bytes(b"no database at all\n" * 500)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="cannot be opened"):
        Ledger(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_truncated_ledger_is_refused(database_kind, filled):
    os.truncate(filled, filled.stat().st_size // 2)
    with pytest.raises(LedgerError):
        Ledger(f"sqlite:///{filled}").verify()


def test_a_folder_that_cannot_be_made_is_named(database_kind, path):
    path.write_text("a file where a folder should be")
    with pytest.raises((LedgerError, OSError), match=r"ledger\.db"):
        Ledger(f"sqlite:///{path / 'below.db'}")


def test_a_full_disk_refuses_and_keeps_what_is_there(database_kind, filled):
    """A child whose files may not grow: to SQLite that is a full disk."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ledger = Ledger(f"sqlite:///{filled}")
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
            ledger.reserve([charge(BLOCKS[0])], flow_run_id="more", run_count=1)
        except LedgerError:
            code = 0
        finally:
            os._exit(code)
    _child, status = os.waitpid(child, 0)
    assert status == 0
    ledger = Ledger(f"sqlite:///{filled}")
    ledger.verify()
    assert [e.flow_run_id for e in ledger.history()] == ["run"]
    ledger.reserve([charge(BLOCKS[0])], flow_run_id="more", run_count=1)
