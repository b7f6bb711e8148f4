"""The public surface of the SDK: removing a name breaks applications, so a test has to change with it."""

import subprocess
import sys

import pytest

import nearsight

PUBLIC = {
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
}


def test_the_public_names_are_these() -> None:
    assert set(nearsight.__all__) == PUBLIC


def test_every_public_name_can_be_imported() -> None:
    assert set(dir(nearsight)) >= PUBLIC
    assert all(getattr(nearsight, name) is not None for name in PUBLIC)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Recogniser"):
        _ = nearsight.Recogniser


def test_importing_the_package_loads_no_heavy_library() -> None:
    heavy = ("cv2", "numpy", "faiss", "zmq", "google.protobuf", "pydantic", "sklearn")
    code = f"import sys, nearsight; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
