from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PingRequest(_message.Message):
    __slots__ = ("node_id", "endpoint", "incarnation")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    endpoint: str
    incarnation: int
    def __init__(self, node_id: _Optional[int] = ..., endpoint: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class PingResponse(_message.Message):
    __slots__ = ("node_id", "incarnation", "device_id", "keys", "store_bytes", "models")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    STORE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    incarnation: int
    device_id: str
    keys: int
    store_bytes: int
    models: int
    def __init__(self, node_id: _Optional[int] = ..., incarnation: _Optional[int] = ..., device_id: _Optional[str] = ..., keys: _Optional[int] = ..., store_bytes: _Optional[int] = ..., models: _Optional[int] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("node_id", "incarnation")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    incarnation: int
    def __init__(self, node_id: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class LeaveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("keys", "claim", "view")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    claim: bool
    view: int
    def __init__(self, keys: _Optional[_Iterable[str]] = ..., claim: _Optional[bool] = ..., view: _Optional[int] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("entries", "synchronised", "claims")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SYNCHRONISED_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[EntryMessage]
    synchronised: bool
    claims: _containers.RepeatedCompositeFieldContainer[ClaimMessage]
    def __init__(self, entries: _Optional[_Iterable[_Union[EntryMessage, _Mapping]]] = ..., synchronised: _Optional[bool] = ..., claims: _Optional[_Iterable[_Union[ClaimMessage, _Mapping]]] = ...) -> None: ...

class ClaimMessage(_message.Message):
    __slots__ = ("key", "wait_ms")
    KEY_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    key: str
    wait_ms: int
    def __init__(self, key: _Optional[str] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class WriteRequest(_message.Message):
    __slots__ = ("entries", "view", "only_if_room")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    ONLY_IF_ROOM_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[EntryMessage]
    view: int
    only_if_room: bool
    def __init__(self, entries: _Optional[_Iterable[_Union[EntryMessage, _Mapping]]] = ..., view: _Optional[int] = ..., only_if_room: _Optional[bool] = ...) -> None: ...

class WriteResponse(_message.Message):
    __slots__ = ("newer", "refused")
    NEWER_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    newer: _containers.RepeatedCompositeFieldContainer[EntryMessage]
    refused: _containers.RepeatedCompositeFieldContainer[RefusalMessage]
    def __init__(self, newer: _Optional[_Iterable[_Union[EntryMessage, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[RefusalMessage, _Mapping]]] = ...) -> None: ...

class RefusalMessage(_message.Message):
    __slots__ = ("key", "reason")
    KEY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    key: str
    reason: str
    def __init__(self, key: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class OfferRequest(_message.Message):
    __slots__ = ("entries", "node_id", "view", "complete", "ask")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[DigestMessage]
    node_id: int
    view: int
    complete: bool
    ask: bool
    def __init__(self, entries: _Optional[_Iterable[_Union[DigestMessage, _Mapping]]] = ..., node_id: _Optional[int] = ..., view: _Optional[int] = ..., complete: _Optional[bool] = ..., ask: _Optional[bool] = ...) -> None: ...

class DigestMessage(_message.Message):
    __slots__ = ("key", "digest")
    KEY_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    key: str
    digest: int
    def __init__(self, key: _Optional[str] = ..., digest: _Optional[int] = ...) -> None: ...

class OfferResponse(_message.Message):
    __slots__ = ("wanted",)
    WANTED_FIELD_NUMBER: _ClassVar[int]
    wanted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, wanted: _Optional[_Iterable[str]] = ...) -> None: ...

class StampMessage(_message.Message):
    __slots__ = ("counter", "writer")
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    counter: int
    writer: int
    def __init__(self, counter: _Optional[int] = ..., writer: _Optional[int] = ...) -> None: ...

class EntryMessage(_message.Message):
    __slots__ = ("key", "cleared", "time_left_ms", "register", "list", "counters", "renewed")
    KEY_FIELD_NUMBER: _ClassVar[int]
    CLEARED_FIELD_NUMBER: _ClassVar[int]
    TIME_LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    RENEWED_FIELD_NUMBER: _ClassVar[int]
    key: str
    cleared: StampMessage
    time_left_ms: int
    register: RegisterMessage
    list: ListMessage
    counters: CountersMessage
    renewed: StampMessage
    def __init__(self, key: _Optional[str] = ..., cleared: _Optional[_Union[StampMessage, _Mapping]] = ..., time_left_ms: _Optional[int] = ..., register: _Optional[_Union[RegisterMessage, _Mapping]] = ..., list: _Optional[_Union[ListMessage, _Mapping]] = ..., counters: _Optional[_Union[CountersMessage, _Mapping]] = ..., renewed: _Optional[_Union[StampMessage, _Mapping]] = ...) -> None: ...

class RegisterMessage(_message.Message):
    __slots__ = ("value", "stamp")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    stamp: StampMessage
    def __init__(self, value: _Optional[bytes] = ..., stamp: _Optional[_Union[StampMessage, _Mapping]] = ...) -> None: ...

class ListMessage(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ListItemMessage]
    def __init__(self, items: _Optional[_Iterable[_Union[ListItemMessage, _Mapping]]] = ...) -> None: ...

class ListItemMessage(_message.Message):
    __slots__ = ("value", "stamp", "removed")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    stamp: StampMessage
    removed: bool
    def __init__(self, value: _Optional[bytes] = ..., stamp: _Optional[_Union[StampMessage, _Mapping]] = ..., removed: _Optional[bool] = ...) -> None: ...

class CountersMessage(_message.Message):
    __slots__ = ("contributions",)
    CONTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    contributions: _containers.RepeatedCompositeFieldContainer[ContributionMessage]
    def __init__(self, contributions: _Optional[_Iterable[_Union[ContributionMessage, _Mapping]]] = ...) -> None: ...

class ContributionMessage(_message.Message):
    __slots__ = ("contributor", "began", "counts")
    class CountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CONTRIBUTOR_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    contributor: int
    began: StampMessage
    counts: _containers.ScalarMap[str, int]
    def __init__(self, contributor: _Optional[int] = ..., began: _Optional[_Union[StampMessage, _Mapping]] = ..., counts: _Optional[_Mapping[str, int]] = ...) -> None: ...

class GetPeersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PeersReport(_message.Message):
    __slots__ = ("node_id", "device_id", "endpoint", "peers", "facts")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    device_id: str
    endpoint: str
    peers: _containers.RepeatedCompositeFieldContainer[PeerMessage]
    facts: _containers.RepeatedCompositeFieldContainer[FactMessage]
    def __init__(self, node_id: _Optional[int] = ..., device_id: _Optional[str] = ..., endpoint: _Optional[str] = ..., peers: _Optional[_Iterable[_Union[PeerMessage, _Mapping]]] = ..., facts: _Optional[_Iterable[_Union[FactMessage, _Mapping]]] = ...) -> None: ...

class PeerMessage(_message.Message):
    __slots__ = ("node_id", "device_id", "endpoint", "state", "heard_s_ago", "present_s", "keys", "store_bytes", "models", "sent_bytes", "received_bytes", "round_trip_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HEARD_S_AGO_FIELD_NUMBER: _ClassVar[int]
    PRESENT_S_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    STORE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIP_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    device_id: str
    endpoint: str
    state: str
    heard_s_ago: float
    present_s: float
    keys: int
    store_bytes: int
    models: int
    sent_bytes: int
    received_bytes: int
    round_trip_ms: float
    def __init__(self, node_id: _Optional[int] = ..., device_id: _Optional[str] = ..., endpoint: _Optional[str] = ..., state: _Optional[str] = ..., heard_s_ago: _Optional[float] = ..., present_s: _Optional[float] = ..., keys: _Optional[int] = ..., store_bytes: _Optional[int] = ..., models: _Optional[int] = ..., sent_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ..., round_trip_ms: _Optional[float] = ...) -> None: ...

class FactMessage(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class AdaptedViewMessage(_message.Message):
    __slots__ = ("object_id", "version", "view", "features", "descriptors")
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTORS_FIELD_NUMBER: _ClassVar[int]
    object_id: str
    version: int
    view: int
    features: bytes
    descriptors: bytes
    def __init__(self, object_id: _Optional[str] = ..., version: _Optional[int] = ..., view: _Optional[int] = ..., features: _Optional[bytes] = ..., descriptors: _Optional[bytes] = ...) -> None: ...
