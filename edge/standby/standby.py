"""The standby of one catalogue: a stage of the request flow, used only while no tier answers.

Its index is always built, with two hash tables instead of eight. A build at the start of an outage would
delay photos by a second per 500 objects, and by a minute for large catalogues (decision 060). Models are
fetched in small batches, with the lowest priority. Objects that leave the catalogue are no longer found from
then on, and leave the index with its next build.

All methods except those of a stage run in the thread of the standbys.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future

from nearsight.common.catalogue.answers import FetchedModels, Listing
from nearsight.common.errors import NearsightError
from nearsight.common.inference.process_memory import return_freed_memory
from nearsight.common.logging import get_logger
from nearsight.common.operation.status import format_duration
from nearsight.common.recognition.classifiers.registry import bytes_per_descriptor
from nearsight.common.recognition.models import FEATURE_BYTES, ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer, look_again
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.request.answer import OBJECT, Answer, Lesson
from nearsight.edge.catalogue_cache import CatalogueCache
from nearsight.edge.query import EdgeQuery
from nearsight.edge.services import EdgeServices
from nearsight.edge.standby.choice import FetchPace, choose, worth_building
from nearsight.edge.standby.store import StandbyStore

BACKEND = "smallhash"
_ENTRY_BYTES = FEATURE_BYTES + bytes_per_descriptor(BACKEND)
_BUILD_SHARE = 0.2
"""Maximum share of one core's time for builds after the first one."""
_PLAN_EVERY_S = 1.0
"""Interval of plans [s]: ranking 10,000 objects takes about 10 ms, too much for each batch of models."""
_RETRY_S = 60.0
"""Pause before a failed fetch of an object is retried."""
_FETCH_TIMEOUT_S = 60.0
"""Timeout of a fetch of models."""


