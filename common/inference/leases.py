"""Leases on networks in memory, and loads that requests wait for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from nearsight.common.errors import CorruptStore, InternalError, NearsightError, NotFound, Unavailable
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.runtime import Network
from nearsight.common.inference.tensors import Tensor
from nearsight.common.model_cache.policy import ModelCosts


@dataclass(slots=True, eq=False)
class Resident:
    """A network in memory, and the number of requests that use it."""

    network: Network
    manifest: Manifest
    leases: int = 0
    dropped: bool = False


class Lease:
    """Keeps a network in memory while a request executes it. Call `release`, or use ``with``."""

    def __init__(self, resident: Resident, release: Callable[[Resident], None]) -> None:
        self._resident: Resident | None = resident
        self._release = release
        self.manifest = resident.manifest
        self.stands_in = False
        """Whether the request was for another network, which this one stands in for."""
        self.waited_ms = 0.0
        """Time that the request waited for the network to be loaded."""

    @property
    def network(self) -> Network:
        """The leased network. Raises `InternalError` after `release`."""
        if self._resident is None:
            raise InternalError(f"the lease of {self.manifest.name} has ended")
        return self._resident.network

    def run(self, inputs: Mapping[str, Tensor], within_s: float) -> dict[str, Tensor]:
        """See `Network.run`."""
        return self.network.run(inputs, within_s=within_s)

    def release(self) -> None:
        """End the lease, so that the network may be evicted. Further calls have no effect."""
        resident, self._resident = self._resident, None
        if resident is not None:
            self._release(resident)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@dataclass(frozen=True, slots=True)
class Absent:
    """Answer to a request whose network is not in memory now: it will be loaded, or is being loaded."""

    expected_ms: float
    """Expected time until an answer: earlier loads, the load of this network, and its execution.

    ``inf`` while the network is being measured, which takes longer than a load.
    """
    lease: Future[Lease]
    """Result: a lease as soon as the network is loaded, or the error. The caller must release the lease."""


@dataclass(slots=True, eq=False)
class PendingLoad:
    """A network that requests wait for. Its load is running or queued."""

    manifest: Manifest
    costs: ModelCosts
    began_s: float | None = None
    """Time at which its load began; None while the load is queued."""
    waiting: list[Future[Lease]] = field(default_factory=list)

    def remaining_ms(self, now_s: float) -> float:
        """Expected time until the load ends, once it begins."""
        spent_ms = 0.0 if self.began_s is None else (now_s - self.began_s) * 1e3
        return max(0.0, self.costs.load_ms - spent_ms)


def release(done: Future[Lease]) -> None:
    """Release a lease that nobody uses. Callback for `Absent.lease`."""
    if done.exception() is None:
        done.result().release()


def fail(waiting: Future[Lease], error: NearsightError) -> None:
    """Set a new error on a waiting request; errors are not shared between threads.

    A damaged network is in quarantine, so for callers it does not exist. Other errors keep their type.
    """
    kind = NotFound if isinstance(error, CorruptStore) else type(error)
    with suppress(Exception):  # the future is already done if the daemon stops
        waiting.set_exception(kind(error.message, advice=error.advice))


def stopping() -> Unavailable:
    """Error of requests that arrive or wait while the daemon stops."""
    return Unavailable("networks are no longer executed, since the daemon stops", advice="try again")
