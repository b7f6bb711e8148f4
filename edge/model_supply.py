"""The object models of one catalogue: those that are available, and those that are fetched.

The cache, prefetching, devices and the standby need models. All of them share one `ModelFetcher`, so that
each model crosses the network once. The kind of requester determines the order of fetching.

If all models for a device are available, the device receives them at once. Otherwise its request waits until
the others arrived or failed. After ``patience_s``, one available model is enough for an answer, so that a
missing model does not delay the others. Ids of omitted models are listed in the answer. These models are
fetched for some time, so that they are available when the device requests them again.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from nearsight.common.background.futures import completed, pending
from nearsight.common.catalogue.answers import FetchedModels, Listing
from nearsight.common.catalogue.model_fetcher import ModelFetcher
from nearsight.common.errors import Unavailable
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.edge.services import EdgeServices
from nearsight.edge.settings import EdgeSettings

WANTED_FOR_S = 30.0
"""Time for which an object is fetched after a device requested it."""

MOST_WANTED = 4096
"""Limit of objects that are fetched for devices at the same time; the oldest are removed first."""

_SHARE_OF_DEADLINE = 0.8
_FOR_DEVICES, _FOR_CACHE, _TO_PREFETCH, _FOR_STANDBY = 3, 2, 1, 0


class ModelLibrary:
    """Models that no snapshot uses at present: for devices, and for the next snapshot.

    Thread-safe. The least recently used models are evicted first.

    Parameters
    ----------
    max_bytes : int
        Limit of the size of all features [bytes].
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._models: OrderedDict[str, ObjectModel] = OrderedDict()
        self.size_bytes = 0
        """Size of all models [bytes]."""

    def __len__(self) -> int:
        return len(self._models)

    def limit(self, max_bytes: int) -> None:
        """Set the limit, and evict models that exceed it."""
        with self._lock:
            self._max_bytes = max_bytes
            self._drop_surplus()

    def put(self, models: Iterable[ObjectModel]) -> None:
        """Store these models; they replace other versions."""
        with self._lock:
            for model in models:
                self._drop(model.object_id)
                self._models[model.object_id] = model
                self.size_bytes += model.size_bytes
            self._drop_surplus()

    def get(self, object_id: str) -> ObjectModel | None:
        """The model of an object, of any version; None if there is none."""
        with self._lock:
            if object_id in self._models:
                self._models.move_to_end(object_id)
            return self._models.get(object_id)

    def keep(self, versions: Mapping[str, int]) -> None:
        """Remove models of objects that left the catalogue, and of other versions."""
        with self._lock:
            for object_id, model in list(self._models.items()):
                if versions.get(object_id) != model.version:
                    self._drop(object_id)

    def _drop_surplus(self) -> None:
        while self.size_bytes > self._max_bytes:
            self._drop(next(iter(self._models)))

    def _drop(self, object_id: str) -> None:
        model = self._models.pop(object_id, None)
        if model is not None:
            self.size_bytes -= model.size_bytes


@dataclass(slots=True)
class _WaitingRequest:
    """A waiting request of a device, or of the standby."""

    object_ids: Sequence[str]
    patient_until_s: float
    answer_by_s: float
    for_standby: bool
    answer: Future[FetchedModels] = field(default_factory=pending)
    arrived: dict[str, ObjectModel] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)


