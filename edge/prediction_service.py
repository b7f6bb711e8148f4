"""Prediction as the edge serves it: a device says what it recognised by itself, and hears what may follow."""

from __future__ import annotations

from typing import ClassVar

from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.common.object_cache.codec import next_objects_to_proto
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.common.rpc.service import CallContext, Service
from nearsight.edge.catalogue_caches import CatalogueCaches
from nearsight.edge.load import LoadControl
from nearsight.protos import prediction_pb2
from nearsight.protos.prediction_pb2 import GetNextObjectsRequest, GetNextObjectsResponse


class PredictionService(Service):
    """The Prediction service of the edge (dissertation, section 4.6, "cache hit").

    Parameters
    ----------
    caches : CatalogueCaches
        The recognition caches, which learn.
    load : LoadControl
        Knows what a photo takes at present.
    """

    descriptor: ClassVar[ServiceDescriptor] = prediction_pb2.DESCRIPTOR.services_by_name["Prediction"]

    def __init__(self, caches: CatalogueCaches, load: LoadControl) -> None:
        self._caches = caches
        self._load = load

    def get_next_objects(
        self, request: GetNextObjectsRequest, context: CallContext
    ) -> GetNextObjectsResponse:
        """Count a request that the device answered itself, and predict; nothing for a new catalogue."""
        if not request.current_object_id:
            raise InvalidArgument("the device does not say what it recognised")
        cache = self._caches.get(context.catalogue)
        if cache is None:
            self._caches.admit(context.catalogue)
            return GetNextObjectsResponse(next_objects=next_objects_to_proto(NextObjects.nothing(), 0))
        following = cache.note_device_hit(context.client_id, request.current_object_id)
        if following is None:
            raise NotFound(
                f"catalogue {context.catalogue!r} has no object {request.current_object_id!r}",
                advice="forget its model: it was removed, or this edge does not know it yet",
            )
        return GetNextObjectsResponse(
            next_objects=next_objects_to_proto(following, cache.revision),
            answer_ms=answer_ms(context.queue_ms, self._load, cache.size),
        )


def answer_ms(queue_ms: float, load: LoadControl, size: int) -> float:
    """What a photo takes at this edge at present, from its arrival to the answer, without the tiers behind.

    Parameters
    ----------
    queue_ms : float
        How long this report has waited for a worker, in the queue in which photos wait, too: so it is the
        wait of now, none where nobody else asks.
    load : LoadControl
        What the last photos took, without the crowd that they came with if that is gone.
    size : int
        Objects in the cache.

    Returns
    -------
    float
        0: not known, as nothing is looked up here, or nobody asked yet.
    """
    compute_ms = load.compute_ms() if size else None
    return 0.0 if compute_ms is None else queue_ms + compute_ms
