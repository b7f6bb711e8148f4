"""Settings of the result cache of edges and devices."""

from __future__ import annotations

import math

from pydantic import Field

from nearsight.common.settings import SettingsGroup


class ResultCacheSettings(SettingsGroup):
    """Settings of approximate-key caching: the reuse of answers for nearly identical photos."""

    enabled: bool = False
    """Look for an earlier answer first. Lookups are suspended while they cost more than they save."""
    beta: float = Field(default=1.5, ge=1, allow_inf_nan=True)
    """Back-off of verifications; smaller: fewer wrong answers, more work. inf verifies none."""
    error: float = Field(default=0.0, ge=0, lt=1)
    """Target share of photos that may be answered wrongly, such as 0.01; it replaces beta. 0: no target."""
    size: int = Field(default=10_000, ge=1, le=10_000_000)
    """Maximum number of answers; the least recently used one is evicted."""
    ttl_s: float = Field(default=3600.0, gt=0, lt=math.inf)
    """Seconds after which an answer that was not confirmed is deleted."""
