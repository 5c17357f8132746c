"""A private dataset's declaration: public, and frozen at its first registration.

Everything in it is stated by its owner, nothing is taken from the rows. A declaration from before
filters could be chosen reads as ``renyi``, which is what its blocks were opened with.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass

from storage.errors import PrivateDataError

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")
_PERIOD = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_UNITS = ("record", "person")
_FILTERS = ("agdp", "renyi")


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A private dataset's declaration; public, frozen at its first registration.

    Attributes:
        name: Lower-case name.
        text_column: Column of the text.
        label_column: Column of the label.
        person_column: Column of the person key; empty for unit ``record``.
        period_column: Column that must equal the declared period; empty if there is none.
        classes: Declared class names, in order.
        unit: ``record`` or ``person``.
        records_per_unit: Most records of one unit that are used.
        records: n of a training block, declared; what later files are assumed to hold.
        holdout_records: n of its hold-out, declared; 0 for none.
        epsilon_cap: ε_total of a training block.
        holdout_epsilon_cap: ε_total of a hold-out block.
        delta: δ of both.
        ledger_id: The ledger that gates it.
        filter: Filter of its training blocks, ``agdp`` or ``renyi``.
    """

    name: str
    text_column: str
    label_column: str
    person_column: str = ""
    period_column: str = ""
    classes: tuple[str, ...]
    unit: str
    records_per_unit: int
    records: int
    holdout_records: int
    epsilon_cap: float
    holdout_epsilon_cap: float
    delta: float
    ledger_id: str
    filter: str = "agdp"

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise PrivateDataError(
                f"dataset name must be lower-case letters, digits, '.', '_' or '-'; got {self.name!r}."
            )
        for name, known in (("unit", _UNITS), ("filter", _FILTERS)):
            if getattr(self, name) not in known:
                raise PrivateDataError(
                    f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}."
                )
        if (self.unit == "person") != bool(self.person_column):
            raise PrivateDataError(
                f"unit {self.unit!r} and person_column {self.person_column!r} do not match: unit person "
                "needs --person-column, unit record takes none."
            )
        for name, least in (("records", 1), ("holdout_records", 0), ("records_per_unit", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise PrivateDataError(f"{name} must be a whole number >= {least}; got {value}.")
        caps = [self.epsilon_cap] + [self.holdout_epsilon_cap] * (self.holdout_records > 0)
        if not all(math.isfinite(cap) and cap > 0 for cap in caps):
            raise PrivateDataError(f"ε caps must be finite and > 0; got {caps}.")
        if not 0 < self.delta < 1:
            raise PrivateDataError(f"delta must lie between 0 and 1; got {self.delta}.")
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise PrivateDataError(
                f"classes must be at least two different names; got {list(self.classes)}. Declare "
                "them with --classes a,b."
            )

    @property
    def holdout_share(self) -> float:
        """Share of units that the keyed hash sends to the hold-out, in [0, 1)."""
        return self.holdout_records / (self.records + self.holdout_records)

    def block(self, period: str, *, holdout: bool = False) -> str:
        """Name of the block of a period ('' means the only one), or of its hold-out.

        Raises:
            PrivateDataError: The period's name could be read as another block's.
        """
        if period and (period == "all" or not _PERIOD.fullmatch(period)):
            raise PrivateDataError(
                f"period must be at most 100 letters, digits, '.', '_' or '-', not '.' first, and not "
                f"'all', which names the block without a period; got {period!r}."
            )
        base = f"{self.name}/{period or 'all'}"
        return f"{base}/holdout" if holdout else base

    def claim(self, period: str) -> str:
        """What a block's ε speaks of."""
        if self.unit == "person" and period:
            return "(person, period)"
        return self.unit

    def to_json(self) -> str:
        """The declaration as it is kept."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Dataset:
        """A declaration as it was kept."""
        value = {"filter": "renyi", **json.loads(text)}
        return cls(**{**value, "classes": tuple(value["classes"])})
