"""All descriptors of all views in one array, with the way back from a row to object, view and keypoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.features import DESCRIPTOR_BYTES
from nearsight.common.recognition.models import ObjectModel


@dataclass(frozen=True, slots=True, eq=False)
class DescriptorTable:
    """Rows are descriptors.

    Attributes
    ----------
    object_ids : tuple of str, (O,)
    views : tuple of (int, int), (V,)
        Object index and index of the view within its object.
    descriptors : ndarray, (M, 32) uint8
    object_of_row, view_of_row, index_in_view : ndarray, (M,) int32
        Index into ``object_ids``, into ``views``, and of the feature within its view.
    """

    object_ids: tuple[str, ...]
    views: tuple[tuple[int, int], ...]
    descriptors: NDArray[np.uint8]
    object_of_row: NDArray[np.int32]
    view_of_row: NDArray[np.int32]
    index_in_view: NDArray[np.int32]

    @classmethod
    def of(cls, models: Sequence[ObjectModel]) -> DescriptorTable:
        """The table of these models, in their order."""
        views = [(index, view) for index, model in enumerate(models) for view in range(len(model.views))]
        blocks = [models[index].views[view].descriptors for index, view in views]
        sizes = np.array([len(block) for block in blocks], np.int64)
        view_of_row = np.repeat(np.arange(len(views), dtype=np.int32), sizes)
        object_of_view = np.array([index for index, _ in views], np.int32)
        return cls(
            object_ids=tuple(model.object_id for model in models),
            views=tuple(views),
            descriptors=np.concatenate([np.empty((0, DESCRIPTOR_BYTES), np.uint8), *blocks]),
            object_of_row=object_of_view[view_of_row],
            view_of_row=view_of_row,
            index_in_view=np.concatenate(
                [np.empty(0, np.int32), *(np.arange(n, dtype=np.int32) for n in sizes)]
            ),
        )