class ModelSupply:
    """Holds and fetches models. Runs in the background thread, except `held`, `for_device`, `for_standby`.

    Parameters
    ----------
    name : str
        Name of the catalogue.
    listing : callable
        Returns the current listing of the catalogue.
    cached : callable
        Returns the models of the active snapshot.
    settings : EdgeSettings
        Settings of the daemon.
    services : EdgeServices
        Objects that all caches of the edge share.
    arrived, outdated : callable
        Called when models arrived, and when the listing does not match the models of the cloud.
    """

    def __init__(
        self,
        name: str,
        listing: Callable[[], Listing],
        cached: Callable[[], Mapping[str, ObjectModel]],
        settings: EdgeSettings,
        services: EdgeServices,
        *,
        arrived: Callable[[], None],
        outdated: Callable[[], None],
    ) -> None:
        self._name = name
        self._listing = listing
        self._cached = cached
        self._services = services
        self._patience_s = settings.fetch.patience_s
        self._on_arrived = arrived
        self._on_outdated = outdated
        self.library = ModelLibrary(settings.cache.library_mb * 2**20)
        self.standby: dict[str, ObjectModel] = {}
        """Models of the standby. The fetched ones are added here; the standby removes models."""
        self.fetcher = ModelFetcher(
            name,
            services.cloud,
            services.background,
            settings.fetch,
            services.clock,
            self._arrived,
            self._failed,
            overtake=True,
        )
        self._target: frozenset[str] = frozenset()
        self._to_prefetch: frozenset[str] = frozenset()
        self._for_snapshot: dict[str, ObjectModel] = {}
        self._waiting: dict[int, _WaitingRequest] = {}
        self._numbers = itertools.count()
        self._wanted_until_s: dict[str, float] = {}
        self._closed = False

    def current(self, model: ObjectModel) -> bool:
        """Whether the catalogue has the object in exactly this version."""
        return self._listing().versions.get(model.object_id) == model.version

    def held(self, object_id: str) -> ObjectModel | None:
        """The current model of an object; None if it is not available."""
        for found in (
            self._for_snapshot.get(object_id),
            self._cached().get(object_id),
            self.library.get(object_id),
            self.standby.get(object_id),
        ):
            if found is not None and self.current(found):
                return found
        return None

    def want_for_cache(self, object_ids: Sequence[str]) -> None:
        """Set the objects that the cache should hold: keep their models, and fetch missing ones."""
        self._target = frozenset(object_ids)
        self.fetcher.want(self._missing(object_ids), _FOR_CACHE)

    def want_to_prefetch(self, object_ids: Sequence[str]) -> None:
        """Set the objects to prefetch into the cache: keep their models, and fetch missing ones.

        Their priority is low. Models of the former objects to prefetch become spare models.
        """
        former, self._to_prefetch = self._to_prefetch, frozenset(object_ids)
        spare = former - self._to_prefetch - self._target
        self.library.put(self._for_snapshot.pop(name) for name in spare & self._for_snapshot.keys())
        self.fetcher.want(self._missing(object_ids), _TO_PREFETCH)

    def built(self, former: ObjectRecognizer, snapshot: ObjectRecognizer) -> None:
        """Process a new snapshot: models that left it are kept for a return, and for devices."""
        self.library.put(
            model
            for model in former.models.values()
            if model.object_id not in snapshot.models and self.current(model)
        )
        wanted = self._target | self._to_prefetch
        self._for_snapshot = {
            name: model
            for name, model in self._for_snapshot.items()
            if name in wanted and name not in snapshot.models
        }

    def listed(self) -> None:
        """Process a new listing: remove models that it does not have."""
        self._for_snapshot = {
            name: model for name, model in self._for_snapshot.items() if self.current(model)
        }
        versions = self._listing().versions
        self.library.keep(versions)
        self.fetcher.keep(versions)
        self._fetch_requested()
        self._settle(self._waiting)

    def close(self) -> None:
        """Stop fetching; waiting requests fail."""
        self._closed = True
        for priority in (_FOR_DEVICES, _FOR_CACHE, _TO_PREFETCH, _FOR_STANDBY):
            self.fetcher.want((), priority)
        for waiting in self._waiting.values():
            waiting.answer.set_exception(_dropped())
        self._waiting.clear()

    def _missing(self, object_ids: Sequence[str]) -> list[str]:
        return [name for name in object_ids if self.held(name) is None]

    def _arrived(self, fetched: FetchedModels) -> list[str]:
        metrics = self._services.metrics
        metrics.fetched_models.labels(self._name).inc(len(fetched.models))
        metrics.fetched_bytes.labels(self._name).inc(fetched.size_bytes)
        current = [model for model in fetched.models if self.current(model)]
        for_snapshot = self._target | self._to_prefetch
        for model in current:
            if model.object_id in for_snapshot:
                self._for_snapshot[model.object_id] = model
            for waiting in self._waiting.values():  # keep the model for them, even if no other component does
                if model.object_id in waiting.object_ids:
                    waiting.arrived[model.object_id] = model
        for_standby = self._wanted_by_standby()
        self.standby.update((one.object_id, one) for one in current if one.object_id in for_standby)
        elsewhere = for_snapshot.union(for_standby)
        self.library.put(model for model in current if model.object_id not in elsewhere)
        self._settle(self._waiting)
        other_version = [model.object_id for model in fetched.models if not self.current(model)]
        if other_version or fetched.missing or fetched.revision != self._listing().revision:
            self._on_outdated()
        self._on_arrived()
        return other_version

    def _failed(self, object_ids: Collection[str]) -> None:
        for waiting in self._waiting.values():
            waiting.failed.update(name for name in object_ids if name in waiting.object_ids)
        self._settle(self._waiting)

    # Requests of devices and of the standby

    def for_device(self, object_ids: Sequence[str], remaining_s: float) -> Future[FetchedModels]:
        """Models for a device; missing ones are fetched, once for all devices."""
        ready = self._answer(object_ids, {})
        if not ready.left_out:
            return completed(ready)
        within_s = remaining_s * _SHARE_OF_DEADLINE
        return self._request(object_ids, min(self._patience_s, within_s), within_s)

    def for_standby(self, object_ids: Sequence[str], within_s: float) -> Future[FetchedModels]:
        """Fetch models into `standby`, with the lowest priority; one call at a time."""
        return self._request(object_ids, within_s, within_s, for_standby=True)

    def _request(
        self, object_ids: Sequence[str], patience_s: float, within_s: float, *, for_standby: bool = False
    ) -> Future[FetchedModels]:
        now_s = self._services.clock.monotonic()
        number = next(self._numbers)
        request = _WaitingRequest(object_ids, now_s + patience_s, now_s + within_s, for_standby)
        self._services.background.submit(lambda: self._enter(number, request))
        for wait_s in {patience_s, within_s}:  # these jobs do not keep an answered request in memory
            self._services.background.submit(lambda: self._settle([number]), after_s=wait_s)
        return request.answer

    def _enter(self, number: int, request: _WaitingRequest) -> None:
        """Add a request to those that wait."""
        if self._closed:
            request.answer.set_exception(_dropped())
            return
        self._waiting[number] = request
        if not request.for_standby:
            until_s = self._services.clock.monotonic() + WANTED_FOR_S
            for name in request.object_ids:
                self._wanted_until_s.pop(name, None)
                self._wanted_until_s[name] = until_s
        self._fetch_requested()
        self._settle([number])

    def _fetch_requested(self) -> None:
        """Fetch the models that devices requested recently, the oldest request first, and the standby's."""
        now_s, versions = self._services.clock.monotonic(), self._listing().versions
        wanted = [
            (name, until_s)
            for name, until_s in self._wanted_until_s.items()
            if until_s > now_s and name in versions and self.held(name) is None
        ]
        self._wanted_until_s = dict(wanted[-MOST_WANTED:])
        self.fetcher.want(tuple(self._wanted_until_s), _FOR_DEVICES)
        self.fetcher.want(self._missing(self._wanted_by_standby()), _FOR_STANDBY)

    def _wanted_by_standby(self) -> list[str]:
        return [
            name for request in self._waiting.values() if request.for_standby for name in request.object_ids
        ]

    def _settle(self, numbers: Iterable[int]) -> None:
        """Answer those of these requests that wait, and need not wait any longer."""
        now_s = self._services.clock.monotonic()
        for number in [number for number in numbers if number in self._waiting]:
            waiting = self._waiting[number]
            answer = self._answer(waiting.object_ids, waiting.arrived)
            may_come = any(
                name not in waiting.failed and not self.fetcher.holds_back(name) for name in answer.left_out
            )
            enough = bool(answer.models) and now_s >= waiting.patient_until_s
            if may_come and not enough and now_s < waiting.answer_by_s:
                continue
            del self._waiting[number]
            waiting.answer.set_result(answer)
            if waiting.for_standby:
                self.fetcher.want((), _FOR_STANDBY)

    def _answer(self, object_ids: Sequence[str], arrived: Mapping[str, ObjectModel]) -> FetchedModels:
        """Current answer to a request, in its order; ``arrived`` are models that were fetched for it."""
        listing = self._listing()
        versions = listing.versions
        found: dict[str, ObjectModel | None] = {}
        for name in object_ids:
            if name in versions:
                model = arrived.get(name)
                found[name] = model if model is not None and self.current(model) else self.held(name)
        return FetchedModels(
            tuple(model for model in found.values() if model is not None),
            tuple(name for name in object_ids if name not in versions),
            {},
            tuple(name for name, model in found.items() if model is None),
            listing.revision,
        )


def _dropped() -> Unavailable:
    return Unavailable("the edge has dropped this catalogue", advice="try again")
