"""Settings of the result cache of edges and devices."""

from __future__ import annotations

import math

from pydantic import Field

from nearsight.common.settings import SettingsGroup


class ResultCacheSettings(SettingsGroup):
    """Answers that are used again for photos that are nearly the same: approximate-key caching."""

    enabled: bool = False
    """Look for an earlier answer before anything else. It stops where that does not pay."""
    beta: float = Field(default=1.5, ge=1, allow_inf_nan=True)
    """Back-off of the verifications: smaller means fewer wrong answers and more work; inf verifies none."""
    error: float = Field(default=0.0, ge=0, lt=1)
    """Share of the photos that may be answered wrongly, such as 0.01; verifications follow it instead of beta
    then. 0: no such target."""
    size: int = Field(default=10_000, ge=1, le=10_000_000)
    """Most answers that are kept; of more, the one that was not asked for the longest makes room."""
    ttl_s: float = Field(default=3600.0, gt=0, lt=math.inf)
    """Seconds after which an answer that was not confirmed is forgotten."""
