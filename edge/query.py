"""A recognition request at the edge: a photo or its features, and the forms in which it can be passed on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Self

from nearsight.common.errors import InternalError, InvalidMessage
from nearsight.common.recognition.codec import features_from_proto, features_to_proto
from nearsight.common.recognition.extraction import extract_query
from nearsight.common.recognition.images import GrayImage, load_image
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.request.effects import Extract, Work
from nearsight.common.request.forms import FEATURES, IMAGE, Payload
from nearsight.common.request.next_tiers import BYTES_PER_FEATURE
from nearsight.common.result_cache.image_keys import THUMBNAIL_BYTES, pixels_of
from nearsight.common.result_cache.stage import KEY_SIDE_PX, LookState
from nearsight.common.rpc.service import CallContext
from nearsight.edge.settings import Forward
from nearsight.protos.recognition_pb2 import ImageInput, RecognizeRequest

Blob = bytes | memoryview


@dataclass(eq=False, repr=False)
class EdgeQuery:
    """A photo in the request flow of the edge; implements `Query`."""

    image: Blob | None
    """Content of an image file."""
    features: Features | None
    """Features; the query has either an image or features."""
    recognition: RecognitionSettings
    """Limits of images, and number of features to extract."""
    forward: Forward = "auto"
    """Form in which the query is passed on; ``auto``: the form with the lower expected latency."""
    _: KW_ONLY
    asked_again: bool = False
    """Whether this device just sent features of the photo, which the edge and the cloud did not know."""
    client: str = ""
    """Client that sent the photo."""
    thumbnail: bytes = b""
    """Thumbnail of the image, if the device sent one."""
    one_look: bool = False
    """Whether a second look at an unknown image is unnecessary."""
    only_image: bool = field(default=False, init=False)
    """Whether a network answers the query, which cannot use features."""
    extraction_ms: float = field(default=0.0, init=False)
    """Expected time of feature extraction [ms]."""
    overhead_ms: float = field(default=0.0, init=False)
    """Extra latency of the cloud's first answer without features [ms]; see `CatalogueCache`."""
    began_s: float = field(default=0.0, init=False)
    """Time at which the lookup started."""
    result_look: LookState | None = field(default=None, init=False)
    """Data of the result cache about this query."""
    has_image: bool = field(init=False)
    """Whether the request contains an image."""
    image_bytes: int = field(init=False)
    """Size of the image [bytes]; 0 if there is none."""
    features_bytes: int | None = field(init=False)
    """Size of its features on the network [bytes]; None if they are not extracted."""
    may_work: bool = field(init=False)
    """Whether the edge may compute for the query; otherwise it is passed on unchanged."""

    def __post_init__(self) -> None:
        self.has_image = self.image is not None
        self.image_bytes = len(self.image) if self.image is not None else 0
        self.features_bytes = len(self.features) * BYTES_PER_FEATURE if self.features is not None else None
        self.may_work = not self.asked_again

    @classmethod
    def of(
        cls,
        request: RecognizeRequest,
        context: CallContext,
        recognition: RecognitionSettings,
        forward: Forward = "auto",
    ) -> Self:
        """Read and check the content of a request.

        Raises
        ------
        InvalidArgument
            If the request has neither an image nor features, or they are malformed.
        """
        kind = request.WhichOneof("input")
        # A client may use another client's name, but it cannot use that client's key.
        client = f"{context.caller.key} {context.client_id}"
        if kind == "features":
            features = features_from_proto(request.features, context.blobs)
            return cls(None, features, recognition, forward, client=client)
        if kind == "image" and context.blobs:
            thumbnail = request.image.thumbnail
            if len(thumbnail) not in {0, THUMBNAIL_BYTES}:
                raise InvalidMessage(
                    f"a thumbnail has {THUMBNAIL_BYTES} bytes, this one has {len(thumbnail)}"
                )
            return cls(
                context.blobs[0],
                None,
                recognition,
                forward,
                asked_again=request.image.features_unknown,
                client=client,
                thumbnail=thumbnail,
                one_look=request.image.one_look,
            )
        raise InvalidMessage(
            "the request has neither features nor an image", advice="send an image as blob 0"
        )

    def extract(self) -> None:
        """Extract the features of the image.

        Raises
        ------
        InvalidImage, ImageTooLarge
            As in `load_image`.
        """
        if self.image is None:
            raise InternalError("a query without an image")
        self.features = extract_query(self.image, self.recognition)
        self.features_bytes = len(self.features) * BYTES_PER_FEATURE

    def payloads(self, features_bytes: int) -> Sequence[Payload]:
        """Possible forms; features that are not extracted yet are assumed to have the given size."""
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
            if payload.form == self.forward:
                return [payload]
        return there

    def missing(self, form: str) -> Work | None:
        """Work that is necessary to pass the query on in this form; None if there is none."""
        if form == FEATURES and self.features_bytes is None:
            return Extract(self.recognition.query_features)
        return None

    def missing_features(self, count: int) -> Work | None:
        """Work that is necessary before the cache can look up ``count`` features; None if there is none."""
        return Extract(count) if count and self.features_bytes is None else None

    def for_key(self) -> GrayImage | Features:
        """Input for a key of the result cache: the photo, scaled down, or its features if it has no image.

        Raises
        ------
        InvalidImage, ImageTooLarge
            As in `load_image`.
        """
        if self.thumbnail:
            cells = pixels_of(self.thumbnail)
            return GrayImage(cells, (cells.shape[1], cells.shape[0]))
        if self.image is not None:
            return load_image(self.image, replace(self.recognition.limits, longest_side=KEY_SIDE_PX))
        if self.features is None:
            raise InternalError("a query without a photo")
        return self.features

    def message(self, form: str, *, again: bool) -> tuple[RecognizeRequest, Sequence[Blob]]:
        """The request to the cloud; ``again`` if the features were unknown there."""
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
