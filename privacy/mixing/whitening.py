"""Public whitening: public second moments decide how a record's coordinates are weighed.

Private gradients of raw embeddings lie mostly along a few directions that all text shares. Dividing by
the public covariance (to a power, see `privacy.features.whiten`) spreads them, so that the noise, which
is the same in every direction, meets more signal. Reference: public data as a preconditioner, in the
sense of Li et al. 2022 (*Private Adaptive Optimization with Side Information*).

Sensitivity. Mean and covariance are functions of public vectors alone and are fixed before the first
private read; the map is applied to one record at a time, before the one clip. Removing a unit removes
one vector of norm at most C. The argument fails if the statistics see a private row.
"""

from __future__ import annotations

from dp_accounting import DpEvent

from privacy.features import Preconditioner, whiten
from privacy.mixing.base import MixingStrategy, PublicData, register


@register
class PublicWhitening(MixingStrategy):
    """Features centred and (partly) whitened by public statistics."""

    name = "public_whitening"
    preconditions = True

    def event(self) -> DpEvent | None:
        """Nothing beyond DP-SGD: the map does not depend on private data."""
        return None

    def precondition(self, public: PublicData) -> Preconditioner:
        """Fitted on all public vectors, labelled or not."""
        return whiten(public.features, exponent=self.plan.whitening)
