from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Access(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NO_CATALOGUE: _ClassVar[Access]
    READS_CATALOGUE: _ClassVar[Access]
    CHANGES_CATALOGUE: _ClassVar[Access]

class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OK: _ClassVar[Status]
    INVALID_ARGUMENT: _ClassVar[Status]
    NOT_FOUND: _ClassVar[Status]
    DEADLINE_EXCEEDED: _ClassVar[Status]
    OVERLOADED: _ClassVar[Status]
    UNAVAILABLE: _ClassVar[Status]
    UNAUTHENTICATED: _ClassVar[Status]
    INTERNAL: _ClassVar[Status]
    PERMISSION_DENIED: _ClassVar[Status]
NO_CATALOGUE: Access
READS_CATALOGUE: Access
CHANGES_CATALOGUE: Access
OK: Status
INVALID_ARGUMENT: Status
NOT_FOUND: Status
DEADLINE_EXCEEDED: Status
OVERLOADED: Status
UNAVAILABLE: Status
UNAUTHENTICATED: Status
INTERNAL: Status
PERMISSION_DENIED: Status
ACCESS_FIELD_NUMBER: _ClassVar[int]
access: _descriptor.FieldDescriptor

class RequestHeader(_message.Message):
    __slots__ = ("protocol", "request_id", "service", "method", "time_left_ms", "client_id", "catalogue", "trace_id", "message")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    TIME_LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CATALOGUE_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    request_id: int
    service: str
    method: str
    time_left_ms: int
    client_id: str
    catalogue: str
    trace_id: str
    message: bytes
    def __init__(self, protocol: _Optional[int] = ..., request_id: _Optional[int] = ..., service: _Optional[str] = ..., method: _Optional[str] = ..., time_left_ms: _Optional[int] = ..., client_id: _Optional[str] = ..., catalogue: _Optional[str] = ..., trace_id: _Optional[str] = ..., message: _Optional[bytes] = ...) -> None: ...

class ResponseHeader(_message.Message):
    __slots__ = ("protocol", "request_id", "status", "error", "advice", "hops", "message", "retry_after_ms")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    request_id: int
    status: Status
    error: str
    advice: str
    hops: _containers.RepeatedCompositeFieldContainer[Hop]
    message: bytes
    retry_after_ms: int
    def __init__(self, protocol: _Optional[int] = ..., request_id: _Optional[int] = ..., status: _Optional[_Union[Status, str]] = ..., error: _Optional[str] = ..., advice: _Optional[str] = ..., hops: _Optional[_Iterable[_Union[Hop, _Mapping]]] = ..., message: _Optional[bytes] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class Hop(_message.Message):
    __slots__ = ("tier", "queue_ms", "compute_ms", "next_tier_ms", "received_bytes", "sent_bytes")
    TIER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_TIER_MS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    tier: str
    queue_ms: float
    compute_ms: float
    next_tier_ms: float
    received_bytes: int
    sent_bytes: int
    def __init__(self, tier: _Optional[str] = ..., queue_ms: _Optional[float] = ..., compute_ms: _Optional[float] = ..., next_tier_ms: _Optional[float] = ..., received_bytes: _Optional[int] = ..., sent_bytes: _Optional[int] = ...) -> None: ...
