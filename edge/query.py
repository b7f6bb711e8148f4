"""What a request to the edge brought, and how it goes on to the cloud."""

from __future__ import annotations

from dataclasses import dataclass

from nearsight.common.caching.offload_choice import FEATURES, IMAGE
from nearsight.common.errors import InternalError, InvalidMessage
from nearsight.common.recognition.codec import features_from_proto, features_to_proto
from nearsight.common.recognition.extraction import FeatureExtractor
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.rpc.service import CallContext
from nearsight.edge.uplink import Uplink
from nearsight.protos.recognition_pb2 import ImageInput, RecognizeRequest

Blob = bytes | memoryview


@dataclass(slots=True)
class Query:
    """What a request brought: an image, features, or in the end both."""

    image: Blob | None
    features: Features | None
    asked_again: bool = False
    """Features of this photo were here a moment ago, and were unknown here and at the cloud."""


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A request to the cloud."""

    form: str
    request: RecognizeRequest
    blobs: list[Blob]

    @property
    def size_bytes(self) -> int:
        """Bytes of the photo in this form."""
        return sum(map(len, self.blobs))


class QueryReader:
    """Gets features out of requests.

    Parameters
    ----------
    extractor : FeatureExtractor
        For requests that bring an image.
    settings : RecognitionSettings
        Limits of images, and how many features.
    """

    def __init__(self, extractor: FeatureExtractor, settings: RecognitionSettings) -> None:
        self._extractor = extractor
        self._settings = settings

    def read(self, request: RecognizeRequest, context: CallContext) -> Query:
        """Read and check what the request brought.

        Raises
        ------
        InvalidArgument
            If there is neither an image nor features, or they are malformed.
        """
        kind = request.WhichOneof("input")
        if kind == "features":
            return Query(None, features_from_proto(request.features, context.blobs))
        if kind == "image" and context.blobs:
            return Query(context.blobs[0], None, request.image.features_unknown)
        raise InvalidMessage(
            "the request brings neither features nor an image", advice="send an image as blob 0"
        )

    def extract(self, image: Blob) -> Features:
        """The features of an image.

        Raises
        ------
        InvalidImage, ImageTooLarge
            See `load_image`.
        """
        return self._extractor.extract(
            load_image(image, self._settings.limits), self._settings.query_features
        )


def forwarded(query: Query, uplink: Uplink, extraction_ms: float | None) -> Forwarded:
    """The request to the cloud for a query; ``extraction_ms`` as in `Uplink.sends_features`.

    Its ``input`` is empty if the features must be extracted first.
    """
    if query.image is None and query.features is None:
        raise InternalError("a query without image and features")
    encoded = features_to_proto(query.features, 0) if query.features is not None else None
    image_bytes = None if query.image is None else len(query.image)
    features_bytes = None if encoded is None else sum(map(len, encoded[1]))
    if query.image is None or uplink.sends_features(image_bytes, features_bytes, extraction_ms):
        if encoded is None:
            return Forwarded(FEATURES, RecognizeRequest(), [])
        return Forwarded(FEATURES, RecognizeRequest(features=encoded[0]), list(encoded[1]))
    return forwarded_image(query.image, features_unknown=query.asked_again)


def forwarded_image(image: Blob, *, features_unknown: bool) -> Forwarded:
    """The request to the cloud with an image; say whether its features were unknown before."""
    content = ImageInput(size_bytes=len(image), features_unknown=features_unknown)
    return Forwarded(IMAGE, RecognizeRequest(image=content), [image])
