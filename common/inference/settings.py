"""Settings of networks, the same for cloud and edge."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from nearsight.common.config.base import UserPath
from nearsight.common.model_cache.policy import Knowledge
from nearsight.common.model_cache.registry import policy_names
from nearsight.common.settings import SettingsGroup


class ModelSettings(SettingsGroup):
    """Neural networks: where their files are, and how much memory they may take."""

    folder: UserPath = Path("models")
    """Folder with the networks and their manifests; see `nearsight models`."""
    memory_mb: int = Field(default=1024, ge=0, le=10_000_000)
    """MB of memory, as measured, for all networks together; 0: none is loaded here."""
    policy: str = "forecast"
    """Which networks leave when others need their memory."""
    window_s: float = Field(default=Knowledge.window_s, gt=0, le=1e7)
    """Seconds of requests from which iam and iam-ewma tell how often each network is asked for."""
    most_evictions: int = Field(default=8, ge=1, le=10_000)
    """Networks that one load may evict; a load that needs more is refused."""
    pinned: tuple[str, ...] = ()
    """Networks that are loaded at the start and never evicted."""
    threads: int = Field(default=1, ge=1, le=256)
    """Threads of one execution."""
    load_limit_s: float = Field(default=120.0, gt=0, le=3600)
    """A load that takes longer is given up."""
    accuracy_loss: float = Field(default=0.0, ge=0, le=1)
    """Accuracy that answers of an edge may lose on average, as networks stand in for others that are being
    loaded; 0: none does."""
    reserve_mb: int = Field(default=128, ge=0, le=1_000_000)
    """MB that must stay available on this machine: below that networks leave, whatever memory_mb says."""

    @field_validator("policy")
    @classmethod
    def _policy_can_serve(cls, name: str) -> str:
        names = policy_names(clairvoyant=False)
        if name not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return name
