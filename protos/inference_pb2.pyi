from nearsight.protos import rpc_pb2 as _rpc_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TensorMessage(_message.Message):
    __slots__ = ("name", "dtype", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class InferRequest(_message.Message):
    __slots__ = ("inputs", "exact")
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    inputs: _containers.RepeatedCompositeFieldContainer[TensorMessage]
    exact: bool
    def __init__(self, inputs: _Optional[_Iterable[_Union[TensorMessage, _Mapping]]] = ..., exact: _Optional[bool] = ...) -> None: ...

class InferResponse(_message.Message):
    __slots__ = ("outputs", "answered_by", "version", "network", "load_ms")
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    LOAD_MS_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.RepeatedCompositeFieldContainer[TensorMessage]
    answered_by: str
    version: int
    network: str
    load_ms: float
    def __init__(self, outputs: _Optional[_Iterable[_Union[TensorMessage, _Mapping]]] = ..., answered_by: _Optional[str] = ..., version: _Optional[int] = ..., network: _Optional[str] = ..., load_ms: _Optional[float] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ModelSummary]
    def __init__(self, models: _Optional[_Iterable[_Union[ModelSummary, _Mapping]]] = ...) -> None: ...

class ModelSummary(_message.Message):
    __slots__ = ("name", "manifest", "memory_bytes", "load_ms", "execution_ms", "resident", "problem", "tensors_only")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOAD_MS_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_MS_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    TENSORS_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    manifest: str
    memory_bytes: int
    load_ms: float
    execution_ms: float
    resident: bool
    problem: str
    tensors_only: bool
    def __init__(self, name: _Optional[str] = ..., manifest: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., load_ms: _Optional[float] = ..., execution_ms: _Optional[float] = ..., resident: _Optional[bool] = ..., problem: _Optional[str] = ..., tensors_only: _Optional[bool] = ...) -> None: ...

class GetModelChunkRequest(_message.Message):
    __slots__ = ("checksum", "offset", "length")
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    checksum: bytes
    offset: int
    length: int
    def __init__(self, checksum: _Optional[bytes] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class GetModelChunkResponse(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: int
    def __init__(self, digest: _Optional[int] = ...) -> None: ...

class GetEvictionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetEvictionsResponse(_message.Message):
    __slots__ = ("evictions",)
    EVICTIONS_FIELD_NUMBER: _ClassVar[int]
    evictions: _containers.RepeatedCompositeFieldContainer[EvictionMessage]
    def __init__(self, evictions: _Optional[_Iterable[_Union[EvictionMessage, _Mapping]]] = ...) -> None: ...

class EvictionMessage(_message.Message):
    __slots__ = ("age_s", "model", "score", "size_bytes", "load_ms", "made_room_for")
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOAD_MS_FIELD_NUMBER: _ClassVar[int]
    MADE_ROOM_FOR_FIELD_NUMBER: _ClassVar[int]
    age_s: float
    model: str
    score: float
    size_bytes: int
    load_ms: float
    made_room_for: str
    def __init__(self, age_s: _Optional[float] = ..., model: _Optional[str] = ..., score: _Optional[float] = ..., size_bytes: _Optional[int] = ..., load_ms: _Optional[float] = ..., made_room_for: _Optional[str] = ...) -> None: ...

class PutModelChunkRequest(_message.Message):
    __slots__ = ("checksum", "size_bytes", "offset", "digest")
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    checksum: bytes
    size_bytes: int
    offset: int
    digest: int
    def __init__(self, checksum: _Optional[bytes] = ..., size_bytes: _Optional[int] = ..., offset: _Optional[int] = ..., digest: _Optional[int] = ...) -> None: ...

class PutModelChunkResponse(_message.Message):
    __slots__ = ("done_bytes",)
    DONE_BYTES_FIELD_NUMBER: _ClassVar[int]
    done_bytes: int
    def __init__(self, done_bytes: _Optional[int] = ...) -> None: ...

class AddModelRequest(_message.Message):
    __slots__ = ("manifest",)
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    manifest: str
    def __init__(self, manifest: _Optional[str] = ...) -> None: ...

class AddModelResponse(_message.Message):
    __slots__ = ("manifest", "done", "use")
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    USE_FIELD_NUMBER: _ClassVar[int]
    manifest: str
    done: str
    use: str
    def __init__(self, manifest: _Optional[str] = ..., done: _Optional[str] = ..., use: _Optional[str] = ...) -> None: ...

class RemoveModelRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveModelResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
