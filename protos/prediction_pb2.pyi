from nearsight.protos import recognition_pb2 as _recognition_pb2
from nearsight.protos import rpc_pb2 as _rpc_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetNextObjectsRequest(_message.Message):
    __slots__ = ("current_object_id",)
    CURRENT_OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    current_object_id: str
    def __init__(self, current_object_id: _Optional[str] = ...) -> None: ...

class GetNextObjectsResponse(_message.Message):
    __slots__ = ("next_objects", "answer_ms")
    NEXT_OBJECTS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_MS_FIELD_NUMBER: _ClassVar[int]
    next_objects: _recognition_pb2.NextObjectsMessage
    answer_ms: float
    def __init__(self, next_objects: _Optional[_Union[_recognition_pb2.NextObjectsMessage, _Mapping]] = ..., answer_ms: _Optional[float] = ...) -> None: ...
