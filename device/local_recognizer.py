"""Recognition in the application's own process: a whole catalogue is the last stage."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from nearsight.common.background.progress import Progress
from nearsight.common.catalogue.answers import Listing
from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.object_recognizer import (
    MAX_QUERY_FEATURES,
    ObjectRecognizer,
    recognize_image,
)
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.request.answer import OBJECT, Answer, Lesson
from nearsight.common.request.effects import Stage
from nearsight.common.request.next_tiers import AskRules, NextTiers
from nearsight.common.result_cache.stage import ResultStage
from nearsight.device.base_recognizer import BaseRecognizer
from nearsight.device.engine import RecognizerObserver
from nearsight.device.local_catalogue import LocalCatalogue, from_database, from_folder
from nearsight.device.query import DeviceQuery, QueryContext
from nearsight.device.recognizer_settings import LocalSettings, UploadSettings


class WholeCatalogue:
    """All objects of a catalogue as the last stage; like a cloud, it looks up an unknown photo a second time.

    Parameters
    ----------
    recognizer : ObjectRecognizer
        With all objects.
    """

    grain = OBJECT

    def __init__(self, recognizer: ObjectRecognizer) -> None:
        self._recognizer = recognizer

    def features_wanted(self, query: DeviceQuery) -> int | None:
        """Always 0: each lookup extracts its own features."""
        del query
        return 0

    def look(self, query: DeviceQuery) -> RecognizedObject | None:
        """The object in the photo; None is unknown."""
        if isinstance(query.source, Features):
            return self._recognizer.recognize(query.source.strongest(MAX_QUERY_FEATURES)).found
        return recognize_image(query.source, self._recognizer, go_on=lambda: not query.one_look).found

    def learn(self, query: DeviceQuery, answer: Answer, lesson: Lesson | None) -> None:
        """No effect, because the stage has the whole catalogue."""


class LocalRecognizer(BaseRecognizer):
    """Recognises the objects of one catalogue in this process, without daemons and without a network.

    `BaseRecognizer` describes the requests. The answers are those of a cloud with the same catalogue.

    Parameters
    ----------
    source : str or path
        A folder of reference images, as for `nearsight cloud ingest`, or the database of a cloud. It is read
        once: later changes take effect in the next `LocalRecognizer`.
    catalogue : str
        Name of the catalogue in a database that holds several.
    index : str or path, optional
        For a folder: the database of trained models. Default: ``.nearsight.db`` in the folder.
    settings : LocalSettings
        Deadlines, limits, recognition.
    progress : callable, optional
        Called with the number of trained objects and their total while a folder is trained, which takes about
        0.2 s per image the first time. Without it, progress is logged.
    observer : RecognizerObserver, optional
        Receives every outcome; for metrics.
    clock : Clock
        Must run in real time.

    Raises
    ------
    NotFound, InvalidArgument
        If there is no such folder, file or catalogue, or no usable image.
    SetupError
        If a database cannot be used.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        catalogue: str = "",
        *,
        index: str | os.PathLike[str] | None = None,
        settings: LocalSettings | None = None,
        progress: Progress | None = None,
        observer: RecognizerObserver | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.settings = settings or LocalSettings()
        if not isinstance(self.settings, LocalSettings):
            raise TypeError(f"settings must be LocalSettings, not {type(settings).__name__}")
        recognition, path = self.settings.recognition, Path(source)
        if path.is_file():
            loaded = from_database(path, catalogue, recognition)
        else:
            loaded = from_folder(path, Path(index) if index else None, self.settings, clock, progress)
        self.object_ids = loaded.recognizer.object_ids
        """Ids of the objects in the catalogue."""
        limits = recognition.limits
        upload = UploadSettings(max_bytes=limits.max_bytes, max_pixels=limits.max_pixels)
        super().__init__(
            {},
            QueryContext(upload, clock, recognition),
            (*self._results(loaded, path.name, clock), WholeCatalogue(loaded.recognizer)),
            self.settings,
            NextTiers((), AskRules(), {}, recognition.query_features),
            () if observer is None else (observer,),
        )

    def _results(self, loaded: LocalCatalogue, name: str, clock: Clock) -> tuple[Stage[DeviceQuery], ...]:
        """The result cache, if it is enabled."""
        settings = self.settings.result_cache
        if not settings.enabled:
            return ()
        versions = {model.object_id: model.version for model in loaded.recognizer.models.values()}
        listing = Listing(versions, loaded.revision)
        return (ResultStage(name, lambda: listing, settings, clock, Random()),)
