from nearsight.protos import recognition_pb2 as _recognition_pb2
from nearsight.protos import rpc_pb2 as _rpc_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetObjectModelsRequest(_message.Message):
    __slots__ = ("object_ids",)
    OBJECT_IDS_FIELD_NUMBER: _ClassVar[int]
    object_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, object_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GetObjectModelsResponse(_message.Message):
    __slots__ = ("models", "missing", "revision", "left_out")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ObjectModelMessage]
    missing: _containers.RepeatedScalarFieldContainer[str]
    revision: int
    left_out: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, models: _Optional[_Iterable[_Union[ObjectModelMessage, _Mapping]]] = ..., missing: _Optional[_Iterable[str]] = ..., revision: _Optional[int] = ..., left_out: _Optional[_Iterable[str]] = ...) -> None: ...

class ObjectModelMessage(_message.Message):
    __slots__ = ("object_id", "label", "version", "metadata", "views", "rivals")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class RivalsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    RIVALS_FIELD_NUMBER: _ClassVar[int]
    object_id: str
    label: str
    version: int
    metadata: _containers.ScalarMap[str, str]
    views: _containers.RepeatedCompositeFieldContainer[_recognition_pb2.FeaturesMessage]
    rivals: _containers.ScalarMap[str, int]
    def __init__(self, object_id: _Optional[str] = ..., label: _Optional[str] = ..., version: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ..., views: _Optional[_Iterable[_Union[_recognition_pb2.FeaturesMessage, _Mapping]]] = ..., rivals: _Optional[_Mapping[str, int]] = ...) -> None: ...

class ListObjectsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListObjectsResponse(_message.Message):
    __slots__ = ("objects", "revision")
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    objects: _containers.RepeatedCompositeFieldContainer[ObjectSummary]
    revision: int
    def __init__(self, objects: _Optional[_Iterable[_Union[ObjectSummary, _Mapping]]] = ..., revision: _Optional[int] = ...) -> None: ...

class ObjectSummary(_message.Message):
    __slots__ = ("object_id", "label", "version", "views", "model_bytes", "content_hash", "model_digest")
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    MODEL_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONTENT_HASH_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    object_id: str
    label: str
    version: int
    views: int
    model_bytes: int
    content_hash: str
    model_digest: bytes
    def __init__(self, object_id: _Optional[str] = ..., label: _Optional[str] = ..., version: _Optional[int] = ..., views: _Optional[int] = ..., model_bytes: _Optional[int] = ..., content_hash: _Optional[str] = ..., model_digest: _Optional[bytes] = ...) -> None: ...

class ListCataloguesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListCataloguesResponse(_message.Message):
    __slots__ = ("catalogues",)
    CATALOGUES_FIELD_NUMBER: _ClassVar[int]
    catalogues: _containers.RepeatedCompositeFieldContainer[CatalogueSummary]
    def __init__(self, catalogues: _Optional[_Iterable[_Union[CatalogueSummary, _Mapping]]] = ...) -> None: ...

class CatalogueSummary(_message.Message):
    __slots__ = ("name", "objects", "revision")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    name: str
    objects: int
    revision: int
    def __init__(self, name: _Optional[str] = ..., objects: _Optional[int] = ..., revision: _Optional[int] = ...) -> None: ...

class AddObjectsRequest(_message.Message):
    __slots__ = ("objects", "index_later", "allow_similar")
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    INDEX_LATER_FIELD_NUMBER: _ClassVar[int]
    ALLOW_SIMILAR_FIELD_NUMBER: _ClassVar[int]
    objects: _containers.RepeatedCompositeFieldContainer[NewObject]
    index_later: bool
    allow_similar: bool
    def __init__(self, objects: _Optional[_Iterable[_Union[NewObject, _Mapping]]] = ..., index_later: _Optional[bool] = ..., allow_similar: _Optional[bool] = ...) -> None: ...

class NewObject(_message.Message):
    __slots__ = ("object_id", "label", "metadata", "images")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    object_id: str
    label: str
    metadata: _containers.ScalarMap[str, str]
    images: int
    def __init__(self, object_id: _Optional[str] = ..., label: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., images: _Optional[int] = ...) -> None: ...

class AddObjectsResponse(_message.Message):
    __slots__ = ("added", "rejected", "revision", "replaced", "unchanged", "skipped")
    ADDED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    added: _containers.RepeatedScalarFieldContainer[str]
    rejected: _containers.RepeatedCompositeFieldContainer[RejectedObject]
    revision: int
    replaced: _containers.RepeatedScalarFieldContainer[str]
    unchanged: _containers.RepeatedScalarFieldContainer[str]
    skipped: _containers.RepeatedCompositeFieldContainer[SkippedImage]
    def __init__(self, added: _Optional[_Iterable[str]] = ..., rejected: _Optional[_Iterable[_Union[RejectedObject, _Mapping]]] = ..., revision: _Optional[int] = ..., replaced: _Optional[_Iterable[str]] = ..., unchanged: _Optional[_Iterable[str]] = ..., skipped: _Optional[_Iterable[_Union[SkippedImage, _Mapping]]] = ...) -> None: ...

class SkippedImage(_message.Message):
    __slots__ = ("object_id", "image", "reason")
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    object_id: str
    image: int
    reason: str
    def __init__(self, object_id: _Optional[str] = ..., image: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class RejectedObject(_message.Message):
    __slots__ = ("object_id", "reason", "twin")
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TWIN_FIELD_NUMBER: _ClassVar[int]
    object_id: str
    reason: str
    twin: str
    def __init__(self, object_id: _Optional[str] = ..., reason: _Optional[str] = ..., twin: _Optional[str] = ...) -> None: ...

class RemoveObjectsRequest(_message.Message):
    __slots__ = ("object_ids",)
    OBJECT_IDS_FIELD_NUMBER: _ClassVar[int]
    object_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, object_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RemoveObjectsResponse(_message.Message):
    __slots__ = ("removed", "missing", "revision")
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    removed: _containers.RepeatedScalarFieldContainer[str]
    missing: _containers.RepeatedScalarFieldContainer[str]
    revision: int
    def __init__(self, removed: _Optional[_Iterable[str]] = ..., missing: _Optional[_Iterable[str]] = ..., revision: _Optional[int] = ...) -> None: ...

class RemoveCatalogueRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveCatalogueResponse(_message.Message):
    __slots__ = ("objects",)
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    objects: int
    def __init__(self, objects: _Optional[int] = ...) -> None: ...
