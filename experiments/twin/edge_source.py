"""The edge as the prefetcher of a device sees it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from nearsight.common.background.futures import outcome_of, pending
from nearsight.common.catalogue.answers import FetchedModels, Listing
from nearsight.common.errors import DeadlineExceeded, NearsightError
from nearsight.device.prefetching.predictions import Prediction
from nearsight.experiments.twin.cost_model import (
    ANSWER_BYTES,
    BYTES_PER_PREDICTION,
    LISTED_BYTES,
    REQUEST_BYTES,
)
from nearsight.experiments.twin.edge import TwinEdge
from nearsight.experiments.twin.events import Action, EventQueue
from nearsight.experiments.twin.link import TwinLink

_Answer = Future[FetchedModels] | Future[Prediction] | Future[Listing]


class EdgeSource:
    """What the prefetcher asks of its edge: models, predictions, and the list of objects.

    Parameters
    ----------
    events : EventQueue
        Time.
    device_id : str
        Who asks.
    edge : TwinEdge
        Whom.
    air : TwinLink
        The way there.
    way_s : float
        What each way takes besides.
    """

    def __init__(
        self, events: EventQueue, device_id: str, edge: TwinEdge, air: TwinLink, way_s: float
    ) -> None:
        self._events = events
        self._clock = events.clock
        self._device_id = device_id
        self._edge = edge
        self._air = air
        self._way_s = way_s

    def get_models(
        self, catalogue: str, object_ids: Sequence[str], timeout_s: float
    ) -> Future[FetchedModels]:
        """Object models of the edge."""
        del catalogue
        future: Future[FetchedModels] = pending()
        deadline_s = self._clock.now_s + timeout_s

        def back(outcome: FetchedModels | NearsightError) -> None:
            size = outcome.size_bytes if isinstance(outcome, FetchedModels) else ANSWER_BYTES
            self._air.down(size, lambda: _complete(future, outcome), self._way_s)

        self._up(lambda: self._edge.get_models(object_ids, deadline_s, back), future, deadline_s)
        return future

    def get_next_objects(self, current: str, timeout_s: float) -> Future[Prediction]:
        """Report what was recognised, and ask what may follow."""
        future: Future[Prediction] = pending()
        sent_s = self._clock.now_s
        deadline_s = sent_s + timeout_s

        def there() -> None:
            arrived_s = self._clock.now_s

            def back(done: Future[Prediction]) -> None:
                outcome = outcome_of(done)
                named = len(outcome.following) if isinstance(outcome, Prediction) else 0
                size = ANSWER_BYTES + BYTES_PER_PREDICTION * named
                spent_s = self._clock.now_s - arrived_s
                self._air.down(
                    size, lambda: _complete(future, self._timed(outcome, sent_s + spent_s)), self._way_s
                )

            self._edge.next_objects(self._device_id, current, deadline_s, back)

        self._up(there, future, deadline_s)
        return future

    def _timed(self, outcome: Prediction | NearsightError, left_s: float) -> Prediction | NearsightError:
        """With the time on the way: it would have been sent then if the edge had spent none on it."""
        if not isinstance(outcome, Prediction) or outcome.now is None:
            return outcome
        transfer_ms = max(0.0, (self._clock.now_s - left_s) * 1e3)
        return replace(outcome, now=replace(outcome.now, transfer_ms=transfer_ms))

    def list_objects(self, timeout_s: float) -> Future[Listing]:
        """Which objects there are."""
        future: Future[Listing] = pending()
        deadline_s = self._clock.now_s + timeout_s

        def back(outcome: Listing | NearsightError) -> None:
            objects = len(outcome.versions) if isinstance(outcome, Listing) else 0
            size = ANSWER_BYTES + LISTED_BYTES * objects
            self._air.down(size, lambda: _complete(future, outcome), self._way_s)

        self._up(lambda: self._edge.list_objects(deadline_s, back), future, deadline_s)
        return future

    def get_revision(self, timeout_s: float) -> Future[int]:
        """Always the same."""
        del timeout_s
        future: Future[int] = pending()
        future.set_result(self._edge.cache.revision)
        return future

    def _up(self, arrived: Action, future: _Answer, deadline_s: float) -> None:
        self._air.up(REQUEST_BYTES, arrived, self._way_s)
        self._events.at(deadline_s, lambda: _expire(future))


def _complete(future: _Answer, outcome: object) -> None:
    if future.done():
        return
    if isinstance(outcome, NearsightError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)  # type: ignore[arg-type]


def _expire(future: _Answer) -> None:
    if not future.done():
        future.set_exception(DeadlineExceeded("no answer in time"))
