"""What the edge predicts: asked for, remembered per object, and remembered longer while the edge is away.

Everything here runs in the background thread.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable

from nearsight.common.background import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.rpc.client import Reply
from nearsight.device.edge_client import EdgeClient, Prediction, predicted_by, when_done
from nearsight.device.recognizer_settings import PrefetchSettings

MOST_PREDICTIONS = 64
"""Objects whose last known prediction is kept."""
MOST_REPORTS = 16
"""Recognised objects that wait to be reported to an edge that is slow."""

_NOTHING = ("", -math.inf)
_FIRST_RETRY_S, _LONGEST_RETRY_S = 1.0, 30.0


class Forecasts:
    """The last prediction for each object; reports to the edge what the device recognised itself.

    One report is on its way at a time, so that the edge sees the steps in their order.

    Parameters
    ----------
    client : EdgeClient
        The edge.
    background : BackgroundWorker
        Runs everything here.
    settings : PrefetchSettings
        Times.
    clock : Clock
        Must run in real time.
    heard : callable
        Told what a report was answered with; None if it was not answered.
    """

    def __init__(
        self,
        client: EdgeClient,
        background: BackgroundWorker,
        settings: PrefetchSettings,
        clock: Clock,
        heard: Callable[[Prediction | None], None],
    ) -> None:
        self._client = client
        self._background = background
        self._settings = settings
        self._clock = clock
        self._heard = heard
        self._log = get_logger("device.forecasts")
        self._predictions: OrderedDict[str, Prediction] = OrderedDict()
        self._reports: deque[str] = deque(maxlen=MOST_REPORTS)
        self._open = False
        self._newest: tuple[str, float] = _NOTHING
        self._failures = 0
        self._retry_s = -math.inf

    @property
    def failures(self) -> int:
        """How often in a row the edge did not answer; 0: it is there."""
        return self._failures

    def get(self, object_id: str) -> Prediction | None:
        """What may follow an object, as far as it is known."""
        return self._predictions.get(object_id)

    def remember(self, object_id: str, prediction: Prediction) -> None:
        """The edge is there and predicted this."""
        if self._failures:
            self._log.info("the edge predicts again")
        self._failures = 0
        self._retry_s = -math.inf
        self._predictions[object_id] = prediction
        self._predictions.move_to_end(object_id)
        if len(self._predictions) > MOST_PREDICTIONS:
            self._predictions.popitem(last=False)
        self._newest = (object_id, self._clock.monotonic())

    def report(self, object_id: str) -> None:
        """The device recognised an object itself: tell the edge, which answers with what may follow.

        Not for every photo of an object that the device goes on looking at.
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
        if self._clock.monotonic() < self._retry_s:
            self._reports.clear()  # it is away; old steps are of no use to it later
            self._newest = _NOTHING
            return
        object_id = self._reports.popleft()
        self._open = True
        future = self._client.get_next_objects(object_id, self._settings.timeout_s)
        when_done(future, self._background, lambda outcome: self._answered(object_id, outcome))

    def _answered(self, object_id: str, outcome: Reply | NearsightError) -> None:
        self._open = False
        try:
            if isinstance(outcome, NearsightError):
                raise outcome
            prediction = predicted_by(outcome)
        except NearsightError as error:
            self._failed(error)
            self._heard(None)
            return
        newest = self._newest
        self.remember(object_id, prediction)
        if self._reports:
            self._newest = newest  # the device has moved on meanwhile
        self._heard(prediction)
        self._send()

    def _failed(self, error: NearsightError) -> None:
        self._failures += 1
        wait_s = min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(self._failures - 1, 16))
        self._retry_s = self._clock.monotonic() + wait_s
        self._newest = _NOTHING
        self._reports.clear()
        if self._failures == 1:
            self._log.info("no predictions from the edge for now", reason=str(error))
