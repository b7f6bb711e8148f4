from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExplainRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("decisions", "networks")
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    NETWORKS_FIELD_NUMBER: _ClassVar[int]
    decisions: _containers.RepeatedCompositeFieldContainer[ExplainedDecision]
    networks: _containers.RepeatedCompositeFieldContainer[Fact]
    def __init__(self, decisions: _Optional[_Iterable[_Union[ExplainedDecision, _Mapping]]] = ..., networks: _Optional[_Iterable[_Union[Fact, _Mapping]]] = ...) -> None: ...

class ExplainedDecision(_message.Message):
    __slots__ = ("catalogue", "age_s", "chosen", "alternatives", "k_max", "why", "object_ids", "facts")
    CATALOGUE_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    K_MAX_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBJECT_IDS_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    catalogue: str
    age_s: float
    chosen: LatencyTermsMessage
    alternatives: _containers.RepeatedCompositeFieldContainer[LatencyTermsMessage]
    k_max: int
    why: str
    object_ids: _containers.RepeatedScalarFieldContainer[str]
    facts: _containers.RepeatedCompositeFieldContainer[Fact]
    def __init__(self, catalogue: _Optional[str] = ..., age_s: _Optional[float] = ..., chosen: _Optional[_Union[LatencyTermsMessage, _Mapping]] = ..., alternatives: _Optional[_Iterable[_Union[LatencyTermsMessage, _Mapping]]] = ..., k_max: _Optional[int] = ..., why: _Optional[str] = ..., object_ids: _Optional[_Iterable[str]] = ..., facts: _Optional[_Iterable[_Union[Fact, _Mapping]]] = ...) -> None: ...

class LatencyTermsMessage(_message.Message):
    __slots__ = ("k", "features", "lookup_ms", "recall", "cached_probability", "miss_ms", "expected_ms")
    K_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_MS_FIELD_NUMBER: _ClassVar[int]
    RECALL_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    MISS_MS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_MS_FIELD_NUMBER: _ClassVar[int]
    k: int
    features: int
    lookup_ms: float
    recall: float
    cached_probability: float
    miss_ms: float
    expected_ms: float
    def __init__(self, k: _Optional[int] = ..., features: _Optional[int] = ..., lookup_ms: _Optional[float] = ..., recall: _Optional[float] = ..., cached_probability: _Optional[float] = ..., miss_ms: _Optional[float] = ..., expected_ms: _Optional[float] = ...) -> None: ...

class Fact(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
