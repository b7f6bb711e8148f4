"""What may be seen next: asked of the edge, remembered, and remembered longer while the edge is away.

Where there is no edge, or it is away, the devices nearby are asked (dissertation, section 5.1.2). What the
edge said last counts as well, the less the older it is. `Forecasts` runs in the background thread.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol

from nearsight.common.background.futures import when_done
from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import InvalidMessage, NearsightError, NotFound
from nearsight.common.logging import get_logger
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.device.recognizer_settings import PrefetchSettings

MOST_NEXT_OBJECTS = 256
"""Of a prediction, so many objects are kept; the rest is hardly ever asked for."""
_LONGEST_ANSWER_MS = 60_000.0
"""The longest time of a photo that an edge is believed."""

MOST_PREDICTIONS = 64
"""Objects whose last known prediction is kept."""
MOST_REPORTS = 16
"""Recognised objects that wait to be reported to an edge that is slow."""

EDGE_HALF_LIFE_S = 3600.0
"""While the edge is away, what it said loses half of its weight to what devices nearby say in this time."""

_NOTHING = ("", -math.inf)
_FIRST_RETRY_S, _LONGEST_RETRY_S = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class EdgeTimes:
    """What a photo would find at the edge now, as far as a report and its answer tell.

    Raises
    ------
    InvalidMessage
        If a time cannot be: the edge is not believed everything.
    """

    answer_ms: float
    """From its arrival to the answer, without the tiers behind the edge; the edge says so."""
    transfer_ms: float
    """Of the report and its answer: the time that the device waited less what the edge spent."""

    def __post_init__(self) -> None:
        if not (0 < self.answer_ms <= _LONGEST_ANSWER_MS and 0 <= self.transfer_ms < math.inf):
            raise InvalidMessage(f"an answer of {self.answer_ms} ms, {self.transfer_ms} ms away, cannot be")


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was said to follow an object."""

    following: NextObjects
    """The most probable objects."""
    revision: int | None
    """Of the catalogue, as the edge knew it; None from others, who do not vouch for any."""
    now: EdgeTimes | None = None
    """What a photo takes at the edge that predicted, if it said so."""


class PredictionSource(Protocol):
    """An edge, or the devices nearby, which predict."""

    def get_next_objects(self, current: str, timeout_s: float) -> Future[Prediction]:
        """Say what the device recognised, and ask what may follow; the future ends within ``timeout_s``."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What may follow one object, and what the edge said of that, when."""

    prediction: Prediction
    of_edge: NextObjects | None = None
    said_s: float = -math.inf


class Forecasts:
    """The last prediction for each object; reports to the edge what the device recognised itself.

    One report is on its way at a time, so that the edge sees the steps in their order.

    Parameters
    ----------
    edge : PredictionSource or None
        The edge; None if there is none.
    background : BackgroundWorker
        Runs everything here.
    settings : PrefetchSettings
        Times.
    clock : Clock
        Must run in real time.
    on_prediction : callable
        Called with what a report was answered with; None if it was not answered.
    neighbours : PredictionSource, optional
        The devices nearby.
    on_unknown : callable, optional
        Called if the edge does not know an object of this device: the catalogue has changed.
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
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._reports: deque[str] = deque(maxlen=MOST_REPORTS)
        self._open = False
        self._newest: tuple[str, float] = _NOTHING
        self.failures = 0
        """How often in a row the edge did not answer; 0: it is there, or there is none."""
        self._retry_s = -math.inf

    @property
    def edge_away(self) -> bool:
        """Whether no edge predicts at the moment."""
        return self._edge is None or self.failures > 0

    def get(self, object_id: str) -> Prediction | None:
        """What may follow an object, as far as it is known."""
        known = self._known.get(object_id)
        return known.prediction if known is not None else None

    def remember(self, object_id: str, prediction: Prediction) -> None:
        """The edge is there and predicted this."""
        self._edge_answers()
        now_s = self._clock.monotonic()
        self._keep(object_id, _Known(prediction, prediction.following, now_s))
        self._newest = (object_id, now_s)

    def report(self, object_id: str) -> None:
        """Tell the edge that the device recognised an object itself; it answers with what may follow.

        An object that the device goes on looking at is not reported with every photo.
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
            self._reports.clear()  # the edge is away; old steps are of no use to it later
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
            self._failed(outcome)
            self._on_prediction(None)
            self._ask_neighbours(object_id)
        else:
            newest = self._newest
            self.remember(object_id, outcome)
            if self._reports:
                self._newest = newest  # the device has moved on meanwhile
            self._on_prediction(outcome)
        self._send()

    def _edge_answers(self) -> None:
        if self.failures:
            self._log.info("the edge predicts again")
        self.failures = 0
        self._retry_s = -math.inf

    def _failed(self, error: NearsightError) -> None:
        self.failures += 1
        wait_s = min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(self.failures - 1, 16))
        self._retry_s = self._clock.monotonic() + wait_s
        self._newest = _NOTHING
        self._reports.clear()
        if self.failures == 1:
            self._log.info("no predictions from the edge for now", reason=str(error))

    def _keep(self, object_id: str, known: _Known) -> None:
        self._known[object_id] = known
        self._known.move_to_end(object_id)
        if len(self._known) > MOST_PREDICTIONS:
            self._known.popitem(last=False)

    def _ask_neighbours(self, object_id: str) -> bool:
        """Ask the devices nearby, if there are any; whether they were asked."""
        if self._neighbours is None:
            return False

        def answered(outcome: Prediction | NearsightError) -> None:
            if isinstance(outcome, NearsightError):
                self._log.debug("no prediction from devices nearby", reason=str(outcome))
                self._on_prediction(None)
            elif self.edge_away:
                known = self._with_edge(object_id, outcome)
                self._keep(object_id, known)
                self._on_prediction(known.prediction)

        future = self._neighbours.get_next_objects(object_id, self._settings.timeout_s)
        when_done(future, self._background, answered)
        return True

    def _with_edge(self, object_id: str, nearby: Prediction) -> _Known:
        """What devices nearby say, with what the edge said before, as far as that has not faded."""
        known = self._known.get(object_id)
        if known is None or known.of_edge is None:
            return _Known(nearby)
        weight = math.exp2((known.said_s - self._clock.monotonic()) / EDGE_HALF_LIFE_S)
        following = known.of_edge.mixed(nearby.following, weight).top(MOST_NEXT_OBJECTS)
        return replace(known, prediction=Prediction(following, revision=None))
