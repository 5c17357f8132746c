"""Sums to which one person adds a bounded amount, in whole numbers of a declared grid.

Relation: add/remove of one person with all their records. What is guaranteed: the sum moves by at most
`sensitivity` in the declared norm, exactly, whatever the person's records hold. Argument:

1. Of a person's records the k with the least HMAC under the dataset's key are kept. Which ones depends
   on that person's records and the key alone, so no other person's share changes. (Not their content:
   the key is secret and fixed. Equal records have equal codes, and which of them is kept is the same.)
2. The kept values are rounded towards zero to multiples of 2^−bits, and added up as whole numbers.
3. A person's total with a norm above the limit ⌊clip·2^bits⌋ is scaled down, rounding towards zero:
   every coordinate ends at or below limit/norm of itself in size, and so does the norm.
4. Whole numbers add up without rounding, so the sum moves by exactly the person's total.

An L1 limit bounds the L2 norm as well; an L2 limit C bounds L1 by C·√d. Noise is added in the same whole
numbers: `noised_counts` or `discrete_laplace` at `sensitivity`, and the result divided by 2^bits.

When it stops holding: one person under two identities; a key that changes; more than 2^27 persons, whose
total could leave 64 bits.
Malformed records contribute zero: a value that is not finite counts as 0.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from privacy.errors import PlanError, check_positive, check_whole

_DOMAIN = b"dpmix bounded contributions v1"
_KEY_BYTES = 16
_MOST = 2**36


@dataclass(frozen=True, kw_only=True)
class BoundedSum:
    """The sum over persons of at most `records_per_person` records each, clipped to `clip`.

    Attributes:
        records_per_person: k ≥ 1.
        clip: The most that one person adds, in `norm` and in the values' units; finite and > 0.
        norm: "l1" or "l2".
        bits: The grid is 2^−bits; 0 for whole numbers; at most 40.
        key: The dataset's secret key, ≥ 16 bytes; fixed for life.
    """

    records_per_person: int
    clip: float
    norm: Literal["l1", "l2"]
    bits: int
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        check_whole(
            "records_per_person",
            self.records_per_person,
            at_least=1,
            remedy="Set it at registration.",
        )
        check_positive("clip", self.clip, remedy="State the most that one person adds.")
        check_whole("bits", self.bits, at_least=0, remedy="Use 0 for whole numbers.")
        if self.bits > 40:
            raise PlanError(f"bits must be at most 40; got {self.bits}. Use a coarser grid.")
        if self.norm not in ("l1", "l2"):
            raise PlanError(f"norm must be l1 or l2; got {self.norm!r}. Choose by the noise.")
        if len(self.key) < _KEY_BYTES:
            raise PlanError(
                f"key must have >= {_KEY_BYTES} bytes; got {len(self.key)}. Use the dataset's key."
            )
        check_whole("sensitivity", self.sensitivity, at_least=1, remedy="Use more bits or clip.")
        if self.sensitivity > _MOST:
            raise PlanError(
                f"clip * 2**bits must be at most {_MOST}; got {self.sensitivity}. Use a coarser grid."
            )

    @property
    def sensitivity(self) -> int:
        """The most by which one person moves the sum, in `norm`, in multiples of 2^−bits."""
        return math.floor(Fraction(self.clip) * 2**self.bits)

    def sum(
        self, persons: Sequence[bytes], records: Sequence[bytes], values: NDArray[np.floating]
    ) -> NDArray[np.int64]:
        """The bounded sum, not noised, in multiples of 2^−bits; shape (d,). Sensitive.

        Args:
            persons: Whose each record is; an identity of the person alone.
            records: Each record's content, which its code is taken over.
            values: Shape (records, d): what each record contributes.

        Raises:
            PlanError: The three differ in length.
        """
        if not len(persons) == len(records) == len(values):
            raise PlanError(
                "persons, records and values must be as many as one another; got others. Give one of "
                "each a record."
            )
        # Equal codes are told apart by their values, so that the order of the rows never matters.
        coded = [
            (hmac.digest(self.key, _DOMAIN + content, "sha256"), self._on_grid(row))
            for content, row in zip(records, values, strict=True)
        ]
        shares: dict[bytes, list[tuple[bytes, list[int]]]] = {}
        for person, record in zip(persons, coded, strict=True):
            shares.setdefault(person, []).append(record)
        total = [0] * values.shape[1]
        for share in shares.values():
            kept = [row for _, row in sorted(share)[: self.records_per_person]]
            added = [sum(row[i] for row in kept) for i in range(len(total))]
            clipped = self._clipped(added)
            total = [so_far + amount for so_far, amount in zip(total, clipped, strict=True)]
        return np.array(total, dtype=np.int64)

    def _on_grid(self, row: NDArray[np.floating]) -> list[int]:
        # Python's whole numbers: exact at any size.
        return [
            int(Fraction(float(value)) * 2**self.bits) if math.isfinite(value) else 0
            for value in row
        ]

    def _clipped(self, amounts: list[int]) -> list[int]:
        limit = self.sensitivity
        if self.norm == "l1":
            size, bound = sum(abs(a) for a in amounts), limit
            norm = size
        else:
            size, bound = sum(a * a for a in amounts), limit * limit
            # Above the root, so that the scaled norm is below the limit.
            norm = math.isqrt(size) + 1
        if size <= bound:
            return amounts
        return [(abs(a) * limit // norm) * (1 if a > 0 else -1) for a in amounts]
