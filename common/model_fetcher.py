"""The model fetcher: brings missing object models from the next tier, lazily, in the background.

Lazy model-fetching (section 3.5.3) and the holdback queue (section 3.5.4) of the dissertation.

What to ask for now is the decision of the `HoldbackQueue`. Everything here runs in the background thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Protocol

from nearsight.common.background import BackgroundWorker
from nearsight.common.caching.holdback import HoldbackQueue
from nearsight.common.catalogue_answers import FetchedModels, models_of
from nearsight.common.clock import Clock
from nearsight.common.errors import Cancelled, InternalError, NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.rpc.client import Reply


class ModelSource(Protocol):
    """Where models come from: a client of some Catalogue service."""

    def get_models(self, catalogue: str, object_ids: Sequence[str], timeout_s: float) -> Future[Reply]:
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
    source : ModelSource
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
    """

    def __init__(
        self,
        catalogue: str,
        source: ModelSource,
        background: BackgroundWorker,
        settings: FetchLimits,
        clock: Clock,
        arrived: Callable[[FetchedModels], Collection[str]],
        failed: Callable[[Collection[str]], None] | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._source = source
        self._background = background
        self._settings = settings
        self._clock = clock
        self._arrived = arrived
        self._failed = failed
        self._log = get_logger("model-fetcher").bind(catalogue=catalogue)
        # The call itself ends by its timeout; the queue's limit is only the net below.
        self._queue = HoldbackQueue(answer_within_s=2 * settings.timeout_s)
        self._wanted_by: dict[int, tuple[str, ...]] = {}
        self._wanted: tuple[str, ...] = ()
        self._batches_open = 0
        self._retry_open = False
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

    def holds_back(self, object_id: str) -> bool:
        """Whether an object failed so recently that it is not asked for yet."""
        return self._queue.holds_back(object_id, self._clock.monotonic())

    def _merge_wishes(self) -> None:
        by_priority = [self._wanted_by[priority] for priority in sorted(self._wanted_by, reverse=True)]
        self._wanted = tuple(dict.fromkeys(name for wishes in by_priority for name in wishes))

    def _ask(self) -> None:
        now_s = self._clock.monotonic()
        while self._batches_open < self._settings.parallel:
            batch = self._queue.take(self._wanted, now_s, self._settings.batch)
            if not batch:
                break
            self._batches_open += 1
            self._send(batch, self._batch_closed)
        if not self._retry_open and (retry := self._queue.take_retry(self._wanted, now_s)) is not None:
            self._retry_open = True
            self._send((retry,), self._retry_closed)
        self.in_flight = self._queue.in_flight
        wait_s = self._queue.next_retry_s(now_s)
        if self._wanted and wait_s is not None and not self._retry_open:
            self._background.submit(self._ask, name=f"fetch {self._catalogue}", after_s=max(wait_s, 0.05))

    def _send(self, batch: tuple[str, ...], closed: Callable[[], None]) -> None:
        def answered(done: Future[Reply]) -> None:
            self._background.submit(lambda: self._take(batch, _outcome(done), closed))

        future = self._source.get_models(self._catalogue, batch, self._settings.timeout_s)
        future.add_done_callback(answered)

    def _batch_closed(self) -> None:
        self._batches_open -= 1

    def _retry_closed(self) -> None:
        self._retry_open = False

    def _take(
        self, batch: tuple[str, ...], outcome: Reply | NearsightError, closed: Callable[[], None]
    ) -> None:
        closed()
        try:
            if isinstance(outcome, NearsightError):
                raise outcome
            fetched = models_of(outcome, batch)
        except NearsightError as error:
            self._hold_back(batch)
            self._log.warning("models not fetched", objects=len(batch), error=str(error))
            self._ask()
            return
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


def _outcome(done: Future[Reply]) -> Reply | NearsightError:
    if done.cancelled():
        return Cancelled("the request for models was cancelled")
    error = done.exception()
    if error is None:
        return done.result()
    if isinstance(error, NearsightError):
        return error
    return InternalError(f"the request for models failed unexpectedly: {type(error).__name__}")
