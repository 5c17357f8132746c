"""The journal: one chain that tells everything in order, and totals that follow from it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.chain import GENESIS, digest
from storage.errors import LedgerError
from storage.ledger import Ledger
from storage.ledger.records import Head


class TestChain:
    def test_begins_with_the_ledgers_identity(self, ledger):
        (first,) = ledger.journal()
        assert (first["sequence"], first["kind"], first["previous"]) == (0, "ledger", GENESIS)
        assert first["body"] == {"id": ledger.id}

    def test_every_link_names_the_one_before(self, ledger, reserve):
        ledger.commit(ledger.start(reserve()))
        links = list(ledger.journal())
        assert [link["sequence"] for link in links] == list(range(len(links)))
        assert [link["previous"] for link in links[1:]] == [link["hash"] for link in links[:-1]]
        assert all(digest(link) == link["hash"] for link in links)

    def test_tells_a_run_in_the_order_in_which_it_happened(self, ledger, reserve):
        grant = ledger.start(reserve())
        ledger.count(grant, 50)
        ledger.commit(grant, head="ab" * 32)
        told = [(link["kind"], link["body"].get("state")) for link in ledger.journal()]
        assert told == [
            ("ledger", None),
            ("block", None),
            ("reservation", None),
            ("transition", "RESERVED"),
            ("transition", "STARTED"),
            ("count", None),
            ("transition", "COMMITTED"),
        ]

    def test_anchors_the_head_of_the_evidence(self, ledger, reserve):
        ledger.commit(ledger.start(reserve()), head="ab" * 32)
        assert list(ledger.journal())[-1]["body"]["head"] == "ab" * 32

    def test_a_refused_call_leaves_no_link(self, ledger, reserve):
        before = ledger.head()
        with pytest.raises(LedgerError):
            reserve(costs=(101, 61))
        assert ledger.head() == before


class TestHead:
    def test_is_the_newest_link(self, ledger, block):
        last = list(ledger.journal())[-1]
        assert ledger.head() == Head(last["sequence"], last["hash"]) == ledger.verify()

    def test_is_contained_from_then_on(self, ledger, reserve):
        kept = ledger.head()
        reserve()
        assert ledger.head() != kept
        assert ledger.contains(kept)

    def test_of_another_ledger_is_not_contained(self, ledger, new_url, clock):
        assert not ledger.contains(Ledger(new_url(), now=clock).head())

    def test_that_lies_ahead_is_not_contained(self, ledger):
        assert not ledger.contains(Head(99, ledger.head().hash))


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["reserve", "start", "resume", "count", "commit", "release", "spend", "late", "retire"]
        ),
        st.integers(0, 5),
    ),
    max_size=16,
)


@settings(max_examples=15)
@given(operations=OPERATIONS)
def test_whatever_happens_the_caps_hold_and_the_journal_agrees(
    operations, new_url, clock, make_block, make_charge
):
    ledger = Ledger(new_url(), now=clock)
    ledger.open_block(make_block(filter="agdp", orders=()))
    rows, grants, spent = [0], [], (0, 0)
    for number, (name, which) in enumerate(operations):
        row, grant = rows[which % len(rows)], grants[which % len(grants)] if grants else None
        with contextlib.suppress(LedgerError):
            if name == "reserve":
                charge = make_charge(costs=(10 + 5 * which, 7 * which))
                rows += ledger.reserve([charge], flow_run_id=str(number), run_count=1)
            elif name in ("start", "resume"):
                grants.append(getattr(ledger, name)(row))
            elif name == "count" and grant:
                ledger.count(grant, 10 + number)
            elif name == "commit" and grant:
                ledger.commit(grant)
            elif name == "release":
                ledger.release(row)
            elif name == "spend":
                ledger.spend(row, note="gone")
            elif name == "late":
                clock.advance(hours=9 * which)
            elif name == "retire" and which == 0:
                ledger.retire("reviews/2030")
        ledger.verify()
        (balance,) = ledger.balances()
        assert all(now >= then for now, then in zip(balance.spent, spent, strict=True))
        used = zip(balance.spent, balance.reserved, balance.block.caps, strict=True)
        assert all(s + r <= cap for s, r, cap in used)
        spent = balance.spent
