"""Accounting: events, their prices, and the filters that gate the ledger.

Relation: add/remove of one privacy unit, Poisson sampling over units. Prices of the same event:
`pld_epsilon` is tight for one run fixed beforehand and never gates; `rdp_epsilon` is an upper bound;
`make_filter` gives what the ledger gates on, valid when each run is chosen after seeing those before it.
"""

from importlib.metadata import version

from privacy.accounting.calibration import calibrate_noise
from privacy.accounting.compositions import compare
from privacy.accounting.events import (
    ApproximateDpEvent,
    DiscreteGaussianDpEvent,
    ExponentialDpEvent,
    PureDpEvent,
    approximate_event,
    discrete_gaussian_event,
    discrete_laplace_event,
    dpsgd_event,
    event_from_json,
    event_to_json,
    exponential_event,
    gaussian_event,
    laplace_event,
    pure_event,
)
from privacy.accounting.filters import FILTERS, Filter, make_filter
from privacy.accounting.gaussian import GaussianFilter
from privacy.accounting.prices import pld_epsilon, rdp_epsilon
from privacy.accounting.renyi import ORDERS, UNITS_PER_NAT, RenyiFilter, renyi_divergence

ACCOUNTANT = f"dp-accounting {version('dp-accounting')}"
"""Stored with every charge, so that a later reader knows which code priced it."""

__all__ = [
    "ACCOUNTANT",
    "FILTERS",
    "ORDERS",
    "UNITS_PER_NAT",
    "ApproximateDpEvent",
    "DiscreteGaussianDpEvent",
    "ExponentialDpEvent",
    "Filter",
    "GaussianFilter",
    "PureDpEvent",
    "RenyiFilter",
    "approximate_event",
    "calibrate_noise",
    "compare",
    "discrete_gaussian_event",
    "discrete_laplace_event",
    "dpsgd_event",
    "event_from_json",
    "event_to_json",
    "exponential_event",
    "gaussian_event",
    "laplace_event",
    "make_filter",
    "pld_epsilon",
    "pure_event",
    "rdp_epsilon",
    "renyi_divergence",
]
