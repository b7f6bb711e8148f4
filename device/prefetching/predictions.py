"""Predictions of the next objects: requested from the edge, and stored for outages of the edge.

Without an answer of the edge, the devices nearby are asked (dissertation, section 5.1.2). The last prediction
of the edge is combined with theirs; its weight decreases with its age. `Forecasts` runs in the background
thread.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol

from cachetools import LRUCache

from nearsight.common.background.futures import when_done
from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError, NotFound
from nearsight.common.logging import get_logger
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.device.recognizer_settings import PrefetchSettings

MOST_NEXT_OBJECTS = 256
"""Maximum number of objects of a prediction that are kept; the others are too improbable to matter."""
MOST_PREDICTIONS = 64
"""Maximum number of objects whose last prediction is kept."""
MOST_REPORTS = 16
"""Maximum number of recognised objects that wait to be reported to a slow edge."""

EDGE_HALF_LIFE_S = 3600.0
"""Time in which the edge's last prediction loses half of its weight against devices nearby [s]."""

_NOTHING = ("", -math.inf)
_FIRST_RETRY_S, _LONGEST_RETRY_S = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class EdgeTimes:
    """Current latency of a photo at the edge, estimated from a report and its answer."""

    answer_ms: float
    """Time from the arrival of a photo to its answer, without tiers behind the edge; stated by the edge
    [ms]."""
    transfer_ms: float
    """Transfer time of the report and its answer: the device's waiting time minus the edge's time [ms]."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted objects after an object."""

    following: NextObjects
    """The most probable next objects."""
    revision: int | None
    """Revision of the catalogue at the edge; None from devices nearby, which do not state any."""
    now: EdgeTimes | None = None
    """Current latency of a photo at the edge that predicted; None if unknown."""


class PredictionSource(Protocol):
    """A source of predictions: an edge, or the devices nearby."""

    def get_next_objects(self, current: str, timeout_s: float) -> Future[Prediction]:
        """Report the recognised object and request a prediction; the future ends within ``timeout_s``."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The current prediction for one object, with the edge's last prediction and its time."""

    prediction: Prediction
    edge_following: NextObjects | None = None
    predicted_s: float = -math.inf


