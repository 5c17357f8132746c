"""`dpmix ledger quote`: prices from bare numbers, and every way of composing side by side."""

from __future__ import annotations

from typing import Any

from privacy import accounting
from privacy.errors import PlanError

MEANINGS = {
    "pld": "tight, for this one run fixed beforehand",
    "rdp": "Rényi composition: an upper bound, looser",
    "agdp": "what a block with the adaptive Gaussian-DP filter pays; gates",
    "renyi": "what a block with the Rényi filter pays; gates",
    "zcdp": "zCDP of the unsampled Gaussian: for comparison",
    "advanced": "advanced composition of the steps: for comparison",
    "basic": "the steps' ε added up: for comparison",
}


def bare(
    *,
    sample_rate: float | None,
    steps: int | None,
    delta: float,
    noise_multiplier: float | None,
    epsilon: float | None,
) -> dict[str, Any]:
    """ε of DP-SGD by every composition; opens no installation.

    Args:
        sample_rate: q in (0, 1].
        steps: T ≥ 1.
        delta: δ in (0, 1).
        noise_multiplier: σ; or else
        epsilon: the tight ε for which σ is calibrated, which is then part of the answer.

    Raises:
        PlanError: A number is missing or out of range.
    """
    for name, value in (("--sample-rate", sample_rate), ("--steps", steps)):
        if value is None:
            raise PlanError(f"{name} is missing. Give it, or a profile with -p.")
    if (noise_multiplier is None) == (epsilon is None):
        raise PlanError("give either --noise-multiplier or --epsilon, and not both.")

    def event(sigma: float) -> Any:
        return accounting.dpsgd_event(
            noise_multiplier=sigma, sample_rate=float(sample_rate or 0), steps=int(steps or 0)
        )

    if noise_multiplier is not None:
        return accounting.compare(event(noise_multiplier), delta=delta)
    sigma = accounting.calibrate_noise(event, epsilon=float(epsilon or 0), delta=delta)
    return {"noise_multiplier": sigma, **accounting.compare(event(sigma), delta=delta)}


def lines(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The comparison as rows for people."""
    return [
        {"composition": name, "epsilon": "none" if found[name] is None else found[name],
         "meaning": meaning}
        for name, meaning in MEANINGS.items()
    ]  # fmt: skip
