"""What a request to the edge brought: a photo or its features, and the forms in which it can go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nearsight.common.errors import InternalError, InvalidMessage
from nearsight.common.recognition.codec import features_from_proto, features_to_proto
from nearsight.common.recognition.extraction import FeatureExtractor
from nearsight.common.recognition.images import GrayImage, load_image
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.settings import ImageLimits, RecognitionSettings
from nearsight.common.request.effects import Extract, Work
from nearsight.common.request.forms import FEATURES, IMAGE, Payload
from nearsight.common.request.next_tiers import BYTES_PER_FEATURE
from nearsight.common.result_cache.image_keys import THUMBNAIL_BYTES, pixels_of
from nearsight.common.result_cache.stage import KEY_SIDE_PX, Looked
from nearsight.common.rpc.service import CallContext
from nearsight.edge.settings import Forward
from nearsight.protos.recognition_pb2 import ImageInput, RecognizeRequest

Blob = bytes | memoryview


class EdgeQuery:
    """A photo on its way through the edge: a `Query` of the request flow.

    Parameters
    ----------
    image : bytes or memoryview, optional
        An image file.
    features : Features, optional
        One of the two is there.
    query_features : int
        As many as are extracted of an image.
    forward : {"auto", "features", "image"}
        The form in which it goes on; ``auto``: the one that is expected to be answered sooner.
    asked_again : bool
        Features of this photo were here a moment ago, and were unknown here and at the cloud.
    limits : ImageLimits
        Of the image.
    client : str
        Whose photo it is.
    """

    def __init__(
        self,
        image: Blob | None,
        features: Features | None,
        query_features: int,
        forward: Forward = "auto",
        *,
        asked_again: bool = False,
        limits: ImageLimits | None = None,
        client: str = "",
    ) -> None:
        self.image = image
        self.features = features
        self.has_image = image is not None
        """Whether it came as an image."""
        self.image_bytes = len(image) if image is not None else 0
        """Size of the image; 0 if there is none."""
        self.features_bytes = len(features) * BYTES_PER_FEATURE if features is not None else None
        """Size of its features on the network; None if they are not here."""
        self.asked_again = asked_again
        self.may_work = not asked_again
        """Whether the edge may compute for it; else it is passed on as it is."""
        self.extraction_ms = 0.0
        """What its features would cost."""
        self.overhead_ms = 0.0
        """How much longer the cloud's first answer takes because they are not here: see `CatalogueCache`."""
        self.began_s = 0.0
        """When work for a look began."""
        self.result_look: Looked | None = None
        """What the result cache keeps with the query."""
        self.thumbnail = b""
        """Of the image, if its device made one."""
        self.one_look = False
        """Nobody need look again if it is unknown at first."""
        self.only_image = False
        """A network answers it, which looks at no features."""
        self._query_features = query_features
        self._forward = forward
        self._limits = limits
        self.client = client

    def payloads(self, features_bytes: int) -> Sequence[Payload]:
        """The forms in which it could go on; features that are not there yet have the given size."""
        there = []
        if self.only_image:
            return [Payload(IMAGE, self.image_bytes)]
        if self.features_bytes is not None:
            there.append(Payload(FEATURES, self.features_bytes))
        elif self.may_work:
            there.append(Payload(FEATURES, features_bytes, self.extraction_ms))
        if self.has_image:
            there.append(Payload(IMAGE, self.image_bytes))
        for payload in there:
            if payload.form == self._forward:
                return [payload]
        return there

    def missing(self, form: str) -> Work | None:
        """What must be done before it can go on in this form."""
        return Extract(self._query_features) if form == FEATURES and self.features_bytes is None else None

    def missing_features(self, count: int) -> Work | None:
        """What must be done before the cache can look at so many features."""
        return Extract(count) if count and self.features_bytes is None else None

    def for_key(self) -> GrayImage | Features:
        """The photo, shrunk, by the device or here; its features where it came as features.

        Raises
        ------
        InvalidImage, ImageTooLarge
            See `load_image`.
        """
        if self.thumbnail:
            cells = pixels_of(self.thumbnail)
            return GrayImage(cells, (cells.shape[1], cells.shape[0]))
        if self.image is not None:
            return load_image(self.image, replace(self._limits or ImageLimits(), longest_side=KEY_SIDE_PX))
        if self.features is None:
            raise InternalError("a query without a photo")
        return self.features

    def message(self, form: str, *, again: bool) -> tuple[RecognizeRequest, Sequence[Blob]]:
        """The request to the cloud; ``again`` if its features were unknown there."""
        if form == FEATURES and self.features is not None:
            features, blobs = features_to_proto(self.features, 0)
            return RecognizeRequest(features=features), blobs
        if form == FEATURES or self.image is None:
            raise InternalError(f"a query is not ready to be sent as {form}")
        image = ImageInput(
            size_bytes=self.image_bytes,
            features_unknown=again or self.asked_again,
            one_look=self.one_look,
        )
        return RecognizeRequest(image=image), [self.image]


class QueryReader:
    """Gets queries out of requests, and features out of images.

    Parameters
    ----------
    extractor : FeatureExtractor
        For requests that bring an image.
    settings : RecognitionSettings
        Limits of images, and how many features.
    forward : {"auto", "features", "image"}
        Of all queries.
    """

    def __init__(
        self, extractor: FeatureExtractor, settings: RecognitionSettings, forward: Forward = "auto"
    ) -> None:
        self._extractor = extractor
        self._settings = settings
        self._forward = forward

    @property
    def limits(self) -> ImageLimits:
        """Of images."""
        return self._settings.limits

    def read(self, request: RecognizeRequest, context: CallContext) -> EdgeQuery:
        """Read and check what the request brought.

        Raises
        ------
        InvalidArgument
            If there is neither an image nor features, or they are malformed.
        """
        kind, count = request.WhichOneof("input"), self._settings.query_features
        # A client may call itself like another one; it cannot prove to own the other's key.
        client = f"{context.peer_key or ''} {context.client_id}"
        if kind == "features":
            features = features_from_proto(request.features, context.blobs)
            return EdgeQuery(None, features, count, self._forward, client=client)
        if kind == "image" and context.blobs:
            again, thumbnail = request.image.features_unknown, request.image.thumbnail
            if len(thumbnail) not in {0, THUMBNAIL_BYTES}:
                raise InvalidMessage(
                    f"a thumbnail has {THUMBNAIL_BYTES} bytes, this one has {len(thumbnail)}"
                )
            query = EdgeQuery(
                context.blobs[0],
                None,
                count,
                self._forward,
                asked_again=again,
                limits=self._settings.limits,
                client=client,
            )
            query.thumbnail, query.one_look = thumbnail, request.image.one_look
            return query
        raise InvalidMessage(
            "the request brings neither features nor an image", advice="send an image as blob 0"
        )

    def extract(self, query: EdgeQuery) -> None:
        """Extract the features of its image.

        Raises
        ------
        InvalidImage, ImageTooLarge
            See `load_image`.
        """
        if query.image is None:
            raise InternalError("a query without an image")
        pixels = load_image(query.image, self._settings.limits)
        query.features = self._extractor.extract(pixels, self._settings.query_features)
        query.features_bytes = len(query.features) * BYTES_PER_FEATURE
