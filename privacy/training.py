"""Executes a plan: DP-SGD under Opacus, exactly as priced.

What is guaranteed. Each of the plan's T steps draws units independently at rate q (a Poisson sample,
empty ones included), computes one summed gradient a unit through Opacus' per-sample gradients, drops
non-finite ones to zero, clips to L2 norm C, adds N(0, σ²C²) from the attempt's own `NoiseSource`, and
divides by the declared q·n. Before every step q, σ, C and the counter that are about to be used are
compared with the plan; a mismatch refuses the step. `count_ahead` is called *before* the steps that it
covers. Micro-batches (`max_physical_batch`) change memory, not the result: clipped sums are added up
and noised once.

Sensitivity. See `privacy.plan`: adding or removing a unit adds or removes one clipped vector, which
moves the sum by at most C; nothing else here depends on how many units there are. Opacus' own
`make_private` takes the sampling rate and the divisor from the loader's length; neither is used.

When it stops holding. With a test source the noise is reproducible and the result says so
(`is_private`). Gradients and sums are float32: rounding can exceed C by a relative
1e-5 at most, which is not charged.
"""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn

from privacy.errors import PlanError, StepRefused
from privacy.heads import check_head
from privacy.noise import NoiseSource
from privacy.plan import Plan
from privacy.transcript import Transcript


@dataclass(frozen=True)
class Units:
    """Private units, ready to train on. Sensitive: discard after use.

    A unit holds M slots: each slot is one view of one of its records. The unit's loss is
    Σ_m weight_m · cross-entropy(logits_m, label_m); a record's views share its weight of one, an empty
    slot weighs nothing, and a malformed record is all empty slots: it contributes zero.

    Attributes:
        features: (n, M, d) float32.
        labels: (n, M) int64 in [0, K).
        weights: (n, M) float32 ≥ 0.
    """

    features: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor

    def __len__(self) -> int:
        """How many units there are. Sensitive: only the sampler may use it."""
        return len(self.features)


@dataclass(frozen=True)
class Trained:
    """What leaves a DP-SGD run.

    Attributes:
        head: Averaged weights, on the CPU, without Opacus' wrapper.
        commitment: Commitment to the attempt's seed, for the evidence.
        is_private: False if a test source made the noise.
        digest: Hex SHA-256 over the noised weights.
    """

    head: nn.Module
    commitment: str
    is_private: bool
    digest: str


def make_units(
    views: torch.Tensor, labels: torch.Tensor, unit_of: torch.Tensor, *, records_per_unit: int
) -> Units:
    """Group records' views into units of at most `records_per_unit` records.

    Args:
        views: (r, V, d) float32; the first view is the record. A non-finite row, or one
            whose record is zero, contributes zero.
        labels: (r,) int64; −1 marks a malformed record, which contributes zero.
        unit_of: (r,) int64 unit index in [0, n); records beyond the bound must be gone already.
        records_per_unit: Slots for records in a unit.
    """
    count, per_record, dimension = views.shape
    valid = (labels >= 0) & torch.isfinite(views).flatten(1).all(1)
    # The first view is the record itself; a mixture with public text must not revive an empty one.
    valid &= views[:, 0].norm(dim=1) > 0
    units = int(unit_of.max()) + 1 if count else 0
    features = torch.zeros(units, records_per_unit, per_record, dimension)
    targets = torch.zeros(units, records_per_unit, per_record, dtype=torch.int64)
    weights = torch.zeros(units, records_per_unit, per_record)
    filled = [0] * units
    for row, unit in enumerate(unit_of.tolist()):
        slot = filled[unit]
        if slot >= records_per_unit or not valid[row]:
            continue
        filled[unit] += 1
        features[unit, slot] = views[row]
        targets[unit, slot] = labels[row]
        weights[unit, slot] = 1 / per_record
    return Units(features.flatten(1, 2), targets.flatten(1, 2), weights.flatten(1, 2))


class PlanOptimizer(DPOptimizer):
    """Opacus' optimiser with our noise, the declared divisor, and zero for non-finite gradients."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, *, plan: Plan, source: NoiseSource
    ) -> None:
        super().__init__(
            optimizer,
            noise_multiplier=plan.noise_multiplier,
            max_grad_norm=plan.max_grad_norm,
            expected_batch_size=None,
            loss_reduction="sum",
        )
        self.source = source
        self.divisor = plan.divisor
        self.sample_rate = plan.sample_rate
        self.steps_taken = 0

    def clip_and_accumulate(self) -> None:
        """Zero the per-unit gradients that hold a non-finite value, then clip and add up."""
        finite = torch.stack(
            [torch.isfinite(g).flatten(1).all(dim=1) for g in self.grad_samples]
        ).all(dim=0)
        for parameter in self.params:
            gradient = parameter.grad_sample
            mask = finite.view(-1, *[1] * (gradient.dim() - 1))
            parameter.grad_sample = torch.where(mask, gradient, torch.zeros_like(gradient))
        super().clip_and_accumulate()

    def add_noise(self) -> None:
        """Add N(0, σ²C²) from the attempt's keystream to every clipped sum."""
        for parameter in self.params:
            total = parameter.summed_grad
            noise = self.source.normal(total.numel()).view_as(total)
            scale = self.noise_multiplier * self.max_grad_norm
            parameter.grad = total + (noise * scale).to(dtype=total.dtype, device=total.device)

    def scale_grad(self) -> None:
        """Divide by the declared expected batch size, whatever was sampled."""
        for parameter in self.params:
            parameter.grad /= self.divisor