class Forecasts:
    """The last prediction for each object; reports to the edge what the device recognised itself.

    Reports are sent one at a time, so that the edge receives the steps in order.

    Parameters
    ----------
    edge : PredictionSource or None
        The edge; None if there is none.
    background : BackgroundWorker
        Runs all methods.
    settings : PrefetchSettings
        Timeouts and intervals.
    clock : Clock
        Must run in real time.
    on_prediction : callable
        Receives the prediction in the answer to a report; None if there was no answer.
    neighbours : PredictionSource, optional
        The devices nearby.
    on_unknown : callable, optional
        Called if the edge does not have an object of this device: the catalogue has changed.
    """

    def __init__(
        self,
        edge: PredictionSource | None,
        background: BackgroundWorker,
        settings: PrefetchSettings,
        clock: Clock,
        on_prediction: Callable[[Prediction | None], None],
        neighbours: PredictionSource | None = None,
        on_unknown: Callable[[], None] = lambda: None,
    ) -> None:
        self._edge = edge
        self._neighbours = neighbours
        self._background = background
        self._settings = settings
        self._clock = clock
        self._on_prediction = on_prediction
        self._on_unknown = on_unknown
        self._log = get_logger("device.forecasts")
        self._known: LRUCache[str, _Known] = LRUCache(MOST_PREDICTIONS)
        self._reports: deque[str] = deque(maxlen=MOST_REPORTS)
        self._open = False
        self._newest: tuple[str, float] = _NOTHING
        self.failures = 0
        """Consecutive failures of the edge; 0 if it answers, or if there is no edge."""
        self._retry_s = -math.inf

    @property
    def edge_away(self) -> bool:
        """Whether no edge predicts at the moment."""
        return self._edge is None or self.failures > 0

    def get(self, object_id: str) -> Prediction | None:
        """The stored prediction for an object, None if there is none."""
        known = self._known.get(object_id)
        return known.prediction if known is not None else None

    def remember(self, object_id: str, prediction: Prediction) -> None:
        """Store a prediction from the edge, and record that the edge answers."""
        self._edge_answers()
        now_s = self._clock.monotonic()
        self._known[object_id] = _Known(prediction, prediction.following, now_s)
        self._newest = (object_id, now_s)

    def report(self, object_id: str) -> None:
        """Report an object that the device recognised itself to the edge, which answers with a prediction.

        The same object is reported again only after ``refresh_s``, not with every photo.
        """
        newest, at_s = self._newest
        if newest == object_id and self._clock.monotonic() < at_s + self._settings.refresh_s:
            return
        self._newest = (object_id, self._clock.monotonic())
        self._reports.append(object_id)
        self._send()

    def _send(self) -> None:
        if self._open or not self._reports:
            return
        if self._edge is None or self._clock.monotonic() < self._retry_s:
            newest = self._reports[-1]
            self._reports.clear()  # the edge does not answer; old steps are of no use to it later
            if not self._ask_neighbours(newest):
                self._newest = _NOTHING
            return
        object_id = self._reports.popleft()
        self._open = True
        future = self._edge.get_next_objects(object_id, self._settings.timeout_s)
        when_done(future, self._background, lambda outcome: self._answered(object_id, outcome))

    def _answered(self, object_id: str, outcome: Prediction | NearsightError) -> None:
        self._open = False
        if isinstance(outcome, NotFound):
            self._edge_answers()
            self._on_prediction(None)
            self._on_unknown()
        elif isinstance(outcome, NearsightError):
            self.edge_failed(str(outcome))
            self._on_prediction(None)
            self._ask_neighbours(object_id)
        else:
            newest = self._newest
            self.remember(object_id, outcome)
            if self._reports:
                self._newest = newest  # the device has recognised another object meanwhile
            self._on_prediction(outcome)
        self._send()

    def _edge_answers(self) -> None:
        if self.failures:
            self._log.info("the edge predicts again")
        self.failures = 0
        self._retry_s = -math.inf

    def edge_failed(self, reason: str) -> None:
        """Record that the edge did not answer a report, or that it does not answer photos."""
        self.failures += 1
        wait_s = min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(self.failures - 1, 16))
        self._retry_s = self._clock.monotonic() + wait_s
        self._newest = _NOTHING
        self._reports.clear()
        if self.failures == 1:
            self._log.info("the edge does not predict", reason=reason)

    def _ask_neighbours(self, object_id: str) -> bool:
        """Ask the devices nearby; returns False if there is no such source."""
        if self._neighbours is None:
            return False

        def answered(outcome: Prediction | NearsightError) -> None:
            if isinstance(outcome, NearsightError):
                self._log.debug("no prediction from devices nearby", reason=str(outcome))
                self._on_prediction(None)
            elif self.edge_away:
                known = self._mixed_with_edge(object_id, outcome)
                self._known[object_id] = known
                self._on_prediction(known.prediction)

        future = self._neighbours.get_next_objects(object_id, self._settings.timeout_s)
        when_done(future, self._background, answered)
        return True

    def _mixed_with_edge(self, object_id: str, nearby: Prediction) -> _Known:
        """A prediction of devices nearby, mixed with the last one of the edge by its decayed weight."""
        known = self._known.get(object_id)
        if known is None or known.edge_following is None:
            return _Known(nearby)
        weight = math.exp2((known.predicted_s - self._clock.monotonic()) / EDGE_HALF_LIFE_S)
        following = known.edge_following.mixed(nearby.following, weight).top(MOST_NEXT_OBJECTS)
        return replace(known, prediction=Prediction(following, revision=None))
