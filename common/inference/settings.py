"""Settings of neural networks, the same for cloud and edge."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from nearsight.common.config.base import UserPath
from nearsight.common.model_cache.policy import Knowledge
from nearsight.common.model_cache.registry import policy_names
from nearsight.common.settings import SettingsGroup


class ModelSettings(SettingsGroup):
    """Neural networks: folder of their files, and memory for loaded networks."""

    folder: UserPath = Path("models")
    """Folder with the networks and their manifests; see `nearsight models`."""
    memory_mb: int = Field(default=1024, ge=0, le=10_000_000)
    """Memory for all loaded networks together [MB], as measured; 0: no network is loaded here."""
    policy: str = "forecast"
    """Eviction policy: which networks are evicted when others need their memory."""
    window_s: float = Field(default=Knowledge.window_s, gt=0, le=1e7)
    """Period over which the policies iam and iam-ewma estimate the request rate of each network [s]."""
    most_evictions: int = Field(default=8, ge=1, le=10_000)
    """Maximum number of networks that one load may evict. A load that needs more evictions is refused."""
    pinned: tuple[str, ...] = ()
    """Networks that are loaded at the start and never evicted."""
    threads: int = Field(default=1, ge=1, le=256)
    """Threads of one execution."""
    load_limit_s: float = Field(default=120.0, gt=0, le=3600)
    """Time limit of a load, also of the measurement of a new network [s]."""
    accuracy_loss: float = Field(default=0.0, ge=0, le=1)
    """Mean loss of accuracy that an edge accepts when networks stand in for others that are being loaded;
    0: networks never stand in."""
    reserve_mb: int = Field(default=128, ge=0, le=1_000_000)
    """Memory to leave available on this machine [MB]; below it networks are evicted even within memory_mb."""

    @field_validator("policy")
    @classmethod
    def _policy_can_serve(cls, name: str) -> str:
        names = policy_names(clairvoyant=False)
        if name not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return name
