"""The model fetcher: fetches missing object models from the next tier, lazily, in the background.

Lazy model-fetching (section 3.5.3) and the holdback queue (section 3.5.4) of the dissertation.

The `HoldbackQueue` decides which models to request. Everything runs in the background thread.

With ``overtake``, a request that takes far longer than earlier ones is overdue. The next request is then sent
in its place. The objects of the overdue request are held back as after a failure, and each is later requested
separately. So the cause of the delay does not block other models, neither in later requests nor in the same
one. If the response arrives after all, it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
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
"""Maximum number of open requests, overdue ones included, per request that may be in flight."""


@dataclass(slots=True, eq=False)
class _Request:
    """A request for models."""

    object_ids: tuple[str, ...]
    sent_s: float
    retry: bool
    overdue: bool = False


class ModelSource(Protocol):
    """A source of models: a client of a Catalogue service."""

    def get_models(self, catalogue: str, object_ids: Sequence[str], timeout_s: float) -> Future[Reply]:
        """Request object models; the future ends within ``timeout_s``."""


class ReadModelSource(Protocol):
    """A source of models that are already decoded; used in simulations."""

    def get_models(
        self, catalogue: str, object_ids: Sequence[str], timeout_s: float
    ) -> Future[FetchedModels]:
        """Request object models; the future ends within ``timeout_s``."""


class FetchLimits(Protocol):
    """Limits of fetching."""

    @property
    def batch(self) -> int:
        """Maximum number of models per request."""

    @property
    def parallel(self) -> int:
        """Maximum number of requests in flight, in addition to one retry."""

    @property
    def timeout_s(self) -> float:
        """Timeout of a request [s]."""


class ModelFetcher:
    """Fetches the models of one catalogue.

    Parameters
    ----------
    catalogue : str
        Name of the catalogue.
    source : ModelSource or ReadModelSource
        Where the models are requested.
    background : BackgroundWorker
        Runs all of this.
    settings : FetchLimits
        Batch size, parallelism and timeout.
    clock : Clock
        Time for the holdback queue.
    arrived : callable
        Receives the fetched models in the background thread. Returns the objects whose models are not usable,
        such as outdated versions; these are held back as after a failure.
    failed : callable
        Receives the objects that are held back after a failure, in the background thread.
    overtake : bool
        Whether other requests may overtake an overdue one. Not for a source that delays requests on purpose,
        such as one that waits until another device has fetched the model.
    """

    def __init__(  # noqa: PLR0913  its collaborators and two callbacks
        self,
        catalogue: str,
        source: ModelSource | ReadModelSource,
        background: BackgroundWorker,
        settings: FetchLimits,
        clock: Clock,
        arrived: Callable[[FetchedModels], Collection[str]],
        failed: Callable[[Collection[str]], None],
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
        self._queue = HoldbackQueue()
        self._wanted_by: dict[int, tuple[str, ...]] = {}
        self._wanted: tuple[str, ...] = ()
        self._open: set[_Request] = set()
        self._typical_s: float | None = None
        self.in_flight = 0
        """Number of objects in flight; may be read from any thread."""

    def want(self, object_ids: Sequence[str], priority: int = 0) -> None:
        """Set the objects to fetch at this priority, the most wanted first; replaces the previous list.

        Lists of higher priorities are fetched first.
        """
        self._wanted_by[priority] = tuple(object_ids)
        self._merge_wanted()
        self._queue.retain(self._wanted)
        self._send_requests()

    def keep(self, object_ids: Container[str]) -> None:
        """Stop fetching objects that are not among these, such as those that left the catalogue."""
        self._wanted_by = {
            priority: tuple(name for name in wanted if name in object_ids)
            for priority, wanted in self._wanted_by.items()
        }
        self._merge_wanted()

    def awaits(self, object_id: str) -> bool:
        """Whether an object is wanted and not held back, so that its model may arrive soon."""
        return object_id in self._wanted and not self.holds_back(object_id)

    def holds_back(self, object_id: str) -> bool:
        """Whether an object failed recently and must not be requested yet."""
        return self._queue.holds_back(object_id, self._clock.monotonic())

    def _merge_wanted(self) -> None:
        by_priority = [self._wanted_by[priority] for priority in sorted(self._wanted_by, reverse=True)]
        self._wanted = tuple(dict.fromkeys(name for wanted in by_priority for name in wanted))

    def _send_requests(self) -> None:
        now_s = self._clock.monotonic()
        most_open = _MOST_OPEN * (self._settings.parallel + 1)
        while self._awaited(retry=False) < self._settings.parallel and len(self._open) < most_open:
            batch = self._queue.take(self._wanted, self._settings.batch)
            if not batch:
                break
            self._send(_Request(batch, now_s, retry=False))
        if not self._awaited(retry=True) and len(self._open) < most_open:
            retry = self._queue.take_retry(self._wanted, now_s)
            if retry is not None:
                self._send(_Request((retry,), now_s, retry=True))
        self.in_flight = self._queue.in_flight
        wait_s = self._queue.next_retry_s(self._wanted, now_s)
        if wait_s is not None and not self._awaited(retry=True):
            self._background.submit(
                self._send_requests, name=f"fetch {self._catalogue}", after_s=max(wait_s, 0.05)
            )

    def _awaited(self, *, retry: bool) -> int:
        """Number of open requests that are not overdue: retries, or the others."""
        return sum(one.retry == retry and not one.overdue for one in self._open)

    def _send(self, request: _Request) -> None:
        self._open.add(request)
        future: Future[Any] = self._source.get_models(
            self._catalogue, request.object_ids, self._settings.timeout_s
        )
        when_done(future, self._background, lambda outcome: self._handle_response(request, outcome))
        if self._overtake:
            self._background.submit(lambda: self._mark_overdue(request), after_s=self._overdue_after_s())

    def _overdue_after_s(self) -> float:
        if self._typical_s is None:
            return self._settings.timeout_s / 2
        return min(self._settings.timeout_s, max(_LEAST_OVERDUE_S, _OVERDUE_TIMES * self._typical_s))

    def _mark_overdue(self, request: _Request) -> None:
        """Mark a request that is still open as overdue, and hold back its objects."""
        if request not in self._open:
            return
        request.overdue = True
        self._hold_back(request.object_ids)
        self._log.warning("models are overdue", objects=len(request.object_ids))
        self._send_requests()

    def _handle_response(self, request: _Request, outcome: Reply | FetchedModels | NearsightError) -> None:
        self._open.remove(request)
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
            self._send_requests()
            return
        took_s = self._clock.monotonic() - request.sent_s
        typical_s = took_s if self._typical_s is None else self._typical_s
        self._typical_s = typical_s + _NEWEST_WEIGHT * (took_s - typical_s)
        self._handle_models(fetched)
        self._send_requests()

    def _handle_models(self, fetched: FetchedModels) -> None:
        unusable = frozenset(self._arrived(fetched))
        usable = frozenset(model.object_id for model in fetched.models) - unusable
        # A response in which everything was left out would be the same next time, so it counts as a failure.
        left_out = fetched.left_out if fetched.models else ()
        failed = [*unusable, *fetched.missing, *fetched.unreadable, *(set(fetched.left_out) - set(left_out))]
        self._queue.succeeded([*usable, *left_out])
        self._wanted_by = {
            priority: tuple(name for name in wanted if name not in usable)
            for priority, wanted in self._wanted_by.items()
        }
        self._merge_wanted()
        if failed:
            self._hold_back(failed)
            self._log.warning(
                "no model for some objects", objects=failed, unreadable=dict(fetched.unreadable)
            )

    def _hold_back(self, object_ids: Collection[str]) -> None:
        self._queue.failed(object_ids, self._clock.monotonic())
        self._failed(object_ids)
