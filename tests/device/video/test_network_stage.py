"""Streams with a network on the device: the gate, the result cache, and the network with reuse."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from nearsight.common.errors import InternalError, InvalidArgument, NearsightError
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.repository import ModelRepository, manifest_of_file
from nearsight.common.result_cache.settings import ResultCacheSettings
from nearsight.device import base_recognizer
from nearsight.device.recognizer import Recognizer
from nearsight.device.video.live_view import Done, StreamSettings
from nearsight.device.video.result import VideoResult
from nearsight.device.video.session import VideoSession
from nearsight.device.video.stream import LiveStream, StreamAnswer
from support.camera import frame
from support.networks import COLOURS, colour_network, photo_of
from support.recognizers import NOBODY, QUICK, Scene
from support.waiting import LONG_S, wait_until

SEEN, OTHER = frame(1), frame(2)
MANIFEST = Manifest("small", 3, 1, "0" * 64, labels=("dark", "cat"))
CACHING = QUICK.model_copy(update={"result_cache": ResultCacheSettings(enabled=True)})


class ScriptedSession(VideoSession):
    """A network that recognises a cat, and reuses three quarters of all frames after the first."""

    def __init__(self, manifest: Manifest | None = MANIFEST) -> None:
        self.manifest = manifest
        self.shapes: list[tuple[int, ...]] = []
        self.scores: Sequence[float] = (0.1, 0.9)
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def run(self, frame: NDArray[np.uint8]) -> VideoResult:
        """Answer with the scores of the test."""
        self.shapes.append(frame.shape)
        assert self.gate.wait(LONG_S)
        if self.error is not None:
            raise self.error
        outputs = {"scores": np.array([self.scores], np.float32)}
        recomputed = 0.25 if len(self.shapes) > 1 else 1.0
        nothing = np.zeros((1, 1), np.bool_)
        return VideoResult(0, outputs, "", 0.0, recomputed, (0, 0), nothing, 0.0, 0.0, None)


def until_answered(stream: LiveStream, image: NDArray[np.uint8]) -> StreamAnswer:
    """Push a frame until there is an answer or an error."""
    first, found = stream.push(image).number, list[StreamAnswer]()

    def is_there() -> bool:
        answer = stream.push(image)
        found.append(answer)
        return answer.error is not None or (answer.asked is not None and answer.asked >= first)

    wait_until(is_there, what="an answer")
    return found[-1]


@pytest.fixture
def recognizer(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Recognizer:
    """A recognizer without tiers, whose streams wait for answers on slow machines too."""
    monkeypatch.setattr(base_recognizer, "StreamSettings", partial(StreamSettings, timeout_s=LONG_S))
    return scene.recognizer(NOBODY)


def test_a_network_on_the_device_classifies_frames_and_no_tier_is_asked(
    recognizer: Recognizer, tmp_path: Path
) -> None:
    path = colour_network(tmp_path / "colours.onnx")
    ModelRepository(tmp_path / "models").add(path, replace(manifest_of_file(path, "colours"), labels=COLOURS))
    with (
        VideoSession("colours", repository=tmp_path / "models", folder=tmp_path / "segments") as session,
        recognizer.stream(network=session) as stream,
    ):
        answers = [until_answered(stream, photo_of(name)).recognition for name in ("red", "grey", "blue")]
    assert [one and one.label for one in answers] == ["red", "", "blue"]
    for answer in answers:
        assert answer is not None
        assert (answer.grain, answer.answered_by, answer.attempts) == ("network", "device", ())
    assert answers[0] is not None and 0.5 < answers[0].confidence <= 1


def test_answers_contain_the_reused_share_of_the_network(recognizer: Recognizer) -> None:
    with recognizer.stream(network=ScriptedSession()) as stream:
        shares = [until_answered(stream, one).recognition.reused for one in (SEEN, OTHER)]  # type: ignore[union-attr]
    assert shares == [0.0, 0.75]


def test_the_network_processes_one_frame_and_no_other_waits(recognizer: Recognizer) -> None:
    session = ScriptedSession()
    session.gate.clear()
    with recognizer.stream(network=session) as stream:
        done = [stream.push(frame(left=60 + 4 * number)).done for number in range(10)]
        assert (done.count(Done.ASKED), Done.SUPERSEDED in done) == (1, True)
        session.gate.set()


def test_the_result_cache_answers_before_the_network(scene: Scene) -> None:
    session = ScriptedSession()
    with scene.recognizer(NOBODY, settings=CACHING).stream(network=session) as stream:
        grains = set()

        def is_cached() -> bool:
            for one in (SEEN, OTHER):
                answer = until_answered(stream, one)
                assert answer.recognition is not None and answer.recognition.label == "cat"
                grains.add(answer.recognition.grain)
            return "result" in grains

        wait_until(is_cached, what="an answer from the result cache")
    assert grains == {"network", "result"}


def test_frames_may_change_size_and_format_and_bad_ones_reach_no_network(recognizer: Recognizer) -> None:
    session = ScriptedSession()
    grey = np.ascontiguousarray(OTHER[:120, :, 0])
    with recognizer.stream(network=session) as stream:
        for one in (SEEN, SEEN[:200, :100], grey):
            until_answered(stream, one)
            assert stream.push(SEEN[:0]).done is Done.INVALID
    assert list(dict.fromkeys(session.shapes)) == [(240, 320, 3), (200, 100, 3), (120, 320, 3)]


@pytest.mark.parametrize("error", [InternalError("the library failed"), RuntimeError("a bug")])
def test_a_failing_network_is_reported_and_the_stream_continues(
    recognizer: Recognizer, error: Exception
) -> None:
    session = ScriptedSession()
    session.error = error
    with recognizer.stream(network=session) as stream:
        assert isinstance(until_answered(stream, SEEN).error, NearsightError)
        session.error = None
        wait_until(lambda: stream.push(SEEN).recognition is not None, what="an answer")


@pytest.mark.parametrize("manifest", [None, replace(MANIFEST, labels=())], ids=["a file", "no labels"])
def test_a_network_without_labels_is_refused(recognizer: Recognizer, manifest: Manifest | None) -> None:
    with pytest.raises(InvalidArgument, match="needs labels, and this one has none"):
        recognizer.stream(network=ScriptedSession(manifest))
