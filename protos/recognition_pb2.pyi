from nearsight.protos import rpc_pb2 as _rpc_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RecognizeRequest(_message.Message):
    __slots__ = ("image", "features")
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    image: ImageInput
    features: FeaturesMessage
    def __init__(self, image: _Optional[_Union[ImageInput, _Mapping]] = ..., features: _Optional[_Union[FeaturesMessage, _Mapping]] = ...) -> None: ...

class ImageInput(_message.Message):
    __slots__ = ("size_bytes", "features_unknown", "thumbnail", "one_look")
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FEATURES_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    THUMBNAIL_FIELD_NUMBER: _ClassVar[int]
    ONE_LOOK_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    features_unknown: bool
    thumbnail: bytes
    one_look: bool
    def __init__(self, size_bytes: _Optional[int] = ..., features_unknown: _Optional[bool] = ..., thumbnail: _Optional[bytes] = ..., one_look: _Optional[bool] = ...) -> None: ...

class FeaturesMessage(_message.Message):
    __slots__ = ("count", "image_width", "image_height", "source_width", "source_height", "first_blob")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    IMAGE_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    FIRST_BLOB_FIELD_NUMBER: _ClassVar[int]
    count: int
    image_width: int
    image_height: int
    source_width: int
    source_height: int
    first_blob: int
    def __init__(self, count: _Optional[int] = ..., image_width: _Optional[int] = ..., image_height: _Optional[int] = ..., source_width: _Optional[int] = ..., source_height: _Optional[int] = ..., first_blob: _Optional[int] = ...) -> None: ...

class RecognizeResponse(_message.Message):
    __slots__ = ("object", "answered_by", "next_objects", "grain", "thumbnail_wanted")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BY_FIELD_NUMBER: _ClassVar[int]
    NEXT_OBJECTS_FIELD_NUMBER: _ClassVar[int]
    GRAIN_FIELD_NUMBER: _ClassVar[int]
    THUMBNAIL_WANTED_FIELD_NUMBER: _ClassVar[int]
    object: RecognizedObjectMessage
    answered_by: str
    next_objects: NextObjectsMessage
    grain: str
    thumbnail_wanted: bool
    def __init__(self, object: _Optional[_Union[RecognizedObjectMessage, _Mapping]] = ..., answered_by: _Optional[str] = ..., next_objects: _Optional[_Union[NextObjectsMessage, _Mapping]] = ..., grain: _Optional[str] = ..., thumbnail_wanted: _Optional[bool] = ...) -> None: ...

class NextObjectsMessage(_message.Message):
    __slots__ = ("object_ids", "probabilities", "remaining", "revision")
    OBJECT_IDS_FIELD_NUMBER: _ClassVar[int]
    PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    object_ids: _containers.RepeatedScalarFieldContainer[str]
    probabilities: _containers.RepeatedScalarFieldContainer[float]
    remaining: float
    revision: int
    def __init__(self, object_ids: _Optional[_Iterable[str]] = ..., probabilities: _Optional[_Iterable[float]] = ..., remaining: _Optional[float] = ..., revision: _Optional[int] = ...) -> None: ...

class RecognizedObjectMessage(_message.Message):
    __slots__ = ("object_id", "label", "version", "confidence", "inliers", "corners", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    INLIERS_FIELD_NUMBER: _ClassVar[int]
    CORNERS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    object_id: str
    label: str
    version: int
    confidence: float
    inliers: int
    corners: _containers.RepeatedCompositeFieldContainer[Point]
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, object_id: _Optional[str] = ..., label: _Optional[str] = ..., version: _Optional[int] = ..., confidence: _Optional[float] = ..., inliers: _Optional[int] = ..., corners: _Optional[_Iterable[_Union[Point, _Mapping]]] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Point(_message.Message):
    __slots__ = ("x", "y")
    X_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    x: float
    y: float
    def __init__(self, x: _Optional[float] = ..., y: _Optional[float] = ...) -> None: ...
