"""The result cache as a stage of the request flow: it looks first, at the photo itself, before extraction.

The same stage is used by edge, device and twin. It returns the answer to an earlier photo with the same
approximate key. It learns from the stages and tiers behind it, which act as the classifier. Decision 039
describes what is cached.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol

from nearsight.common.catalogue.answers import Listing
from nearsight.common.clock import Clock
from nearsight.common.recognition.images import GrayImage
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.request.answer import RESULT, Answer, Lesson
from nearsight.common.request.effects import Query
from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.common.result_cache.budget import Budget, SequentialTest
from nearsight.common.result_cache.image_keys import feature_keys, layout_keys
from nearsight.common.result_cache.result_cache import Counts
from nearsight.common.result_cache.settings import ResultCacheSettings
from nearsight.common.result_cache.views import ObjectKey, ViewCache
from nearsight.common.text import percent

KEY_SIDE_PX = 80
"""Image size for computing keys [px]; JPEG decoders reduce by 8 at almost no cost."""
_MISSED_KEYS = 50_000
"""Maximum number of stored keys of views that the stages behind do not know."""
_MISSED_S = 0.5
"""Time for which the stages behind skip such a view while the next tier is asked [s]."""
_LAYOUT_KEYS, _FEATURE_KEYS = layout_keys(), feature_keys()


@dataclass(frozen=True, slots=True)
class LookState:
    """State of a look, stored in its query until the answer from elsewhere arrives."""

    keys: tuple[Hashable, ...]
    """Keys of the photo; empty if its result must not be cached."""
    key: Hashable
    """The key that was looked up; see `ViewCache`."""
    revision: int
    """Revision of the catalogue at the time of the look."""
    spent_ms: float
    """Time for computing the keys and the lookup [ms]."""
    ended_s: float
    known: bool
    """Whether the client has shown this view before, as clients do that stand still."""
    missed: bool
    """Whether the stages behind may skip the photo: they just missed this view, or no tier recognised it."""


class KeyedQuery(Query, Protocol):
    """A query from which keys are computed."""

    client: str
    """Client that sent the photo; "" on the device itself. Results are not shared between clients, so that no
    client can corrupt those of another."""
    result_look: LookState | None

    def for_key(self) -> GrayImage | Features:
        """The photo, at most `KEY_SIDE_PX` a side; its features if there is no photo."""


@dataclass(frozen=True, slots=True)
class _Result:
    """A cached answer. Two answers are equal if they have the same model."""

    object_id: str
    version: int
    found: RecognizedObject = field(compare=False)


class Payoff:
    """Decides whether lookups cost less than they save. Pure; not thread-safe.

    Over a window of looks, their total time is compared with the number of hits times the mean further time
    of requests without a hit. If looking does not pay off, it is suspended, and tried again later for a
    window of consecutive requests. Each failed trial increases the pause.

    Attributes
    ----------
    cost_ms, saved_ms : float
        Cost and saving per request, in the last complete window.
    """

    WINDOW, WINDOW_S = 50, 20.0
    """Minimum looks and duration [s] of a window: with many clients, confirming their results takes time."""
    PAUSES = (1, 256)
    """First and longest pause, in windows. With the longest, one request in 257 is looked at."""

    def __init__(self) -> None:
        self.cost_ms = self.saved_ms = 0.0
        self._pause = self.PAUSES[0]
        self._skip = 0
        self._window_start_s: float | None = None
        self._looks = self._hits = self._misses = 0
        self._spent_ms = self._miss_ms = 0.0

    @property
    def pays(self) -> bool:
        """Whether lookups are currently enabled."""
        return not self._skip

    def may_look(self) -> bool:
        """Whether to look at the current request; counts down the pause."""
        if not self._skip:
            return True
        self._skip -= 1
        return False

    def looked(self, spent_ms: float, now_s: float, *, hit: bool) -> None:
        """Record a look with its duration, and whether it was a hit."""
        if self._window_start_s is None:
            self._window_start_s = now_s
        self._looks += 1
        self._hits += hit
        self._spent_ms += spent_ms
        if self._looks >= self.WINDOW and now_s - self._window_start_s >= self.WINDOW_S:
            self._evaluate()

    def answered(self, spent_ms: float) -> None:
        """Record the time from the look to the answer of a request without a hit."""
        self._misses = min(self._misses + 1, self.WINDOW)
        self._miss_ms += (spent_ms - self._miss_ms) / self._misses

    def _evaluate(self) -> None:
        self.cost_ms = self._spent_ms / self._looks
        self.saved_ms = self._hits / self._looks * self._miss_ms
        if self.saved_ms > self.cost_ms:
            self._pause = self.PAUSES[0]
        else:
            self._skip = self._pause * self._looks
            self._pause = min(2 * self._pause, self.PAUSES[1])
        self._window_start_s = None
        self._looks = self._hits = 0
        self._spent_ms = 0.0


@dataclass(frozen=True, slots=True)
class ResultCacheState:
    """State of a result cache, for metrics and display."""

    entries: int
    counts: Counts
    wrong_share: float
    wrong_share_bound: float
    """Estimates of `WrongHits`."""
    alarm: bool
    """Whether more photos are answered wrongly than `ResultCacheSettings.error` allows, if it is set."""
    on: bool
    """Whether lookups are currently enabled."""
    cost_ms: float
    saved_ms: float
    """Values of `Payoff`."""

    @property
    def why(self) -> str:
        """The state in one line, for display."""
        counts = self.counts
        paying = f"a look takes {self.cost_ms:.2f} ms and saves {self.saved_ms:.2f} ms"
        judged = paying if self.cost_ms else "not measured yet"
        return (
            f"{'on' if self.on else 'off, tried again later'}: {judged}; {counts.served} of {counts.lookups} "
            f"photos answered, {counts.verifying} verified, {counts.corrections} corrected; wrong "
            f"{percent(self.wrong_share, 1)}, at most {percent(self.wrong_share_bound, 1)}"
            f"{'; MORE THAN ALLOWED' if self.alarm else ''}; {self.entries} results"
        )


class ResultStage:
    """The result cache of one catalogue: a `Stage` of the request flow.

    Thread-safe. Keys are computed outside of the lock, which is held for microseconds.

    Parameters
    ----------
    catalogue : str
        Name of the catalogue.
    listing : callable
        Returns the tier's current listing of the catalogue; None if there is none, which disables the cache.
        Results of other revisions are deleted.
    settings : ResultCacheSettings
        Back-off, size and time to live.
    clock : Clock
        Measures looks and the age of results.
    rng : random.Random
        Selects the lookups to verify if there is a target for errors; should be unpredictable.
    """

    grain = RESULT

    def __init__(
        self,
        catalogue: str,
        listing: Callable[[], Listing | None],
        settings: ResultCacheSettings,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._catalogue = catalogue
        self._listing = listing
        self._clock = clock
        self._lock = threading.Lock()
        self._payoff = Payoff()
        self._missed: OrderedDict[Hashable, float] = OrderedDict()
        self._error = settings.error
        refresh = (
            SequentialTest(Budget(error=settings.error), rng)
            if settings.error
            else AutoRefresh(settings.beta)
        )
        self._cache: ViewCache[_Result] = ViewCache(refresh, settings.size, ttl_s=settings.ttl_s)
        self._revision: int | None = None

    # A stage of the request flow

    def features_wanted(self, query: KeyedQuery) -> int | None:
        """0, as no features are needed; None while suspended, without a listing, or on a second trip."""
        if query.asked_again or self._listing() is None:
            return None
        with self._lock:
            return 0 if self._payoff.may_look() else None

    def look(self, query: KeyedQuery) -> RecognizedObject | None:
        """The object in an earlier photo with the same key; None if there is none or verification is due."""
        started_s, listing = self._clock.monotonic(), self._listing()
        if listing is None:
            return None
        self._clear_if_changed(listing.revision)
        keys = self._keys_of(query, listing.revision)
        with self._lock:
            key, entry, now_s = None, None, self._clock.monotonic()
            if listing.revision == self._revision:
                key, entry = self._cache.find(keys, now_s)
            spent_ms = self._spent_ms(query, now_s - started_s)
            self._payoff.looked(spent_ms, now_s, hit=entry is not None)
            known = key in self._cache.results
            missed = not known and any(now_s < self._missed.get(one, 0.0) for one in keys)
            query.result_look = LookState(keys, key, listing.revision, spent_ms, now_s, known, missed)
            return entry.value.found if entry is not None else None

    def missed(self, query: KeyedQuery) -> None:
        """The stages behind do not know the photo; they may skip it while other tiers are asked."""
        looked = query.result_look
        if looked is not None:
            with self._lock:
                if looked.revision == self._revision:
                    self._note_missed(looked, self._clock.monotonic() + _MISSED_S)

    def learn(self, query: KeyedQuery, answer: Answer, lesson: Lesson | None) -> None:
        """Learn from an answer of a stage behind this one, or of the next tier.

        Answers of the next tier's result cache are not learned, because they would count as verifications.
        """
        looked, query.result_look = query.result_look, None
        listing = self._listing()
        if looked is None or listing is None or (lesson is not None and not lesson.complete):
            return
        found, now_s = answer.found, self._clock.monotonic()
        with self._lock:
            self._payoff.answered((now_s - looked.ended_s) * 1e3)
            current = looked.revision == self._revision == listing.revision
            if not (looked.keys and current) or answer.grain == RESULT:
                return
            if found is None:
                self._cache.results.contradict(looked.key)
                self._note_missed(looked, math.inf)
                return
            for one in looked.keys:
                self._missed.pop(one, None)
            if listing.versions.get(found.object_id) == found.version:
                kept = replace(found, corners=None)
                result = _Result(found.object_id, found.version, kept)
                # Keys of features distinguish less, so each of their views has its own result.
                shown = ObjectKey(query.client, found.object_id) if query.has_image else None
                self._cache.learn(looked.keys, looked.key, shown, result, now_s)

    def _note_missed(self, looked: LookState, until_s: float) -> None:
        for one in looked.keys:
            self._missed[one] = max(until_s, self._missed.get(one, 0.0))
            self._missed.move_to_end(one)
        while len(self._missed) > _MISSED_KEYS:
            self._missed.popitem(last=False)

    @property
    def state(self) -> ResultCacheState:
        """Current state and statistics."""
        with self._lock:
            results, payoff = self._cache.results, self._payoff
            wrong = results.wrong_hits
            return ResultCacheState(
                len(results),
                replace(results.counts),
                wrong.share,
                wrong.bound,
                bool(self._error) and results.recent_errors.exceeds(self._error),
                payoff.pays,
                payoff.cost_ms,
                payoff.saved_ms,
            )

    def _clear_if_changed(self, revision: int) -> None:
        """Delete all results if the revision of the catalogue has changed."""
        if revision != self._revision:
            with self._lock:
                self._revision = revision
                self._cache.forget()
                self._missed.clear()

    def _keys_of(self, query: KeyedQuery, revision: int) -> tuple[Hashable, ...]:
        """The keys of a photo; empty if its result must not be cached. Overridden by the twin."""
        source, context = query.for_key(), (self._catalogue, str(revision), query.client)
        if isinstance(source, GrayImage):
            return _LAYOUT_KEYS.within(*context)(source.pixels)
        return _FEATURE_KEYS.within(*context)(source)

    def _spent_ms(self, query: KeyedQuery, measured_s: float) -> float:
        """Duration of a look [ms]. Overridden by the twin, which computes it."""
        del query
        return measured_s * 1e3
