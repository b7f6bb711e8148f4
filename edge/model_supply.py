"""The object models of one catalogue: which are here, and which are fetched for whom.

The cache, prefetching, devices and the standby want models. All wishes meet in one `ModelFetcher`, so that
each model crosses the network once; who waits decides what comes first.

A device gets its models at once when all are here. Otherwise it waits until the rest came or failed, but not
longer than ``patience_s`` once there is anything to send: one model that never comes must not keep back the
others. What is left out is named, stays wanted for a while, and is here when the device asks again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from nearsight.common.background.futures import pending
from nearsight.common.catalogue.answers import FetchedModels, Listing
from nearsight.common.catalogue.model_fetcher import ModelFetcher
from nearsight.common.errors import Unavailable
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.edge.services import EdgeServices
from nearsight.edge.settings import EdgeSettings
from nearsight.edge.snapshot_holder import SnapshotHolder
from nearsight.edge.standby.models import StandbyModels

WANTED_FOR_S = 30.0
"""How long an object stays wanted after a device asked for it."""

MOST_WANTED = 4096
"""Objects that are wanted for devices at the same time; the oldest wishes go."""

_SHARE_OF_DEADLINE = 0.8
_FOR_DEVICES, _FOR_CACHE, _TO_PREFETCH, _FOR_STANDBY = 3, 2, 1, 0


class ModelLibrary:
    """Models that are here although they answer nothing now: for devices, and for the next snapshot.

    For all threads; the least recently used models leave first.

    Parameters
    ----------
    max_bytes : int
        Features that are held at most, in bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._models: OrderedDict[str, ObjectModel] = OrderedDict()
        self.size_bytes = 0
        """Bytes of all models."""

    def __len__(self) -> int:
        return len(self._models)

    def limit(self, max_bytes: int) -> None:
        """Hold at most so many bytes from now on."""
        with self._lock:
            self._max_bytes = max_bytes
            self._drop_surplus()

    def put(self, models: Iterable[ObjectModel]) -> None:
        """Keep these models, in place of other versions."""
        with self._lock:
            for model in models:
                self._drop(model.object_id)
                self._models[model.object_id] = model
                self.size_bytes += model.size_bytes
            self._drop_surplus()

    def get(self, object_id: str) -> ObjectModel | None:
        """The model of an object, of whatever version; None if it is not here."""
        with self._lock:
            if object_id in self._models:
                self._models.move_to_end(object_id)
            return self._models.get(object_id)

    def keep(self, versions: Mapping[str, int]) -> None:
        """Drop what is not in the catalogue any more, and other versions."""
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


@dataclass(frozen=True, slots=True)
class ModelsAnswer:
    """What a device gets: models in the order asked for, unknown objects, and what it must ask for again."""

    models: tuple[ObjectModel, ...]
    missing: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(slots=True)
class _Waiting:
    """The request of one device."""

    object_ids: Sequence[str]
    patient_until_s: float
    answer_by_s: float
    answer: Future[ModelsAnswer]
    came: dict[str, ObjectModel] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)


