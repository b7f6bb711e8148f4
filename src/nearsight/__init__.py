"""nearsight: recognise what a camera sees, near the person who holds it.

The public names of the SDK. They are imported at their first use, so that ``import nearsight`` and the help
of the command line load neither OpenCV nor ZeroMQ.
"""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from nearsight.common.errors import (
        CallerError,
        Cancelled,
        ConfigurationError,
        DeadlineExceeded,
        ImageTooLarge,
        InternalError,
        InvalidArgument,
        InvalidImage,
        NearsightError,
        NotFound,
        Overloaded,
        PeerError,
        StatusCode,
        Unauthenticated,
        Unavailable,
    )
    from nearsight.common.recognition.results import RecognizedObject
    from nearsight.common.request.answer import Attempt
    from nearsight.common.result_cache.approximate_key_cache import ApproximateKeyCache
    from nearsight.common.rpc.client import Hop
    from nearsight.common.rpc.security import ClientSecurity
    from nearsight.device.inference import Inference
    from nearsight.device.local_recognizer import LocalRecognizer
    from nearsight.device.peer_store import PeerStore
    from nearsight.device.peers.presence.peer import Peer
    from nearsight.device.peers.settings import PeerSettings
    from nearsight.device.recognition import Recognition, RequestHandle
    from nearsight.device.recognizer import Recognizer, RecognizerSecurity
    from nearsight.device.recognizer_settings import LocalSettings, PrefetchSettings, RecognizerSettings
    from nearsight.device.video.live_view import Done, StreamSettings
    from nearsight.device.video.result import VideoResult
    from nearsight.device.video.session import VideoSession
    from nearsight.device.video.settings import VideoSettings
    from nearsight.device.video.stream import LiveStream, StreamAnswer

__all__ = [
    "ApproximateKeyCache",
    "Attempt",
    "CallerError",
    "Cancelled",
    "ClientSecurity",
    "ConfigurationError",
    "DeadlineExceeded",
    "Done",
    "Hop",
    "ImageTooLarge",
    "Inference",
    "InternalError",
    "InvalidArgument",
    "InvalidImage",
    "LiveStream",
    "LocalRecognizer",
    "LocalSettings",
    "NearsightError",
    "NotFound",
    "Overloaded",
    "Peer",
    "PeerError",
    "PeerSettings",
    "PeerStore",
    "PrefetchSettings",
    "Recognition",
    "RecognizedObject",
    "Recognizer",
    "RecognizerSecurity",
    "RecognizerSettings",
    "RequestHandle",
    "StatusCode",
    "StreamAnswer",
    "StreamSettings",
    "Unauthenticated",
    "Unavailable",
    "VideoResult",
    "VideoSession",
    "VideoSettings",
    "__version__",
]

_ELSEWHERE = MappingProxyType(
    {
        "ApproximateKeyCache": "nearsight.common.result_cache.approximate_key_cache",
        "Attempt": "nearsight.common.request.answer",
        "ClientSecurity": "nearsight.common.rpc.security",
        "Done": "nearsight.device.video.live_view",
        "Hop": "nearsight.common.rpc.client",
        "Inference": "nearsight.device.inference",
        "LiveStream": "nearsight.device.video.stream",
        "LocalRecognizer": "nearsight.device.local_recognizer",
        "LocalSettings": "nearsight.device.recognizer_settings",
        "Peer": "nearsight.device.peers.presence.peer",
        "PeerSettings": "nearsight.device.peers.settings",
        "PeerStore": "nearsight.device.peer_store",
        "PrefetchSettings": "nearsight.device.recognizer_settings",
        "Recognition": "nearsight.device.recognition",
        "RecognizedObject": "nearsight.common.recognition.results",
        "Recognizer": "nearsight.device.recognizer",
        "RecognizerSecurity": "nearsight.device.recognizer",
        "RecognizerSettings": "nearsight.device.recognizer_settings",
        "RequestHandle": "nearsight.device.recognition",
        "StreamAnswer": "nearsight.device.video.stream",
        "StreamSettings": "nearsight.device.video.live_view",
        "VideoResult": "nearsight.device.video.result",
        "VideoSession": "nearsight.device.video.session",
        "VideoSettings": "nearsight.device.video.settings",
    }
)
"""Public name → module; the errors are in `nearsight.common.errors`."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'nearsight' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_ELSEWHERE.get(name, "nearsight.common.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
