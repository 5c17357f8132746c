"""Heads: the trainable part on top of frozen embeddings, checked before budget is reserved.

A head maps (…, d) features to (…, K) logits and must treat every record by itself: layers with
statistics over the batch (batch normalisation) couple records and are refused, since a unit's
gradient would then depend on other units and its sensitivity would have no bound.
"""

from __future__ import annotations

import copy
import importlib
from typing import cast

import torch
from opacus.validators import ModuleValidator
from torch import nn

from privacy.errors import PlanError


def build_head(spec: str, *, feature_dimension: int, classes: int) -> nn.Module:
    """A fresh head with zero or factory-given weights.

    Args:
        spec: ``linear``, or ``package.module:factory`` where ``factory(d, K)`` returns a module.
        feature_dimension: d ≥ 1.
        classes: K ≥ 2.

    Raises:
        PlanError: The factory cannot be found, or the module couples records.
    """
    if spec == "linear":
        linear = nn.Linear(feature_dimension, classes)
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
        return linear
    module_name, _, attribute = spec.partition(":")
    if not attribute:
        raise PlanError(
            f"head must be 'linear' or 'package.module:factory'; got {spec!r}. Set training.head."
        )
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise PlanError(f"head {spec!r} cannot be loaded: {error}. Set training.head.") from None
    head = cast("nn.Module", factory(feature_dimension, classes))
    check_head(head, feature_dimension=feature_dimension)
    try:
        head(torch.zeros(2, 3, feature_dimension))
    except RuntimeError as error:
        raise PlanError(
            f"head {spec!r} must map (n, M, d) features to (n, M, K) logits: {error}. Use layers that "
            "act on the last axis, LayerNorm rather than GroupNorm."
        ) from None
    return head


def check_head(head: nn.Module, *, feature_dimension: int | None = None) -> None:
    """Refuse a module whose layers couple records or have no per-sample gradient.

    Args:
        head: (…, d) → (…, K).
        feature_dimension: d; that of the first linear layer if not given.

    Raises:
        PlanError: Naming the layers and the replacement.
    """
    head.train()
    problems = ModuleValidator.validate(head, strict=False)
    if problems:
        layers = [
            f"{name} ({type(layer).__name__})"
            for name, layer in head.named_modules()
            if isinstance(layer, nn.modules.batchnorm._BatchNorm)  # noqa: SLF001 - its public base
        ]
        named = ", ".join(layers) if layers else "; ".join(str(p) for p in problems)
        raise PlanError(
            f"head has layers that couple records or cannot be clipped per record: {named}. Use "
            "GroupNorm or LayerNorm in place of BatchNorm."
        )
    _check_rows_alone(head, feature_dimension)
    if not any(p.requires_grad for p in head.parameters()):
        raise PlanError("head has no trainable parameter. Set training.head to another factory.")


def _check_rows_alone(head: nn.Module, feature_dimension: int | None) -> None:
    """Compare rows alone with rows in a batch: coupling may hide in `forward`, outside any layer."""
    dimension = feature_dimension or next(
        (m.in_features for m in head.modules() if isinstance(m, nn.Linear)), None
    )
    if dimension is None:
        raise PlanError(
            "head's input dimension is unknown, so it cannot be checked that it treats each record "
            "alone. Give feature_dimension."
        )
    # A copy with weights that are not zero: a head that starts at zero would hide any coupling.
    probe = copy.deepcopy(head).eval()
    with torch.no_grad():
        for parameter in probe.parameters():
            steps = torch.arange(1, parameter.numel() + 1, dtype=parameter.dtype)
            parameter.copy_(torch.sin(steps).reshape(parameter.shape))
        batch = torch.cos(torch.arange(4 * dimension, dtype=torch.float32)).reshape(4, dimension)
        together = probe(batch)
        alone = torch.cat([probe(row[None]) for row in batch])
    if not torch.allclose(together, alone, rtol=1e-4, atol=1e-5, equal_nan=True):
        raise PlanError(
            "head gives a record another output in a batch than alone: its layers or forward "
            "couple records, so no clip bounds one unit. Compute a record's output from it alone."
        )
