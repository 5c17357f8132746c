"""Draws deploy/sliding-window.svg: what three years of monthly retraining spend of each month's block.

The simulation is the test's own (tests/storage/ledger/test_sliding_window.py), on a SQLite ledger.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860, 360, 60, 54, 16, 60


def simulation():
    path = ROOT / "tests/storage/ledger/test_sliding_window.py"
    spec = importlib.util.spec_from_file_location("sliding_window_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw(seen, cap: float) -> str:
    """The picture: a line a block, from its first run to the day it leaves the window."""
    months = [month for month, _ in seen]
    across = (WIDTH - LEFT - RIGHT) / (len(months) - 1)

    def x(k: int) -> float:
        return LEFT + k * across

    def y(epsilon: float) -> float:
        return HEIGHT - BOTTOM - epsilon / (1.1 * cap) * (HEIGHT - TOP - BOTTOM)

    lines = []
    blocks = sorted({name for _, spent in seen for name in spent})
    for block in blocks:
        values = [spent.get(block, 0.0) for _, spent in seen]
        moved = [k for k in range(len(values)) if values[k] > (values[k - 1] if k else 0.0)]
        if not moved:
            continue
        points = [(moved[0] - 1, 0.0), *((k, values[k]) for k in moved)]
        path = " ".join(f"{x(max(k, 0)):.1f},{y(e):.1f}" for k, e in points)
        full = values[moved[-1]] > 0.9 * cap
        tone = "#2563eb" if full else "#94a3b8"
        lines.append(f'<polyline points="{path}" fill="none" stroke="{tone}" stroke-width="1.4"/>')
        if full:
            end = moved[-1]
            lines.append(
                f'<circle cx="{x(end):.1f}" cy="{y(values[end]):.1f}" r="2.6" fill="{tone}"/>'
            )
    ticks = "".join(
        f'<text x="{x(k):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{months[k]}</text>'
        for k in range(0, len(months), 6)
    )
    scale = "".join(
        f'<text x="{LEFT - 8}" y="{y(e) + 4:.1f}" text-anchor="end">{e:g}</text>'
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(e):.1f}" y2="{y(e):.1f}" stroke="#e2e8f0"/>'
        for e in (0, 0.5, 1.0, 1.5)
    )
    most = max(e for _, spent in seen for e in spent.values())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Spend of each monthly block over three years of monthly retraining" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#334155">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
        f'<text x="{LEFT}" y="22" font-size="15" font-weight="600">Three years of monthly retraining '
        f"over the last twelve months: {len(seen)} runs, none refused</text>"
        f'<text x="{LEFT}" y="40">One line a block, ε spent by its filter. Blue: through the whole '
        f"window, then retired (most {most:.3f}). Grey: not yet.</text>"
        f"{scale}"
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(cap):.1f}" y2="{y(cap):.1f}" stroke="#dc2626" '
        f'stroke-dasharray="6 4"/><text x="{WIDTH - RIGHT}" y="{y(cap) - 5:.1f}" text-anchor="end" '
        f'fill="#dc2626">cap of every block, ε = {cap:g}</text>'
        f"{''.join(lines)}{ticks}"
        f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 14}" text-anchor="middle">month</text>'
        f'<text x="16" y="{HEIGHT / 2:.0f}" transform="rotate(-90 16 {HEIGHT / 2:.0f})" '
        f'text-anchor="middle">ε spent on the block</text></svg>\n'
    )


def main() -> None:
    module = simulation()
    event = module.accounting.dpsgd_event(noise_multiplier=4.2, sample_rate=0.05, steps=120)
    with tempfile.TemporaryDirectory() as folder:
        _ledger, seen = module.simulate(f"sqlite:///{folder}/ledger.db", event)
    (ROOT / "deploy/sliding-window.svg").write_text(draw(seen, module.CAP), encoding="utf-8")


if __name__ == "__main__":
    main()
