"""What a request gets of the networks in memory: a lease, or what it waits for, and threads to wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, TypeVar

from nearsight.common.background.futures import pending
from nearsight.common.clock import Clock
from nearsight.common.errors import InternalError, NearsightError, Unavailable
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.runtime import Network
from nearsight.common.inference.tensors import Tensor
from nearsight.common.model_cache.model_cache import Load, Wait
from nearsight.common.model_cache.policy import ModelCosts

A = TypeVar("A")

_WAITERS = 2
"""Threads for requests that had to wait for their network."""


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

    def __exit__(self, *_: object) -> None:
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


class WaitingRequests:
    """Executes requests as soon as their networks are there, on threads of its own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pool = ThreadPoolExecutor(_WAITERS, thread_name_prefix="nearsight-networks")

    def when_there(self, absent: Absent, job: Callable[[Lease], A]) -> Future[A]:
        """Do a job with the network as soon as it is there; then release it."""
        result: Future[A] = pending()
        began_s = self._clock.monotonic()

        def run(lease: Lease) -> None:
            with lease:
                try:
                    result.set_result(job(lease))
                except Exception as error:  # noqa: BLE001  whatever it is, somebody waits for it
                    result.set_exception(error)

        def loaded(done: Future[Lease]) -> None:
            error = done.exception()
            if error is not None:
                result.set_exception(error)
                return
            done.result().waited_ms = 1e3 * (self._clock.monotonic() - began_s)
            try:
                self._pool.submit(run, done.result())
            except RuntimeError:
                done.result().release()
                result.set_exception(stopping())

        absent.lease.add_done_callback(loaded)
        return result

    def close(self) -> None:
        """End jobs that run, drop the others."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def release(done: Future[Lease]) -> None:
    """As soon as the network is there: nobody waits for it."""
    if done.exception() is None:
        done.result().release()


def fail(waiting: Future[Lease], error: NearsightError) -> None:
    """Give an error of its own to a request that waits."""
    with suppress(Exception):  # it has an outcome already: the daemon stops
        waiting.set_exception(type(error)(error.message, advice=error.advice))


def stopping() -> Unavailable:
    """Why nothing is loaded any more."""
    return Unavailable("networks are not served any more: the daemon stops", advice="try again")
