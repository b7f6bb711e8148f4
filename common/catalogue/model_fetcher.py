"""The model fetcher: brings missing object models from the next tier, lazily, in the background.

Lazy model-fetching (section 3.5.3) and the holdback queue (section 3.5.4) of the dissertation.

What to ask for now is the decision of the `HoldbackQueue`. Everything here runs in the background thread.

With ``overtake``, a request that takes far longer than others did is overdue. Its place goes to the next one,
and its objects are held back like failed ones, each to be asked for by itself later: whatever keeps one model
from coming keeps no other from it, neither behind it nor in the same request. If the answer comes after all,
it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from nearsight.common.background.futures import when_done
from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.catalogue.answers import FetchedModels, models_of
from nearsight.common.catalogue.holdback import HoldbackQueue
from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.rpc.client import Reply

_OVERDUE_TIMES = 4.0
_LEAST_OVERDUE_S = 2.0
_NEWEST_WEIGHT = 0.2
_MOST_OPEN = 16
"""Requests that may be open at a time, overdue ones included, for each that may be in flight."""


@dataclass(slots=True, eq=False)
class _Request:
    """A request for models, until it is answered."""

    object_ids: tuple[str, ...]
    sent_s: float
    retry: bool
    overdue: bool = False
    answered: bool = False


class ModelSource(Protocol):
    """Where models come from: a client of some Catalogue service."""

    def get_models(self, catalogue: str, object_ids: Sequence[str], timeout_s: float) -> Future[Reply]:
        """Ask for object models; the future ends within ``timeout_s``."""


class ReadModelSource(Protocol):
    """Where models come from that need not be read any more: in a simulation."""

    def get_models(
        self, catalogue: str, object_ids: Sequence[str], timeout_s: float
    ) -> Future[FetchedModels]:
        """Ask for object models; the future ends within ``timeout_s``."""


class FetchLimits(Protocol):
    """How much is fetched at once."""

    @property
    def batch(self) -> int:
        """Models per request."""

    @property
    def parallel(self) -> int:
        """Requests in flight, besides one for an object that failed before."""

    @property
    def timeout_s(self) -> float:
        """Longest wait for one request, in seconds."""


class ModelFetcher:
    """Fetches the models of one catalogue.

    Parameters
    ----------
    catalogue : str
        Its name.
    source : ModelSource or ReadModelSource
        Where the models are.
    background : BackgroundWorker
        Runs everything here.
    settings : FetchLimits
        Sizes and times.
    clock : Clock
        For the holdback queue.
    arrived : callable
        Takes what came, in the background thread; returns the objects whose models it cannot use, such as
        those of an outdated version. They are held back like failed ones.
    failed : callable, optional
        Takes objects that did not come and are held back for a while, in the background thread.
    overtake : bool
        Whether others may overtake a request that is overdue. Not for a source that is slow on purpose, such
        as one that waits until another device has fetched the model.
    """

    def __init__(  # noqa: PLR0913  its parts and its two listeners, at one place each
        self,
        catalogue: str,
        source: ModelSource | ReadModelSource,
        background: BackgroundWorker,
        settings: FetchLimits,
        clock: Clock,
        arrived: Callable[[FetchedModels], Collection[str]],
        failed: Callable[[Collection[str]], None] | None = None,
        *,
        overtake: bool = False,
    ) -> None:
        self._overtake = overtake
        self._catalogue = catalogue
        self._source = source
        self._background = background
        self._settings = settings
        self._clock = clock
        self._arrived = arrived
        self._failed = failed
        self._log = get_logger("model-fetcher").bind(catalogue=catalogue)
        # The call itself ends by its timeout; the queue's limit is a safeguard.
        self._queue = HoldbackQueue(answer_within_s=2 * settings.timeout_s)
        self._wanted_by: dict[int, tuple[str, ...]] = {}
        self._wanted: tuple[str, ...] = ()
        self._open = 0
        self._batches_open = 0
        self._retry_open = False
        self._typical_s: float | None = None
        self.in_flight = 0
        """Objects that are being fetched; may be read by any thread."""

    def want(self, object_ids: Sequence[str], priority: int = 0) -> None:
        """Fetch these objects, the most wanted first, and no longer what was wanted before.

        There is one list of wishes per priority; those of higher priorities are fetched first.
        """
        self._wanted_by[priority] = tuple(object_ids)
        self._merge_wishes()
        self._queue.retain(self._wanted)
        self._ask()

    def awaits(self, object_id: str) -> bool:
        """Whether an object is wanted and may come soon."""
        return object_id in self._wanted and not self.holds_back(object_id)

    def holds_back(self, object_id: str) -> bool:
        """Whether an object failed so recently that it is not asked for yet."""
        return self._queue.holds_back(object_id, self._clock.monotonic())

    def _merge_wishes(self) -> None:
        by_priority = [self._wanted_by[priority] for priority in sorted(self._wanted_by, reverse=True)]
        self._wanted = tuple(dict.fromkeys(name for wishes in by_priority for name in wishes))

    def _ask(self) -> None:
        now_s = self._clock.monotonic()
        most_open = _MOST_OPEN * (self._settings.parallel + 1)
        while self._batches_open < self._settings.parallel and self._open < most_open:
            batch = self._queue.take(self._wanted, now_s, self._settings.batch)
            if not batch:
                break
            self._batches_open += 1
            self._send(_Request(batch, now_s, retry=False))
        if not self._retry_open and self._open < most_open:
            retry = self._queue.take_retry(self._wanted, now_s)
            if retry is not None:
                self._retry_open = True
                self._send(_Request((retry,), now_s, retry=True))
        self.in_flight = self._queue.in_flight
        wait_s = self._queue.next_retry_s(now_s)
        if self._wanted and wait_s is not None and not self._retry_open:
            self._background.submit(self._ask, name=f"fetch {self._catalogue}", after_s=max(wait_s, 0.05))

    def _send(self, request: _Request) -> None:
        self._open += 1
        future: Future[Any] = self._source.get_models(
            self._catalogue, request.object_ids, self._settings.timeout_s
        )
        when_done(future, self._background, lambda outcome: self._take(request, outcome))
        if self._overtake:
            self._background.submit(lambda: self._look_after(request), after_s=self._overdue_after_s())

    def _overdue_after_s(self) -> float:
        if self._typical_s is None:
            return self._settings.timeout_s / 2
        return min(self._settings.timeout_s, max(_LEAST_OVERDUE_S, _OVERDUE_TIMES * self._typical_s))

    def _look_after(self, request: _Request) -> None:
        """Treat a request that is still open as overdue."""
        if request.answered:
            return
        self._make_room(request)
        request.overdue = True
        self._hold_back(request.object_ids)
        self._log.warning("models are overdue", objects=len(request.object_ids))
        self._ask()

    def _make_room(self, request: _Request) -> None:
        """The next request may go out in its place."""
        if request.overdue:
            return
        if request.retry:
            self._retry_open = False
        else:
            self._batches_open -= 1

    def _take(self, request: _Request, outcome: Reply | FetchedModels | NearsightError) -> None:
        request.answered = True
        self._open -= 1
        self._make_room(request)
        try:
            if isinstance(outcome, NearsightError):
                raise outcome
            fetched = (
                outcome if isinstance(outcome, FetchedModels) else models_of(outcome, request.object_ids)
            )
        except NearsightError as error:
            if not request.overdue:
                self._hold_back(request.object_ids)
            self._log.warning("models not fetched", objects=len(request.object_ids), error=str(error))
            self._ask()
            return
        took_s = self._clock.monotonic() - request.sent_s
        typical_s = took_s if self._typical_s is None else self._typical_s
        self._typical_s = typical_s + _NEWEST_WEIGHT * (took_s - typical_s)
        self._settle(fetched)
        self._ask()

    def _settle(self, fetched: FetchedModels) -> None:
        unusable = frozenset(self._arrived(fetched))
        came = frozenset(model.object_id for model in fetched.models) - unusable
        # An answer with nothing but models left out would be the same the next time.
        left_out = fetched.left_out if fetched.models else ()
        failed = [*unusable, *fetched.missing, *fetched.unreadable, *(set(fetched.left_out) - set(left_out))]
        self._queue.succeeded([*came, *left_out])
        self._wanted_by = {
            priority: tuple(name for name in wishes if name not in came)
            for priority, wishes in self._wanted_by.items()
        }
        self._merge_wishes()
        if failed:
            self._hold_back(failed)
            self._log.warning(
                "no model for some objects", objects=failed, unreadable=dict(fetched.unreadable)
            )

    def _hold_back(self, object_ids: Collection[str]) -> None:
        self._queue.failed(object_ids, self._clock.monotonic())
        if self._failed is not None:
            self._failed(object_ids)
