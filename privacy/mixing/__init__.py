"""Strategies for mixing public data into private training: one a file, one interface."""

from privacy.mixing.base import (
    MixingStrategy,
    Neighbours,
    PublicData,
    build,
    register,
    registry,
)
from privacy.mixing.inside_clip import InsideClip
from privacy.mixing.warm_start import LEAST_LABELLED, WarmStart, fit_public
from privacy.mixing.whitening import PublicWhitening

__all__ = [
    "LEAST_LABELLED",
    "InsideClip",
    "MixingStrategy",
    "Neighbours",
    "PublicData",
    "PublicWhitening",
    "WarmStart",
    "build",
    "fit_public",
    "register",
    "registry",
]
