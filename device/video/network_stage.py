"""A network on the device as a stage of a stream's questions: it computes again only what changed."""

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
    """The network of one stream. Its unknown is final. Thread-safe.

    Parameters
    ----------
    session : VideoSession
        Of a network of a repository, with labels. It stays the caller's, who does not use it meanwhile.

    Raises
    ------
    InvalidArgument
        If it names nothing.
    """

    grain = NETWORK

    def __init__(self, session: VideoSession) -> None:
        if session.manifest is None or not session.manifest.labels:
            raise InvalidArgument(
                "the network of a stream has no labels, so it names nothing",
                advice="nearsight models add FILE --labels FILE, then VideoSession(NAME, repository=FOLDER)",
            )
        self._session, self.manifest = session, session.manifest
        self._lock = threading.Lock()

    def features_wanted(self, query: DeviceQuery) -> int | None:
        """It needs the frame, and no features."""
        return 0 if query.has_image else None

    def look(self, query: DeviceQuery) -> RecognizedObject | None:
        """The label of the frame; None if the network is not confident. Notes what share was reused."""
        pixels = query.colour().pixels
        with self._lock:
            result = self._session.run(pixels)
        query.reused = 1.0 - result.recomputed
        return label_of(next(iter(result.outputs.values())), self.manifest)

    def learn(self, query: DeviceQuery, answer: Answer, lesson: Lesson | None) -> None:
        """Nothing: a network is trained elsewhere."""


def stages_of(
    session: VideoSession, results: ResultCacheSettings, clock: Clock
) -> tuple[Stage[DeviceQuery], ...]:
    """What answers the questions of such a stream: the result cache, if it is on, then the network."""
    stage = SessionStage(session)
    if not results.enabled:
        return (stage,)
    manifest = stage.manifest
    listing = Listing(dict.fromkeys(manifest.labels, manifest.version), manifest.version)
    return ResultStage(manifest.name, lambda: listing, results, clock, Random()), stage
