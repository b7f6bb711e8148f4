"""The snapshot that answers (the Recognizer of figure 3.5): immutable, and replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterable

from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings


class SnapshotHolder:
    """Holds the snapshot that answers now.

    A request takes `snapshot` once and uses that one to its end: it always sees a complete model, whether a
    new one is swapped in meanwhile or not.

    Parameters
    ----------
    settings : RecognitionSettings
        The recognition pipeline.

    Raises
    ------
    ConfigurationError, MissingDependency
        If the backend does not exist or its library is missing.
    """

    def __init__(self, settings: RecognitionSettings) -> None:
        self._settings = settings
        self.snapshot = self.build(())
        """What answers now. Binding it is atomic: no lock stands between a request and its snapshot."""

    def build(self, models: Iterable[ObjectModel]) -> ObjectRecognizer:
        """Index these models, beside the snapshot that answers."""
        return ObjectRecognizer.build(models, self._settings)

    def swap(self, snapshot: ObjectRecognizer) -> None:
        """Answer from this snapshot from now on."""
        self.snapshot = snapshot
