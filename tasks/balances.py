"""Positions of blocks, as the ε of each block's own filter: how full it is, and what ended or raised it.

Every figure here is declared or the ledger's: gates, alarms and exit codes may read it.
"""

from __future__ import annotations

from typing import Any

from privacy.accounting import Filter, make_filter
from storage.ledger import Balance, Block

THRESHOLDS = (50, 80, 95)
"""Shares of a block's cap, in percent, at which someone is told."""

FILTERS = {"renyi": "Rényi filter", "agdp": "adaptive Gaussian-DP filter"}


def gate_of(block: Block) -> Filter:
    """The arithmetic of a block's filter."""
    return make_filter(
        block.filter, epsilon=block.epsilon_cap, delta=block.delta, orders=block.orders
    )


def used_of(balance: Balance) -> tuple[int, ...]:
    """Units spent and reserved, by component."""
    return tuple(s + r for s, r in zip(balance.spent, balance.reserved, strict=True))


def position(balance: Balance) -> dict[str, Any]:
    """A block's cap, spent, reserved and remaining, as the filter's ε, and what was decided about it."""
    block, gate = balance.block, gate_of(balance.block)
    spent, total = gate.epsilon_of(balance.spent), gate.epsilon_of(used_of(balance))
    return {
        "role": block.role,
        "unit": block.unit,
        "claim": block.claim,
        "cap": block.epsilon_cap,
        "opened_cap": balance.opened_cap,
        "spent": spent,
        "reserved": round(max(0.0, total - spent), 6),
        "remaining": 0.0 if balance.retired else round(max(0.0, block.epsilon_cap - total), 6),
        "used_share": round(gate.share(used_of(balance)), 6),
        "delta": block.delta,
        "filter": block.filter,
        "retired": balance.retired,
        "raised": [
            {"to": p.epsilon_cap, "day": p.day, "reason": p.note, "public_key": p.public_key}
            for p in balance.raised
        ],
        "shows": f"ε of the {FILTERS[block.filter]} at δ={block.delta:g}",
    }


def passed(share: float) -> int:
    """The highest threshold that a share has reached, in percent; 0 below the first."""
    return max((t for t in THRESHOLDS if share * 100 >= t), default=0)
