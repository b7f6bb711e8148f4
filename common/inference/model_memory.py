"""Networks in memory: executes the decisions of the model cache (`common/model_cache/model_cache.py`).

::

    request ──> resident: returns a lease at once
            └─> absent: queued; the loader unloads the victims, loads the network and executes it once; then
                all requests that wait for this network get their leases
    a new file is measured first (`measurement_queue.py`), so that its memory is known

One thread loads networks, so that a load never occupies a worker of requests. The victims of a load are
chosen when the load begins; until then they answer requests. Another thread unloads all other networks at
once, since the memory of this machine may be short just because of a load. A request for a resident network
is executed on the thread that received it. A lease protects its network from eviction.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

from nearsight.common.background.futures import pending
from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import MissingDependency, NearsightError, Overloaded, Unavailable
from nearsight.common.inference.leases import (
    Absent,
    Lease,
    PendingLoad,
    Resident,
    fail,
    release,
    stopping,
)
from nearsight.common.inference.loading import NetworkLoader
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.measurement_queue import MeasurementQueue
from nearsight.common.inference.metrics import Counts, MemoryState
from nearsight.common.inference.process_memory import available_memory_bytes, return_freed_memory
from nearsight.common.inference.repository import ModelRepository
from nearsight.common.inference.runtime import Runtime
from nearsight.common.inference.settings import ModelSettings
from nearsight.common.inference.tensors import TensorSpec
from nearsight.common.inference.waiting_jobs import WaitingJobs
from nearsight.common.logging import get_logger
from nearsight.common.model_cache.hindsight import Hindsight, RequestLog, look_back
from nearsight.common.model_cache.model_cache import Eviction, Load, ModelCache, Reason, Refuse, Run, Wait
from nearsight.common.model_cache.policy import Knowledge, Victim
from nearsight.common.model_cache.registry import make_policy

A = TypeVar("A")

_FIT_EVERY_S = 1.0


class ModelMemory:
    """Networks within a memory budget. Thread-safe.

    The runtime and its threads start with the first request. A daemon without networks does not need
    onnxruntime.

    Parameters
    ----------
    repository : ModelRepository
        The networks' files.
    settings : ModelSettings
        Budget, policy and limits.
    clock : Clock
        Must run in real time.
    """

    def __init__(self, repository: ModelRepository, settings: ModelSettings, clock: Clock) -> None:
        self._repository = repository
        self._settings = settings
        self._clock = clock
        self._log = get_logger("models")
        self._runtime: Runtime | None = None
        self._most_bytes = settings.memory_mb * 10**6
        policy = make_policy(settings.policy, Knowledge(window_s=settings.window_s))
        self._cache = ModelCache(self._most_bytes, policy, settings.most_evictions)
        self._cache.pinned.update(settings.pinned)
        self._lock = threading.Lock()
        self._resident: dict[str, Resident] = {}
        self._pending_loads: dict[str, PendingLoad] = {}
        """By name, in the order of their first requests."""
        self._counts = Counts()
        self._requests = RequestLog()
        self._hindsight: Hindsight | None = None
        self._hindsight_basis = (0, 0)
        """Number of changes in the request log, and budget [bytes], at the last call of `look_back`."""
        self._shapes: dict[str, tuple[tuple[TensorSpec, ...], ...]] = {}
        """Inputs and outputs of networks that were loaded, by the checksum of the file."""
        self._closed = False
        self._loader = BackgroundWorker(clock, "nearsight-loader")
        self._background = BackgroundWorker(clock, "nearsight-networks-background")
        self._measurements = MeasurementQueue(repository, settings, clock)
        self.jobs = WaitingJobs(clock, self._background)
        """Executes jobs of requests whose network is `Absent`."""

    def request(self, name: str) -> Lease | Absent:
        """Request a network. If it is not in memory, it is queued for loading.

        Raises
        ------
        NotFound
            If there is no network of that name, or its file was found to be damaged.
        Overloaded, Unavailable
            If it cannot be loaded now. If memory is the reason, the message states its size and the budget.
        """
        manifest = self._repository.get(name)
        with self._lock:
            return self._request(manifest, pending())

    def load_in_background(self, absent: Absent) -> None:
        """Load the network for later requests only. The lease is released at once."""
        absent.lease.add_done_callback(release)

    def refresh(self) -> None:
        """Apply changes of the repository: drop replaced and removed networks, load new pinned ones."""
        manifests = self._repository.manifests()
        self._measurements.refresh(manifests)
        with self._lock:
            for name, resident in list(self._resident.items()):
                if not resident.manifest.same_network(manifests.get(name)):
                    self._drop(name)
            known = self._resident.keys() | self._pending_loads.keys() | set(self._measurements.measuring)
            for name in self._cache.pinned:
                if name not in known and name in manifests:
                    lease: Future[Lease] = pending()
                    lease.add_done_callback(release)
                    try:
                        self._request(manifests[name], lease, counts=False)
                    except NearsightError as error:
                        self._log.warning("a pinned network is not loaded", network=name, error=str(error))

    def limit(self, most_bytes: float) -> None:
        """Set an upper limit of the budget, in addition to the settings; see `fit`."""
        with self._lock:
            self._most_bytes = int(min(most_bytes, self._settings.memory_mb * 10**6))
        self.fit(available_memory_bytes())

    def keep_fitting(self, background: BackgroundWorker) -> None:
        """Adapt the budget every second (see `fit`), while the repository has networks."""
        background.submit(lambda: self.keep_fitting(background), name="fit", after_s=_FIT_EVERY_S)
        if self._repository.manifests():
            self.fit(available_memory_bytes())

    def fit(self, available_bytes: int) -> None:
        """Adapt the budget to the memory that other processes leave on this machine.

        The budget is the limit of the settings and of `limit`. It is reduced if less than
        `ModelSettings.reserve_mb` would remain available. Networks that no longer fit are evicted as soon as
        they are not in use.

        Parameters
        ----------
        available_bytes : int
            Memory that this process could still allocate.
        """
        settings, cache = self._settings, self._cache
        with self._lock:
            before, used_bytes = cache.budget_bytes, cache.budget_bytes - cache.free_bytes
            most_bytes = self._most_bytes
            room_bytes = used_bytes + available_bytes - settings.reserve_mb * 10**6
            budget_bytes = max(0, min(most_bytes, room_bytes))
            if budget_bytes == before:
                return
            victims = cache.resize(budget_bytes, self._clock.monotonic())
            self._unload(victims)
        if not self._repository.manifests():
            return  # nothing to report
        all_bytes = settings.memory_mb * 10**6
        if (budget_bytes < most_bytes and victims) or all_bytes in (before, budget_bytes):
            event = f"memory for networks {'reduced' if budget_bytes < before else 'increased'}"
            available_mb = available_bytes // 10**6
            self._log.warning(event, budget_mb=budget_bytes // 10**6, available_mb=available_mb)

    @property
    def state(self) -> MemoryState:
        """Snapshot of the memory, for metrics and health reports."""
        with self._lock:
            cache = self._cache
            return MemoryState(
                cache.budget_bytes,
                cache.budget_bytes - cache.free_bytes,
                dict(cache.resident),
                tuple(self._pending_loads),
                self._measurements.measuring,
                replace(self._counts),
            )

    def is_resident(self, name: str) -> bool:
        """Whether a request would find the network in memory."""
        return name in self._resident

    def same_shapes(self, one: Manifest, other: Manifest) -> bool:
        """Whether two networks have the same inputs and outputs; False until both have been loaded once."""
        shapes = self._shapes.get(one.checksum)
        return shapes is not None and shapes == self._shapes.get(other.checksum)

    def problem(self, name: str) -> str:
        """Error that prevents a network from being loaded; empty if there is none."""
        return self._measurements.problem(name)

    def look_back(self) -> Hindsight | None:
        """Compare the waiting times of the last requests with the lowest possible; None without requests.

        Takes about 100 ms if not all networks fit into memory. The result is cached until the request log or
        the budget changes.
        """
        with self._lock:
            basis = (self._requests.changes, self._cache.budget_bytes)
            if basis == self._hindsight_basis:
                return self._hindsight
            requests, costs = self._requests.recent(), dict(self._requests.costs)
        self._hindsight = look_back(requests, costs, basis[1])
        self._hindsight_basis = basis
        return self._hindsight

    def evictions(self) -> list[Eviction]:
        """The last evictions, oldest first; times are those of the clock."""
        with self._lock:
            return list(self._cache.evictions)

    def close(self, grace_s: float = 5.0) -> None:
        """Fail waiting requests, stop executions and loads, and drop all networks."""
        with self._lock:
            self._closed = self.jobs.closed = True
            waiting = [one for pending_load in self._pending_loads.values() for one in pending_load.waiting]
            self._pending_loads.clear()
        for one in waiting:
            fail(one, stopping())
        self._measurements.stop(stopping(), grace_s)
        if self._runtime is not None:
            self._runtime.stop_executions()
        self.jobs.close()
        self._loader.stop(grace_s)
        self._background.stop(grace_s)
        with self._lock:
            self._resident.clear()
        if self._runtime is not None:
            self._runtime.close()
            return_freed_memory()

    # Methods that are called with the lock held

    def _request(self, manifest: Manifest, lease: Future[Lease], *, counts: bool = True) -> Lease | Absent:
        name, now_s = manifest.name, self._clock.monotonic()
        runtime = self._started_runtime()
        self._measurements.check(manifest)
        resident = self._resident.get(name)
        if resident is not None and not manifest.same_network(resident.manifest):
            self._drop(name)
        measured = manifest.measured
        if measured is None or measured.runtime != runtime.version:
            self._measurements.submit(manifest, lambda outcome: self._go_on(manifest, outcome, lease))
            return Absent(math.inf, lease)
        costs = measured.costs
        decide = self._cache.request if counts else self._cache.load
        decision = decide(name, costs, now_s)
        if isinstance(decision, Refuse) and not self._is_temporary(decision):
            raise self._refusal(decision)
        if counts:
            self._requests.requested(name, costs, now_s, resident=isinstance(decision, Run))
        if isinstance(decision, Run):
            self._counts.resident += counts
            return self._lease(self._resident[name])
        self._counts.waited += counts
        pending_load = self._pending_loads.setdefault(name, PendingLoad(manifest, costs))
        pending_load.waiting.append(lease)
        if isinstance(decision, Load):
            self._begin_load(pending_load, decision.evict)
        if isinstance(decision, Wait):
            load_ms = pending_load.remaining_ms(now_s)
        else:
            load_ms = self._earlier_loads_ms(name, now_s) + costs.load_ms
        return Absent(load_ms + costs.execution_ms, lease)

    def _is_temporary(self, refused: Refuse) -> bool:
        """Whether the reason is temporary: loads and executions end, but pinned networks stay."""
        in_use = refused.reason is Reason.IN_USE and any(one.leases for one in self._resident.values())
        return in_use or refused.reason is Reason.LOADING

    def _begin_load(self, pending_load: PendingLoad, victims: Iterable[Victim]) -> None:
        evicted, pending_load.began_s = self._evict(victims), self._clock.monotonic()
        self._loader.submit(lambda: self._load(pending_load, evicted))

    def _started_runtime(self) -> Runtime:
        if self._closed:
            raise stopping()
        if self._runtime is None:
            try:
                self._runtime = Runtime(self._settings.threads, clock=self._clock)
            except MissingDependency as error:
                raise Unavailable(error.message, advice=error.advice) from error
            self._network_loader = NetworkLoader(self._repository, self._runtime, self._settings.load_limit_s)
            self._loader.start()
            self._background.start()
            self._measurements.start()
        return self._runtime

    def _refusal(self, refused: Refuse) -> NearsightError:
        self._counts.refused += 1
        allowed_bytes = self._settings.memory_mb * 10**6
        if refused.size_bytes > allowed_bytes:
            return Unavailable(f"network {refused}", advice="raise models.memory_mb")
        others = ""
        if refused.budget_bytes < self._most_bytes:
            others = ", as other processes use the memory of this machine"
        elif refused.budget_bytes < allowed_bytes:
            others = ", as recognition caches save more time with the rest of the memory"
        return Overloaded(f"network {refused}{others}", advice="try again")

    def _lease(self, resident: Resident) -> Lease:
        resident.leases += 1
        self._cache.began(resident.manifest.name)
        return Lease(resident, self._released)

    def _evict(self, victims: Iterable[Victim]) -> list[Resident]:
        """Remove victims from the resident networks. The caller must close them."""
        evicted = []
        for victim in victims:
            self._counts.evictions += 1
            self._log.info("network evicted", network=victim.model, score=victim.score)
            evicted.append(self._resident.pop(victim.model))
        return evicted

    def _unload(self, victims: Iterable[Victim]) -> None:
        evicted = self._evict(victims)
        if evicted:
            self._background.submit(lambda: _close(evicted))

    def _drop(self, name: str) -> None:
        """Remove a network that was replaced or removed. Requests that hold a lease can still finish."""
        resident = self._resident.pop(name)
        resident.dropped = True
        self._cache.lost(name, self._clock.monotonic())
        if not resident.leases:
            self._background.submit(lambda: _close([resident]))

    def _earlier_loads_ms(self, name: str, now_s: float) -> float:
        """Time until the load of this network begins, which is the duration of the loads before it."""
        before = itertools.takewhile(lambda one: one.manifest.name != name, self._pending_loads.values())
        return sum(pending_load.remaining_ms(now_s) for pending_load in before)

    # Methods that run on other threads

    def _load_next(self) -> None:
        """Begin the first queued load that is possible; called when memory or the loader may be free."""
        refused: list[tuple[Future[Lease], NearsightError]] = []
        with self._lock:
            for name, pending_load in list(self._pending_loads.items()):
                if pending_load.began_s is not None:
                    break
                decision = self._cache.load(name, pending_load.costs, self._clock.monotonic())
                if isinstance(decision, Load):
                    self._begin_load(pending_load, decision.evict)
                    break
                if not self._is_temporary(decision):
                    error = self._refusal(decision)
                    refused += [(one, error) for one in self._pending_loads.pop(name).waiting]
                    self._requests.settled(name, self._clock.monotonic())
        for one, error in refused:
            fail(one, error)

    def _go_on(self, manifest: Manifest, outcome: Manifest | NearsightError, lease: Future[Lease]) -> None:
        """Continue a request whose network was measured, or fail it; with the new file if it was replaced."""
        if isinstance(outcome, NearsightError) and self._is_outdated(manifest):
            outcome = self._repository.manifests().get(manifest.name) or outcome
        try:
            if isinstance(outcome, NearsightError):
                raise outcome
            with self._lock:
                found = self._request(outcome, lease)
        except NearsightError as error:
            fail(lease, error)
        else:
            if isinstance(found, Lease):
                lease.set_result(found)

    def _is_outdated(self, manifest: Manifest) -> bool:
        """Whether a network was replaced or removed."""
        return not manifest.same_network(self._repository.manifests().get(manifest.name))

    def _released(self, resident: Resident) -> None:
        with self._lock:
            resident.leases -= 1
            if not resident.dropped:
                self._unload(self._cache.ended(resident.manifest.name, self._clock.monotonic()))
            elif not resident.leases:
                self._background.submit(lambda: _close([resident]))
        self._load_next()

    def _load(self, pending_load: PendingLoad, evicted: Iterable[Resident]) -> None:
        """Unload victims, load a network and execute it once. Runs on the loader's thread."""
        manifest, name, began_s = pending_load.manifest, pending_load.manifest.name, self._clock.monotonic()
        _close(evicted)  # counts as part of the load, since requests wait for it
        unloaded_s = self._clock.monotonic()
        if self._closed:
            return
        try:
            network = self._network_loader.load(manifest)
        except NearsightError as error:
            with self._lock:
                waiting = self._pending_loads.pop(name).waiting if name in self._pending_loads else []
                self._cache.failed(name)
                self._requests.settled(name, self._clock.monotonic())
                self._counts.failed_loads += 1
            self._measurements.failed(manifest, error)
            for one in waiting:
                self._go_on(manifest, error, one)
            self._load_next()
            if self._is_outdated(manifest):
                self.refresh()
            return
        now_s = self._clock.monotonic()
        costs = replace(pending_load.costs, load_ms=(now_s - began_s) * 1e3)
        with self._lock:
            if name not in self._pending_loads:  # `close` was called meanwhile
                return
            resident = self._resident[name] = Resident(network, manifest)
            self._shapes[manifest.checksum] = (network.inputs, network.outputs)
            waiting = self._pending_loads.pop(name).waiting
            self._requests.settled(name, now_s)
            self._counts.loads += 1
            self._counts.load_s += now_s - began_s
            self._counts.unload_s += unloaded_s - began_s
            victims = self._cache.loaded(name, now_s, costs)
            leases = [self._lease(resident) for _ in waiting]
            self._unload(victims)
        self._log.info(
            "network loaded", network=name, ms=round(costs.load_ms), mb=round(costs.size_bytes / 1e6)
        )
        for one, lease in zip(waiting, leases, strict=True):
            one.set_result(lease)
        self._load_next()
        if self._is_outdated(manifest):
            self.refresh()


def _close(residents: Iterable[Resident]) -> None:
    for one in residents:
        one.network.close()
