"""The object model: the part of the trained model that recognises one object.

It is the unit that is cached at the edge, prefetched to devices, shared between them and persisted
(Cachier dissertation, section 2.1). Views are kept apart: a homography fits one view, never a mixture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.features import Features


@dataclass(frozen=True, slots=True, eq=False)
class ObjectModel:
    """Everything needed to recognise one object and to say what it is.

    Attributes
    ----------
    object_id : str
        Unique within a catalogue.
    label : str
        What a person calls the object.
    views : tuple of Features
        Features of each training image, apart from each other; at least one.
    version : int
        Grows by one with each replacement of the object.
    metadata : mapping of str to str
        Free-form, handed to the application with the answer.
    """

    object_id: str
    label: str
    views: tuple[Features, ...]
    version: int = 1
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.object_id:
            raise InvalidArgument("an object needs an id")
        if not self.views:
            raise InvalidArgument(f"object {self.object_id!r} has no view")

    @property
    def size_bytes(self) -> int:
        """Bytes of all views."""
        return sum(view.size_bytes for view in self.views)