class Standby:
    """The standby of one catalogue.

    Parameters
    ----------
    cache : CatalogueCache
        Provides the listing, the popularity of objects, and models.
    settings : RecognitionSettings
        Recognition settings.
    services : EdgeServices
        Objects that all caches share.
    store : StandbyStore, optional
        Stores the models for a restart.
    wake : callable
        Called in any thread when `work` has something to do.
    """

    grain = OBJECT

    def __init__(
        self,
        cache: CatalogueCache,
        settings: RecognitionSettings,
        services: EdgeServices,
        store: StandbyStore | None,
        wake: Callable[[], None],
    ) -> None:
        self.cache = cache
        self._store = store
        self._wake = wake
        self._stored: dict[str, int | None] = {}
        self._stored_revision = -1
        self.problem = ""
        """Why models cannot be stored; empty if all is well, or without a store."""
        self.models = cache.supply.standby
        self._settings = settings.model_copy(update={"backend": BACKEND})
        self._services = services
        self._clock = services.clock
        self._log = get_logger("standby").bind(catalogue=cache.name)
        self._index = ObjectRecognizer.build((), self._settings)
        self._indexed: dict[str, int] = {}
        self._typical_bytes = float(settings.training_features * _ENTRY_BYTES)
        self._pace = FetchPace()
        self._missing: list[str] = []
        self._fitting: Listing | None = None
        self._fitting_bytes = 0
        self._open_fetch: tuple[Future[FetchedModels], Sequence[str], float] | None = None
        self._next_plan_s = self._next_fetch_s = self._next_build_s = -math.inf
        self._retry_at_s: dict[str, float] = {}
        self._counter = threading.Lock()
        self.answered = 0
        """Number of photos that the standby answered."""

    def __len__(self) -> int:
        """Number of objects in the index."""
        return len(self._indexed)

    @property
    def complete(self) -> bool:
        """Whether the index has all objects of the cloud's last listing."""
        return self.cache.listing.versions.items() <= self._indexed.items()

    @property
    def size_bytes(self) -> int:
        """Size of models and index [bytes]."""
        return sum(self._bytes_of(tuple(self.models.values())).values())

    @property
    def why(self) -> str:
        """State in one line, as text for the user."""
        of = f"{len(self)} of {len(self.cache.listing.versions)} objects"
        stored = f"; not stored: {self.problem}" if self.problem else ""
        return f"{of}, {self.size_bytes / 1e6:.1f} MB; used only while the cloud is unreachable{stored}"

    def why_outage(self, outage_s: float) -> str:
        """State during an outage of this duration, as text for the user."""
        of, away = f"{len(self)} of {len(self.cache.listing.versions)} objects", format_duration(outage_s)
        return (
            f"answers for {of}, as the cloud has been unreachable for {away}; "
            f"answered so far: {self.answered}"
        )

    @property
    def needs_bytes(self) -> float:
        """Size with the whole catalogue [bytes]."""
        return len(self.cache.listing.versions) * self._typical_bytes

    # Methods of a stage of the request flow

    def features_wanted(self, query: EdgeQuery) -> int | None:
        """Number of features for the first look; 0 if the edge has already looked."""
        return 0 if query.asked_again else self._settings.query_features

    def look(self, query: EdgeQuery) -> RecognizedObject | None:
        """Look up the photo as the cloud would, with a second look at an unknown image."""
        began_s = self._clock.monotonic()
        found, index = None, None
        while found is None and index is not self._index:  # a larger index may replace it during a look
            index = self._index
            found = index.recognize(query.features).found if query.features is not None else None
            if found is None and query.image is not None and self._settings.look_again and not query.one_look:
                found = look_again(query.image, index).found
        if found is not None and self.cache.listing.versions.get(found.object_id) != found.version:
            found = None  # the object left the catalogue
        self._services.load.computed((self._clock.monotonic() - began_s) * 1e3)
        if found is not None or self.complete:
            self._services.metrics.standby_answers.labels(self.cache.name).inc()
            with self._counter:
                self.answered += 1
        return found

    def learn(self, query: EdgeQuery, answer: Answer, lesson: Lesson | None) -> None:
        """Do nothing: models come from the cloud."""

    # Methods of the thread of the standbys

    def restore(self) -> None:
        """Load the models of an earlier run, if the file can be read."""
        if self._store is None:
            return
        try:
            # None: a row that cannot be used. The next write replaces or deletes it.
            self._stored = dict.fromkeys(self._store.versions(self.cache.name))
            models = tuple(self._store.models(self.cache.name, self.cache.listing))
        except NearsightError as error:
            self._log.warning("the stored models cannot be read", error=str(error))
            return
        self.models.update((model.object_id, model) for model in models)
        self._stored.update((model.object_id, model.version) for model in models)
        self._log.info("restored", objects=len(models))

    def work(self, budget_bytes: float, *, cloud_lost: bool) -> float:
        """Remove, fetch and build as necessary; return the time until the next call is useful [s]."""
        now_s, listing = self._clock.monotonic(), self.cache.listing
        if now_s >= self._next_plan_s and not self._fits(listing, budget_bytes):
            self._plan(listing, budget_bytes)
            self._next_plan_s = now_s + _PLAN_EVERY_S
        waits = self._settle(now_s) or cloud_lost
        models = dict(self.models)
        self._keep(listing, models)
        missing = [
            name
            for name in self._missing
            if name not in models and self._retry_at_s.get(name, -math.inf) <= now_s
        ]
        wait_s = math.inf if waits else self._fetch(missing, now_s)
        return min(wait_s, self._build(listing, models, more_come=bool(missing), at_once=cloud_lost))

    def _fits(self, listing: Listing, budget_bytes: float) -> bool:
        """Whether the last plan found all models of this listing, and they fit: no ranking is necessary."""
        return self._fitting is listing and self._fitting_bytes <= budget_bytes

    def _plan(self, listing: Listing, budget_bytes: float) -> None:
        """Remove unwanted models, copy wanted ones from the supply, and list those to fetch."""
        supply, present = self.cache.supply, dict(self.models)
        held = {name: model for name, model in present.items() if supply.current(model)}
        sizes = self._bytes_of(held.values())
        if sizes:
            self._typical_bytes = sum(sizes.values()) / len(sizes)
        chosen = choose(self.cache.estimator.ranking(), sizes, budget_bytes, self._typical_bytes)
        for name in present.keys() - chosen.keep:
            del self.models[name]
        here = {name: supply.held(name) for name in chosen.missing}
        self.models.update((name, model) for name, model in here.items() if model is not None)
        self._missing = [name for name, model in here.items() if model is None]
        whole = not self._missing and chosen.keep == listing.versions.keys()
        self._fitting = listing if whole else None
        self._fitting_bytes = sum(sizes.values())

    def _settle(self, now_s: float) -> bool:
        """Process the result of the last fetch; return whether it is still in progress."""
        if self._open_fetch is None:
            return False
        answer, batch, began_s = self._open_fetch
        if not answer.done():
            return True
        self._retry_at_s.update((name, now_s + _RETRY_S) for name in batch if name not in self.models)
        self._next_fetch_s = now_s + self._pace.fetched(now_s - began_s)
        self._open_fetch = None
        return False

    def _fetch(self, missing: list[str], now_s: float) -> float:
        """Fetch the next models; return the time until the next call is useful [s]."""
        if missing and now_s < self._next_fetch_s:
            return self._next_fetch_s - now_s
        if missing:
            batch = missing[: self._pace.batch]
            answer = self.cache.supply.for_standby(batch, _FETCH_TIMEOUT_S)
            self._open_fetch = answer, batch, now_s
            answer.add_done_callback(lambda _: self._wake())
        return math.inf

    def _keep(self, listing: Listing, models: Mapping[str, ObjectModel]) -> None:
        """Store the changes; after a failed write, the next call includes them again."""
        if self._store is None:
            return
        put = {name: model for name, model in models.items() if self._stored.get(name) != model.version}
        removed = self._stored.keys() - models.keys()
        # The listing of a large catalogue is larger than a batch of models.
        changed = listing if listing.revision != self._stored_revision else None
        if not (put or removed or changed):
            return
        try:
            self._store.write(self.cache.name, changed, put.values(), removed)
        except NearsightError as error:
            if not self.problem:
                self._log.warning("the standby cannot be stored", error=str(error))
            self.problem = str(error)
            return
        self.problem, self._stored_revision = "", listing.revision
        self._stored = {name: model.version for name, model in models.items()}

    def _build(
        self, listing: Listing, models: Mapping[str, ObjectModel], *, more_come: bool, at_once: bool
    ) -> float:
        versions = {name: model.version for name, model in models.items()}
        changed = versions != self._indexed
        if not worth_building(
            len(models), len(self._indexed), changed=changed, more_come=more_come and not at_once
        ):
            return math.inf
        wait_s = self._next_build_s - self._clock.monotonic()
        if wait_s > 0 and self._indexed and not at_once:
            return wait_s
        began_s = self._clock.monotonic()
        self._index, self._indexed = ObjectRecognizer.build(models.values(), self._settings), versions
        self.cache.standby = self if versions else None
        ended_s = self._clock.monotonic()
        self._next_build_s = ended_s + (ended_s - began_s) * (1 / _BUILD_SHARE - 1)
        return_freed_memory()
        metrics, name = self._services.metrics, self.cache.name
        metrics.standby_objects.labels(name).set(len(versions))
        metrics.standby_bytes.labels(name).set(self._index.size_bytes)
        self._log.info(
            "index built",
            objects=len(versions),
            of=len(listing.versions),
            mb=round(self._index.size_bytes / 1e6, 1),
            build_ms=round((ended_s - began_s) * 1e3),
        )
        return 0.0

    def _bytes_of(self, models: Iterable[ObjectModel]) -> dict[str, int]:
        per_feature = bytes_per_descriptor(BACKEND)
        return {one.object_id: one.size_bytes + per_feature * sum(map(len, one.views)) for one in models}
