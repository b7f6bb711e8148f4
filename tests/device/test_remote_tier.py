"""A tier over a real connection: what is asked, and what is told about the answer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from nearsight.common.errors import DeadlineExceeded, InvalidImage, Overloaded
from nearsight.common.rpc.client import Channel
from nearsight.device.query import Query
from nearsight.device.remote_tier import RemoteTier, TierReply
from nearsight.protos.recognition_pb2 import RecognizeResponse
from support.gallery import photo_features
from support.pictures import photo_jpeg
from support.recognition_server import EXHIBIT, ScriptedRecognition, response, serve
from support.waiting import wait_until

PHOTO = photo_jpeg(1)


class Scene:
    """An edge that answers in the order that a test says, and the tier that asks it."""

    def __init__(self, stack: ExitStack) -> None:
        self.answers: list[RecognizeResponse | Future[RecognizeResponse] | Exception] = []
        self.service = ScriptedRecognition(self._next)
        server = serve(self.service, "edge")
        stack.callback(server.stop, 0.0)
        self.told: list[TierReply] = []
        channel = Channel(server.endpoint, client_id="phone")
        self.tier = RemoteTier("edge", channel, "museum", replied=self.told.append)
        stack.callback(self.tier.close)
        self.made = 0

    def _next(self) -> RecognizeResponse | Future[RecognizeResponse]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def features(self) -> Query:
        def image() -> Query:
            self.made += 1
            return Query(PHOTO)

        return Query(photo_features(1), otherwise=image)

    def sizes(self) -> list[int]:
        """Blobs of each question: one image, or three of features."""
        return [len(context.blobs) for context in self.service.contexts]


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)


def test_what_features_show_needs_no_image(scene: Scene) -> None:
    scene.answers = [response("edge")]
    answer = scene.tier.ask(scene.features(), timeout_s=5.0, trace_id="t").result(5)
    assert answer.found == EXHIBIT
    assert (scene.sizes(), scene.made) == ([3], 0)
    wait_until(lambda: len(scene.told) == 1)
    assert scene.told[0].form == "features"
    assert 0 < scene.told[0].round_trip_ms <= scene.told[0].waited_ms


def test_before_features_are_unknown_the_tier_gets_the_image(scene: Scene) -> None:
    scene.answers = [response("edge", None), response("cloud")]
    asked = replace(scene.features(), looked_for=frozenset({"a painting"}))
    answer = scene.tier.ask(asked, timeout_s=5.0, trace_id="t").result(5)
    assert (answer.found, answer.answered_by) == (EXHIBIT, "cloud")
    assert scene.sizes() == [3, 1]
    assert [request.image.features_unknown for request in scene.service.requests] == [False, True]
    assert {context.trace_id for context in scene.service.contexts} == {"t"}
    features_bytes = sum(len(blob) for blob in scene.service.contexts[0].blobs)
    assert answer.sent_bytes > features_bytes + len(PHOTO)
    wait_until(lambda: len(scene.told) == 2)
    first, told = scene.told
    assert (first.form, first.last, told.form, told.last) == ("features", False, "image", True)
    assert told.sent_bytes < features_bytes + len(PHOTO)
    assert told.waited_ms > told.round_trip_ms
    assert told.looked_for == {"a painting"}


def test_an_image_that_is_unknown_is_not_asked_about_twice(scene: Scene) -> None:
    scene.answers = [response("edge", None)]
    assert scene.tier.ask(Query(PHOTO), timeout_s=5.0, trace_id="t").result(5).found is None
    scene.answers = [response("edge", None), response("edge", None)]
    assert scene.tier.ask(scene.features(), timeout_s=5.0, trace_id="t").result(5).found is None
    assert scene.sizes() == [1, 3, 1]


def test_if_the_image_is_not_answered_what_was_said_of_the_features_stands(scene: Scene) -> None:
    scene.answers = [response("edge", None), Overloaded("busy"), response("edge", None), Future()]
    for _ in range(2):
        answer = scene.tier.ask(scene.features(), timeout_s=1.0, trace_id="t").result(5)
        assert answer.found is None
    assert len(scene.service.contexts) == 4


def test_an_image_that_cannot_be_made_leaves_the_answer_as_it_is(scene: Scene) -> None:
    def broken() -> Query:
        raise InvalidImage("gone")

    scene.answers = [response("edge", None)]
    query = Query(photo_features(1), otherwise=broken)
    assert scene.tier.ask(query, timeout_s=5.0, trace_id="t").result(5).found is None


def test_with_no_time_left_there_is_no_second_question(scene: Scene) -> None:
    later: Future[RecognizeResponse] = Future()
    scene.answers = [later]
    answer = scene.tier.ask(scene.features(), timeout_s=0.09, trace_id="t")
    assert scene.service.asked.acquire(timeout=5)
    later.set_result(response("edge", None))
    with suppress(DeadlineExceeded):  # on a slow machine
        assert answer.result(5).found is None
    assert scene.made == 0


def test_a_question_that_was_cancelled_is_not_repeated(scene: Scene) -> None:
    later: Future[RecognizeResponse] = Future()
    scene.answers = [later, response("edge")]
    answer = scene.tier.ask(scene.features(), timeout_s=5.0, trace_id="t")
    assert scene.service.asked.acquire(timeout=5)
    assert answer.cancel()
    later.set_result(response("edge", None))
    scene.answers[0] = response("edge")
    assert scene.tier.ask(Query(PHOTO), timeout_s=5.0, trace_id="u").result(5).found == EXHIBIT
    assert scene.made == 0
