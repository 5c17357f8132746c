"""The errors of this package; each says what was refused, why, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class StorageError(RuntimeError):
    """Base of what goes wrong with anything that outlasts a process."""


class LedgerError(StorageError):
    """The ledger refused a transition, or was asked for something it does not hold."""


class BudgetRefused(LedgerError):  # noqa: N818 - the gate's answer, not a fault
    """A reservation would exceed a cap. Nothing was written and no private row was read.

    Attributes:
        block: Name of the first block that cannot pay.
        used: Units spent and reserved there, by order.
        spent: Units spent, by order.
        reserved: Units reserved, by order.
        asked: Units asked for by the whole request, by order.
    """

    def __init__(
        self,
        *,
        block: str,
        spent: Sequence[int],
        reserved: Sequence[int],
        asked: Sequence[int],
    ) -> None:
        super().__init__(f"block {block} cannot pay for this request")
        self.block = block
        self.spent = tuple(spent)
        self.reserved = tuple(reserved)
        self.used = tuple(s + r for s, r in zip(spent, reserved, strict=True))
        self.asked = tuple(asked)


class BlockRetired(LedgerError):  # noqa: N818 - as above
    """A block that has retired for good was asked to pay.

    Attributes:
        block: Its name.
    """

    def __init__(self, block: str) -> None:
        super().__init__(
            f"block {block} has retired: it admits nothing more, for good. No private row was read. "
            "Train and evaluate on a period with budget of its own."
        )
        self.block = block


class LedgerUnreachable(LedgerError):  # noqa: N818 - as above
    """The database did not answer, several times over; what was asked is in it whole, or not at all."""


class ReservationExpired(LedgerError):  # noqa: N818 - as above
    """A reservation ran out while its run was waiting; reserve again."""


class FencedOut(LedgerError):  # noqa: N818 - as above
    """The row has been taken over by a later epoch, or has ended; nothing more may be written."""


class GrantRefused(LedgerError):  # noqa: N818 - as above
    """A read without a valid grant for exactly that block."""


class PrivateDataError(StorageError):
    """A private dataset's declaration is wrong; never says anything about its rows."""


def describe(value: Mapping[str, object]) -> str:
    """`a=1, b=2`, for messages."""
    return ", ".join(f"{k}={v}" for k, v in value.items())
