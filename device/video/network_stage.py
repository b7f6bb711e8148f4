"""Stage that answers a stream's requests with a network on the device, which recomputes only what changed."""

from __future__ import annotations

import threading
from random import Random

from nearsight.common.catalogue.answers import Listing
from nearsight.common.clock import Clock
from nearsight.common.errors import InvalidArgument
from nearsight.common.inference.classification import label_of
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.request.answer import NETWORK, Answer, Lesson
from nearsight.common.request.effects import Stage
from nearsight.common.result_cache.settings import ResultCacheSettings
from nearsight.common.result_cache.stage import ResultStage
from nearsight.device.query import DeviceQuery
from nearsight.device.video.session import VideoSession


class SessionStage:
    """The network of one stream. If the network finds nothing, no further tier is asked. Thread-safe.

    Parameters
    ----------
    session : VideoSession
        Its network is in a repository and has labels. The caller keeps ownership, and must not use the
        session at the same time.

    Raises
    ------
    InvalidArgument
        If the network has no labels.
    """

    grain = NETWORK

    def __init__(self, session: VideoSession) -> None:
        if session.manifest is None or not session.manifest.labels:
            raise InvalidArgument(
                "the network of a stream needs labels, and this one has none",
                advice="nearsight models add FILE --labels FILE, then VideoSession(NAME, repository=FOLDER)",
            )
        self._session, self.manifest = session, session.manifest
        self._lock = threading.Lock()

    def features_wanted(self, query: DeviceQuery) -> int | None:
        """No features (0) if the query has an image, which this stage needs; else None."""
        return 0 if query.has_image else None

    def look(self, query: DeviceQuery) -> RecognizedObject | None:
        """The label of the frame; None if the confidence is too low. Sets the query's reused share."""
        pixels = query.colour().pixels
        with self._lock:
            result = self._session.run(pixels)
        query.reused = 1.0 - result.recomputed
        return label_of(next(iter(result.outputs.values())), self.manifest)

    def learn(self, query: DeviceQuery, answer: Answer, lesson: Lesson | None) -> None:
        """No effect: networks are trained elsewhere."""


def stages_of(
    session: VideoSession, results: ResultCacheSettings, clock: Clock
) -> tuple[Stage[DeviceQuery], ...]:
    """Stages that answer a stream's requests: the result cache, if enabled, then the network."""
    stage = SessionStage(session)
    if not results.enabled:
        return (stage,)
    manifest = stage.manifest
    listing = Listing(dict.fromkeys(manifest.labels, manifest.version), manifest.version)
    return ResultStage(manifest.name, lambda: listing, results, clock, Random()), stage
