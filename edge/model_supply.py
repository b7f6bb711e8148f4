"""The object models of one catalogue: which are here, and which are fetched for whom.

The cache, its guests and devices want models. All wishes meet in one `ModelFetcher`, so that each model
crosses the network once; who waits decides what comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future

from nearsight.common.background.futures import pending
from nearsight.common.catalogue.answers import FetchedModels, Listing
from nearsight.common.catalogue.model_fetcher import ModelFetcher
from nearsight.common.errors import Unavailable
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.edge.model_library import ModelLibrary
from nearsight.edge.model_requests import ModelRequests, ModelsAnswer
from nearsight.edge.recognizer import Recognizer
from nearsight.edge.services import EdgeServices
from nearsight.edge.settings import EdgeSettings

_FOR_DEVICES, _FOR_CACHE, _FOR_GUESTS = 2, 1, 0


class ModelSupply:
    """Holds and fetches models. `held` and `for_device` are for any thread, all else for the background's.

    Parameters
    ----------
    name : str
        Of the catalogue.
    listing : callable
        The catalogue as of now.
    recognizer : Recognizer
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
        recognizer: Recognizer,
        settings: EdgeSettings,
        services: EdgeServices,
        *,
        arrived: Callable[[], None],
        outdated: Callable[[], None],
    ) -> None:
        self._name = name
        self._listing = listing
        self._recognizer = recognizer
        self._background = services.background
        self._metrics = services.metrics
        self._tell_arrived = arrived
        self._tell_outdated = outdated
        self.library = ModelLibrary(settings.cache.library_mb * 2**20)
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
        self._requests = ModelRequests(
            lambda: self._listing().versions,
            self.held,
            self.fetcher.holds_back,
            services.clock,
            settings.fetch.patience_s,
        )
        self._target: frozenset[str] = frozenset()
        self._for_target: dict[str, ObjectModel] = {}
        self._closed = False

    def current(self, model: ObjectModel) -> bool:
        """Whether the catalogue has the object in just this version."""
        return self._listing().versions.get(model.object_id) == model.version

    def held(self, object_id: str) -> ObjectModel | None:
        """The current model of an object, if it is here."""
        for found in (
            self._for_target.get(object_id),
            self._recognizer.snapshot.models.get(object_id),
            self.library.get(object_id),
        ):
            if found is not None and self.current(found):
                return found
        return None

    def for_device(self, object_ids: Sequence[str], remaining_s: float) -> Future[ModelsAnswer]:
        """Models that a device asked for; those that are not here are fetched, once for all devices."""
        answer: Future[ModelsAnswer] = pending()
        ready = self._requests.ready(object_ids)
        if ready is not None:
            answer.set_result(ready)
        else:
            self._background.submit(lambda: self._enter(object_ids, remaining_s, answer))
        return answer

    def want_for_cache(self, object_ids: Sequence[str]) -> None:
        """The cache should hold these: keep their models whatever happens, fetch what is not here."""
        self._target = frozenset(object_ids)
        self.fetcher.want(self._missing(object_ids), _FOR_CACHE)

    def want_for_guests(self, object_ids: Sequence[str]) -> None:
        """These may enter as guests: fetch what is not here, after everything else."""
        self.fetcher.want(self._missing(object_ids), _FOR_GUESTS)

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
        for priority in (_FOR_DEVICES, _FOR_CACHE, _FOR_GUESTS):
            self.fetcher.want((), priority)
        self._requests.fail(_dropped())

    def _missing(self, object_ids: Sequence[str]) -> list[str]:
        return [name for name in object_ids if self.held(name) is None]

    def _enter(self, object_ids: Sequence[str], remaining_s: float, answer: Future[ModelsAnswer]) -> None:
        if self._closed:
            answer.set_exception(_dropped())
            return
        for wait_s in self._requests.enter(object_ids, remaining_s, answer):
            self._background.submit(self._requests.settle, after_s=wait_s)
        self._fetch_for_devices()

    def _fetch_for_devices(self) -> None:
        self.fetcher.want(self._requests.wanted(), _FOR_DEVICES)
        self._requests.settle()

    def _arrived(self, fetched: FetchedModels) -> list[str]:
        self._metrics.fetched_models.labels(self._name).inc(len(fetched.models))
        self._metrics.fetched_bytes.labels(self._name).inc(fetched.size_bytes)
        current = [model for model in fetched.models if self.current(model)]
        for model in current:
            if model.object_id in self._target:
                self._for_target[model.object_id] = model
        self.library.put(model for model in current if model.object_id not in self._target)
        self._requests.arrived(current)
        self._requests.settle()
        other_version = [model.object_id for model in fetched.models if not self.current(model)]
        if other_version or fetched.missing or fetched.revision != self._listing().revision:
            self._tell_outdated()
        self._tell_arrived()
        return other_version

    def _failed(self, object_ids: Collection[str]) -> None:
        self._requests.failed(object_ids)
        self._requests.settle()


def _dropped() -> Unavailable:
    return Unavailable("the edge has dropped this catalogue", advice="try again")
