"""What a request gets of the networks in memory: a lease, or what it has to wait for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from nearsight.common.errors import InternalError
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.runtime import Network
from nearsight.common.inference.tensors import Tensor
from nearsight.common.model_cache.model_cache import Load, Wait
from nearsight.common.model_cache.policy import ModelCosts


@dataclass(slots=True, eq=False)
class Resident:
    """A network in memory, and how many requests use it."""

    network: Network
    manifest: Manifest
    leases: int = 0
    dropped: bool = False


class Lease:
    """The right to execute a network, which stays in memory meanwhile. Release it, or use a ``with``."""

    def __init__(self, resident: Resident, release: Callable[[Resident], None]) -> None:
        self._resident: Resident | None = resident
        self._release = release
        self.manifest = resident.manifest
        self.stands_in = False
        """Whether its request was for another network."""
        self.waited_ms = 0.0
        """How long its request waited for the network."""

    @property
    def network(self) -> Network:
        """The network."""
        if self._resident is None:
            raise InternalError(f"the lease of {self.manifest.name} has ended")
        return self._resident.network

    def run(self, inputs: Mapping[str, Tensor], within_s: float) -> dict[str, Tensor]:
        """See `Network.run`."""
        return self.network.run(inputs, within_s=within_s)

    def release(self) -> None:
        """The network may be evicted; may be called twice."""
        resident, self._resident = self._resident, None
        if resident is not None:
            self._release(resident)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


@dataclass(frozen=True, slots=True)
class Absent:
    """A network that is not in memory now."""

    decision: Load | Wait
    """Of the model cache: it will be loaded, or is being loaded."""
    costs: ModelCosts | None
    """None: it is being measured, which takes longer than a load."""
    loads_ms: float
    load_left_ms: float
    """Until the loader is free, and until this network is there if it is being loaded."""
    lease: Future[Lease]
    """Ends when it is there, or could not be loaded. Somebody must take and release it."""