class ModelSupply:
    """Holds and fetches models. `held` and `for_device` are for any thread, all else for the background's.

    Parameters
    ----------
    name : str
        Of the catalogue.
    listing : callable
        The catalogue as of now.
    holder : SnapshotHolder
        Its snapshot holds models, too.
    settings : EdgeSettings
        Of the daemon.
    services : EdgeServices
        Shared parts.
    arrived, outdated : callable
        Told that models came, and that the listing does not fit what the cloud sends.
    """

    def __init__(
        self,
        name: str,
        listing: Callable[[], Listing],
        holder: SnapshotHolder,
        settings: EdgeSettings,
        services: EdgeServices,
        *,
        arrived: Callable[[], None],
        outdated: Callable[[], None],
    ) -> None:
        self._name = name
        self._listing = listing
        self._holder = holder
        self._services = services
        self._patience_s = settings.fetch.patience_s
        self._tell_arrived = arrived
        self._tell_outdated = outdated
        self.library = ModelLibrary(settings.cache.library_mb * 2**20)
        self.standby = StandbyModels()
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
        self._for_target: dict[str, ObjectModel] = {}
        self._waiting: list[_Waiting] = []
        self._wanted_until_s: dict[str, float] = {}
        self._closed = False

    def current(self, model: ObjectModel) -> bool:
        """Whether the catalogue has the object in just this version."""
        return self._listing().versions.get(model.object_id) == model.version

    def held(self, object_id: str) -> ObjectModel | None:
        """The current model of an object, if it is here."""
        for found in (
            self._for_target.get(object_id),
            self._holder.snapshot.models.get(object_id),
            self.library.get(object_id),
            self.standby.get(object_id),
        ):
            if found is not None and self.current(found):
                return found
        return None

    def want_for_cache(self, object_ids: Sequence[str]) -> None:
        """The cache should hold these: keep their models whatever happens, fetch what is not here."""
        self._target = frozenset(object_ids)
        self.fetcher.want(self._missing(object_ids), _FOR_CACHE)

    def want_to_prefetch(self, object_ids: Sequence[str]) -> None:
        """These may be prefetched into the cache: fetch what is not here, after everything else."""
        self.fetcher.want(self._missing(object_ids), _TO_PREFETCH)

    def want_for_standby(self, object_ids: Sequence[str]) -> None:
        """The standby wants these: fetch what is not here, after everything else."""
        self.standby.offer(model for name in object_ids if (model := self.held(name)) is not None)
        self.fetcher.want(self._missing(object_ids), _FOR_STANDBY)

    def built(self, former: ObjectRecognizer, snapshot: ObjectRecognizer) -> None:
        """A new snapshot answers. What left it may come back, or be asked for by a device."""
        self.library.put(
            model
            for model in former.models.values()
            if model.object_id not in snapshot.models and self.current(model)
        )
        self._for_target = {
            name: model
            for name, model in self._for_target.items()
            if name in self._target and name not in snapshot.models
        }

    def listed(self) -> None:
        """There is a new listing: drop what it does not have."""
        self._for_target = {name: model for name, model in self._for_target.items() if self.current(model)}
        self.library.keep(self._listing().versions)
        self._fetch_for_devices()

    def close(self) -> None:
        """Fetch no more; who waits gets an error."""
        self._closed = True
        for priority in (_FOR_DEVICES, _FOR_CACHE, _TO_PREFETCH, _FOR_STANDBY):
            self.fetcher.want((), priority)
        for waiting in self._waiting:
            waiting.answer.set_exception(_dropped())
        self._waiting = []

    def _missing(self, object_ids: Sequence[str]) -> list[str]:
        return [name for name in object_ids if self.held(name) is None]

    def _arrived(self, fetched: FetchedModels) -> list[str]:
        metrics = self._services.metrics
        metrics.fetched_models.labels(self._name).inc(len(fetched.models))
        metrics.fetched_bytes.labels(self._name).inc(fetched.size_bytes)
        current = [model for model in fetched.models if self.current(model)]
        for model in current:
            if model.object_id in self._target:
                self._for_target[model.object_id] = model
            for waiting in self._waiting:  # for them it stays even if nothing else keeps it
                if model.object_id in waiting.object_ids:
                    waiting.came[model.object_id] = model
        elsewhere = self._target | self.standby.offer(current)
        self.library.put(model for model in current if model.object_id not in elsewhere)
        self._settle()
        other_version = [model.object_id for model in fetched.models if not self.current(model)]
        if other_version or fetched.missing or fetched.revision != self._listing().revision:
            self._tell_outdated()
        self._tell_arrived()
        return other_version

    def _failed(self, object_ids: Collection[str]) -> None:
        for waiting in self._waiting:
            waiting.failed.update(name for name in object_ids if name in waiting.object_ids)
        self.standby.failed(object_ids)
        self._settle()

    # Requests of devices

    def for_device(self, object_ids: Sequence[str], remaining_s: float) -> Future[ModelsAnswer]:
        """Models that a device asked for; those that are not here are fetched, once for all devices."""
        answer: Future[ModelsAnswer] = pending()
        ready = self._answer(object_ids, {})
        if not ready.left_out:
            answer.set_result(ready)
        else:
            self._services.background.submit(lambda: self._enter(object_ids, remaining_s, answer))
        return answer

    def _enter(self, object_ids: Sequence[str], remaining_s: float, answer: Future[ModelsAnswer]) -> None:
        """Let a request wait."""
        if self._closed:
            answer.set_exception(_dropped())
            return
        now_s, by_s = self._services.clock.monotonic(), remaining_s * _SHARE_OF_DEADLINE
        patient_s = min(self._patience_s, by_s)
        self._waiting.append(_Waiting(object_ids, now_s + patient_s, now_s + by_s, answer))
        versions = self._listing().versions
        for name in object_ids:
            if name in versions and self.held(name) is None:
                self._wanted_until_s.pop(name, None)
                self._wanted_until_s[name] = now_s + WANTED_FOR_S
        while len(self._wanted_until_s) > MOST_WANTED:
            del self._wanted_until_s[next(iter(self._wanted_until_s))]
        for wait_s in (patient_s, by_s):
            self._services.background.submit(self._settle, after_s=wait_s)
        self._fetch_for_devices()

    def _fetch_for_devices(self) -> None:
        """Fetch what devices asked for lately, the one asked for first first."""
        now_s, versions = self._services.clock.monotonic(), self._listing().versions
        self._wanted_until_s = {
            name: until_s
            for name, until_s in self._wanted_until_s.items()
            if until_s > now_s and name in versions and self.held(name) is None
        }
        self.fetcher.want(tuple(self._wanted_until_s), _FOR_DEVICES)
        self._settle()

    def _settle(self) -> None:
        """Answer whoever has waited enough."""
        now_s = self._services.clock.monotonic()
        still: list[_Waiting] = []
        for waiting in self._waiting:
            answer = self._answer(waiting.object_ids, waiting.came)
            may_come = any(
                name not in waiting.failed and not self.fetcher.holds_back(name) for name in answer.left_out
            )
            enough = bool(answer.models) and now_s >= waiting.patient_until_s
            if may_come and not enough and now_s < waiting.answer_by_s:
                still.append(waiting)
            else:
                waiting.answer.set_result(answer)
        self._waiting = still

    def _answer(self, object_ids: Sequence[str], came: Mapping[str, ObjectModel]) -> ModelsAnswer:
        """What there is to send now; ``came`` are models that were fetched for this request."""
        versions = self._listing().versions
        models: list[ObjectModel] = []
        left_out: list[str] = []
        for name in object_ids:
            if name not in versions:
                continue
            model = came.get(name)
            if model is None or model.version != versions[name]:
                model = self.held(name)
            if model is None:
                left_out.append(name)
            else:
                models.append(model)
        missing = tuple(name for name in object_ids if name not in versions)
        return ModelsAnswer(tuple(models), missing, tuple(left_out))


def _dropped() -> Unavailable:
    return Unavailable("the edge has dropped this catalogue", advice="try again")