def train(
    plan: Plan,
    units: Units,
    head: nn.Module,
    *,
    source: NoiseSource,
    count_ahead: Callable[[int], None] = lambda _steps: None,
    on_step: Callable[[int], None] = lambda _step: None,
    on_block: Callable[[int, int, str], object] = lambda _first, _last, _root: None,
    max_physical_batch: int = 4096,
    device: str = "cpu",
) -> Trained:
    """Run all T steps of `plan` on `units`, from the weights of `head`.

    Args:
        plan: What to execute.
        units: Private units, as features. Sensitive.
        head: Starting point; left unchanged.
        source: This attempt's randomness.
        count_ahead: Called with the number of steps about to have been taken, before each block.
        on_step: Called with the *declared* step number; shows progress without timing data.
        on_block: Called after each block of counted steps with its first and its last step (from 1) and
            the Merkle root over its noised updates (see `privacy.transcript`).
        max_physical_batch: Units in memory at once; larger samples are split.
        device: Where tensors live.

    Raises:
        StepRefused: What is configured is not the plan.
        PlanError: The head couples records.
    """
    if max_physical_batch < 1:
        raise PlanError(f"max_physical_batch must be >= 1; got {max_physical_batch}.")
    check_head(head, feature_dimension=plan.feature_dimension)
    warnings.filterwarnings("ignore", "Full backward hook", UserWarning)  # inputs need no gradient
    module = GradSampleModule(copy.deepcopy(head).to(device).train(), loss_reduction="sum")
    inner = torch.optim.SGD(module.parameters(), lr=plan.learning_rate)
    optimizer = PlanOptimizer(inner, plan=plan, source=source)
    data = replace(
        units,
        features=units.features.to(device),
        labels=units.labels.to(device),
        weights=units.weights.to(device),
    )
    average = [torch.zeros_like(p, dtype=torch.float64) for p in module.parameters()]
    first_averaged = plan.steps - max(1, round(plan.average_last * plan.steps))
    block, counted, plan_digest = max(1, plan.steps // 10), 0, plan.digest
    transcript = Transcript(plan_digest)
    for step in range(plan.steps):
        if step % block == 0:
            counted = min(step + block, plan.steps)
            count_ahead(counted)
        _check_step(plan, optimizer, step, counted)
        _step(module, optimizer, data, max_physical_batch, transcript)
        if step + 1 == counted:
            on_block(step // block * block + 1, counted, transcript.root())
            transcript = Transcript(plan_digest)
        if step >= first_averaged:
            for k, parameter in enumerate(module.parameters()):
                average[k] += parameter.detach()
        on_step(step + 1)
    result = copy.deepcopy(head).cpu()
    with torch.no_grad():
        for parameter, total in zip(result.parameters(), average, strict=True):
            parameter.copy_((total / (plan.steps - first_averaged)).to(parameter.dtype).cpu())
    result.eval()
    return Trained(
        head=result,
        commitment=source.commitment,
        is_private=source.is_private,
        digest=weights_digest(result),
    )


def weights_digest(head: nn.Module) -> str:
    """Hex SHA-256 over names, shapes and float32 bytes of a head's weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(head.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().to(torch.float32).cpu().numpy().tobytes())
    return digest.hexdigest()


def _step(
    module: GradSampleModule,
    optimizer: PlanOptimizer,
    data: Units,
    max_physical_batch: int,
    transcript: Transcript,
) -> None:
    sampled = torch.from_numpy(optimizer.source.poisson_sample(len(data), optimizer.sample_rate))
    # An empty sample is one empty chunk: a step of noise alone, charged like any other.
    chunks = sampled.split(max_physical_batch) if len(sampled) else (sampled,)
    for number, chunk in enumerate(chunks, start=1):
        rows = chunk.to(data.features.device)
        logits = module(data.features[rows])
        losses = nn.functional.cross_entropy(
            logits.flatten(0, 1), data.labels[rows].flatten(), reduction="none"
        )
        (losses * data.weights[rows].flatten()).sum().backward()
        optimizer.signal_skip_step(do_skip=number < len(chunks))
        optimizer.step()
        if number == len(chunks):
            # Noised by now, and not yet zeroed.
            noised = [p.grad for p in optimizer.params if p.grad is not None]
            transcript.add(optimizer.steps_taken + 1, noised)
        optimizer.zero_grad()
    optimizer.steps_taken += 1


def _check_step(plan: Plan, optimizer: PlanOptimizer, step: int, counted: int) -> None:
    configured = {
        "sample_rate": (optimizer.sample_rate, plan.sample_rate),
        "noise_multiplier": (optimizer.noise_multiplier, plan.noise_multiplier),
        "max_grad_norm": (optimizer.max_grad_norm, plan.max_grad_norm),
        "divisor": (optimizer.divisor, plan.divisor),
        "learning_rate": (optimizer.param_groups[0]["lr"], plan.learning_rate),
    }
    for name, (actual, planned) in configured.items():
        if actual != planned:
            raise StepRefused(
                f"{name} is {actual}, the plan says {planned}; step {step} not taken."
            )
    if optimizer.steps_taken != step or not step < counted <= plan.steps:
        raise StepRefused(
            f"the counter stands at {optimizer.steps_taken} steps taken and {counted} counted ahead, "
            f"the plan says step {step} of {plan.steps}; not taken."
        )
