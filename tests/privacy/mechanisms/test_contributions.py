"""One person moves the bounded sum by at most what is stated, whatever their records hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.errors import PlanError
from privacy.mechanisms import BoundedSum

KEY = b"sixteen bytes ok"
NUMBERS = st.floats(-50, 50) | st.sampled_from([math.nan, math.inf, -math.inf, 1e300, 5e-324])
ROWS = st.lists(
    st.tuples(
        st.sampled_from([b"ann", b"bo", b"cy"]),
        st.binary(max_size=2),
        st.tuples(NUMBERS, NUMBERS, NUMBERS),
    ),
    max_size=12,
)
BOUNDS = {"records_per_person": 2, "clip": 3.0, "norm": "l2", "bits": 8, "key": KEY}


def summed(bounded, rows):
    values = np.array([row[2] for row in rows], dtype=float).reshape(-1, 3)
    return bounded.sum([row[0] for row in rows], [row[1] for row in rows], values)


class TestSensitivity:
    @given(
        rows=ROWS,
        norm=st.sampled_from(["l1", "l2"]),
        clip=st.floats(0.1, 20),
        bits=st.integers(4, 20),
        k=st.integers(1, 4),
    )
    def test_bounds_what_one_person_moves(self, rows, norm, clip, bits, k):
        bounded = BoundedSum(records_per_person=k, clip=clip, norm=norm, bits=bits, key=KEY)
        without = [row for row in rows if row[0] != b"ann"]
        moved = [int(v) for v in summed(bounded, rows) - summed(bounded, without)]
        if norm == "l1":
            assert sum(abs(v) for v in moved) <= bounded.sensitivity
        else:
            assert sum(v * v for v in moved) <= bounded.sensitivity**2
        assert bounded.sensitivity <= clip * 2**bits

    @pytest.mark.parametrize("norm", ["l1", "l2"])
    def test_is_attained(self, norm):
        bounded = BoundedSum(**BOUNDS | {"norm": norm})
        moved = summed(bounded, [(b"ann", b"a", (-100.0, 0.0, 0.0))])
        assert moved[0] == pytest.approx(-bounded.sensitivity, abs=1)

    @pytest.mark.parametrize("value", [3.0, -3.0])
    def test_leaves_what_is_within_the_limit_as_it_is(self, value):
        assert summed(BoundedSum(**BOUNDS), [(b"ann", b"a", (value, 0, 0))])[0] == value * 256


class TestSum:
    @given(rows=ROWS, random=st.randoms(use_true_random=False))
    def test_does_not_depend_on_the_order_of_rows(self, rows, random):
        mixed = list(rows)
        random.shuffle(mixed)
        bounded = BoundedSum(**BOUNDS)
        assert (summed(bounded, rows) == summed(bounded, mixed)).all()

    def test_keeps_at_most_k_records_of_a_person(self):
        rows = [(b"ann", bytes([i]), (1.0, 0.0, 0.0)) for i in range(9)]
        rows += [(b"bo", bytes([i]), (0.0, 1.0, 0.0)) for i in range(2)]
        assert summed(BoundedSum(**BOUNDS), rows).tolist() == [2 * 256, 2 * 256, 0]

    def test_chooses_by_the_key(self):
        rows = [(b"ann", bytes([i]), (0.25 * i, 0.0, 0.0)) for i in range(1, 9)]
        sums = {
            int(summed(BoundedSum(**BOUNDS | {"key": bytes([i]) * 16}), rows)[0]) for i in range(20)
        }
        assert len(sums) > 3

    def test_takes_what_is_not_finite_as_zero(self):
        rows = [(b"ann", b"a", (math.nan, 1.0, math.inf))]
        assert summed(BoundedSum(**BOUNDS), rows).tolist() == [0, 256, 0]

    def test_of_nobody_is_zero(self):
        assert summed(BoundedSum(**BOUNDS), []).tolist() == [0, 0, 0]

    def test_refuses_parts_of_different_lengths(self):
        with pytest.raises(PlanError, match="must be as many as one another"):
            BoundedSum(**BOUNDS).sum([b"ann"], [], np.zeros((1, 3)))


class TestParameters:
    @pytest.mark.parametrize(
        ("name", "value"),
        [("records_per_person", 0), ("clip", math.nan), ("clip", 0.0), ("bits", -1), ("bits", 41),
         ("norm", "linf"), ("key", b"short"), ("clip", 1e-3), ("clip", 1e12)],
    )  # fmt: skip
    def test_out_of_range_are_refused(self, name, value):
        with pytest.raises(PlanError, match=r"must (be|have) .*; got"):
            BoundedSum(**BOUNDS | {name: value})

    def test_do_not_show_the_key(self):
        assert "sixteen" not in repr(BoundedSum(**BOUNDS))
