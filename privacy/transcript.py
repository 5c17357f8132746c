"""A Merkle root for each block of training steps: a commitment to every noised update, in 32 bytes.

A leaf is SHA-256(0x00 ‖ plan digest ‖ step ‖ the noised gradient as float32 bytes), an inner node
SHA-256(0x01 ‖ left ‖ right); a node without a partner moves up unchanged. The plan digest holds every
constant (q, σ, C, divisor, step size), so a leaf says which step of which plan it was.

What is guaranteed. Whoever holds a root can tell whether a given update was that step's (`proof` and
`follows`); no other update, order, number or repetition of steps gives the same root, and an inner node
cannot pass for a leaf. Only *noised* updates enter: a root is post-processing of what the plan pays for.
No batch, index, count or un-noised gradient is ever seen here.

When it stops holding: a root shows that updates were fixed when it was written, not that they were
computed as the plan says; that takes a replay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch

_LEAF, _INNER = b"\x00", b"\x01"


class Transcript:
    """The leaves of one block of steps.

    Args:
        plan_digest: Hex SHA-256 of the plan.
    """

    def __init__(self, plan_digest: str) -> None:
        self._plan = bytes.fromhex(plan_digest)
        self._leaves: list[bytes] = []

    def add(self, step: int, updates: Sequence[torch.Tensor]) -> None:
        """Take one step's noised gradients, in the order of the parameters.

        Args:
            step: The step's number, from 1.
            updates: *Noised* gradients, any shapes.
        """
        leaf = hashlib.sha256(_LEAF + self._plan + step.to_bytes(8))
        for update in updates:
            leaf.update(update.detach().to("cpu", torch.float32).contiguous().numpy().data)
        self._leaves.append(leaf.digest())

    def root(self) -> str:
        """Hex root over what was added so far.

        Raises:
            ValueError: Nothing was added.
        """
        if not self._leaves:
            raise ValueError("a transcript without steps has no root. Add a step first.")
        level = self._leaves
        while len(level) > 1:
            level = _above(level)
        return level[0].hex()

    def proof(self, index: int) -> list[tuple[str, str]]:
        """Way from the leaf at `index` to the root: ("left" | "right", hex of the other node)."""
        level, path = self._leaves, []
        while len(level) > 1:
            other = index ^ 1
            if other < len(level):
                path.append(("left" if other < index else "right", level[other].hex()))
            level, index = _above(level), index // 2
        return path

    def leaf(self, index: int) -> str:
        """Hex leaf of the step that was added as number `index`, from 0."""
        return self._leaves[index].hex()


def follows(leaf: str, path: Sequence[tuple[str, str]], root: str) -> bool:
    """Whether `leaf` leads to `root` by `path`."""
    node = bytes.fromhex(leaf)
    for side, other in path:
        pair = (bytes.fromhex(other), node) if side == "left" else (node, bytes.fromhex(other))
        node = hashlib.sha256(_INNER + pair[0] + pair[1]).digest()
    return node.hex() == root


def _above(level: Sequence[bytes]) -> list[bytes]:
    paired = [
        hashlib.sha256(_INNER + level[k] + level[k + 1]).digest()
        for k in range(0, len(level) - 1, 2)
    ]
    return [*paired, level[-1]] if len(level) % 2 else paired
