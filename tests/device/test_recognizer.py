"""The SDK against real servers: exactly one outcome per request, under every fault."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import cv2
import numpy as np
import pytest

from nearsight import (
    Cancelled,
    ConfigurationError,
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    NearsightError,
    NotFound,
    Overloaded,
    PeerError,
    Recognition,
    Recognizer,
    RecognizerSettings,
    StatusCode,
    Unauthenticated,
    Unavailable,
)
from nearsight.common.recognition.extraction import OrbExtractor
from nearsight.common.recognition.images import load_image
from nearsight.device.circuit_breaker import BreakerState
from nearsight.device.recognizer_settings import BreakerSettings
from support.pictures import broken_images, jpeg, picture
from support.recognition_server import (
    EXHIBIT,
    Answer,
    ScriptedRecognition,
    always,
    failing,
    never,
    response,
    serve,
    server_process,
)
from support.waiting import wait_until

PHOTO = jpeg(picture(1))
QUICK = RecognizerSettings(
    timeout_s=5.0,
    tier_share=0.2,
    max_pending=600,
    breaker=BreakerSettings(cooldown_s=0.05, longest_cooldown_s=0.1, probe_timeout_s=2.0),
)
NOBODY = "tcp://127.0.0.1:9"


class Callbacks:
    """Receives outcomes, counted per request."""

    def __init__(self) -> None:
        self.seen: list[Recognition | NearsightError] = []
        self._arrived = threading.Semaphore(0)

    def __call__(self, outcome: Recognition | NearsightError) -> None:
        self.seen.append(outcome)
        self._arrived.release()

    def wait(self, count: int = 1) -> list[Recognition | NearsightError]:
        for _ in range(count):
            assert self._arrived.acquire(timeout=20.0), f"{len(self.seen)} callbacks came"
        return self.seen


class Scene:
    """Real servers and recognizers of one test, closed at its end."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.callbacks = Callbacks()

    def tier(self, name: str, answer: Answer) -> tuple[ScriptedRecognition, str]:
        service = ScriptedRecognition(answer)
        server = serve(service, name)
        self._stack.callback(server.stop, 0.0)
        return service, server.endpoint

    def recognizer(
        self, edge: str | None, cloud: str | None = None, settings: RecognizerSettings = QUICK
    ) -> Recognizer:
        return self._stack.enter_context(Recognizer(edge, cloud, "museum", settings=settings))


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)


def test_the_edge_answers_and_the_recognition_is_complete(scene: Scene) -> None:
    service, edge = scene.tier("edge", always("edge"))
    recognizer = scene.recognizer(edge)
    recognition = recognizer.recognize_blocking(PHOTO)
    assert recognition.object == EXHIBIT
    assert (recognition.known, recognition.object_id, recognition.label) == (True, "0042", "Night")
    assert (recognition.answered_by, recognition.metadata) == ("edge", {"artist": "R."})
    assert [hop.tier for hop in recognition.hops] == ["edge", "device"]
    assert 0 < recognition.attempts[0].elapsed_ms <= recognition.latency_ms
    assert recognition.sent_bytes > len(PHOTO)
    assert recognition.received_bytes > 0
    (context,) = service.contexts
    assert context.catalogue == "museum"
    assert context.client_id == recognizer.device_id
    assert context.trace_id == recognition.trace_id
    assert bytes(context.blobs[0]) == PHOTO


def test_unknown_is_an_answer(scene: Scene) -> None:
    _, edge = scene.tier("edge", lambda: response("cloud", None))
    recognition = scene.recognizer(edge).recognize_blocking(PHOTO)
    assert not recognition.known
    assert (recognition.answered_by, recognition.object_id, recognition.corners) == ("cloud", None, None)
    assert (recognition.label, recognition.confidence, recognition.metadata) == ("", 0.0, {})


def test_paths_arrays_and_features_are_understood_and_corners_fit_the_given_image(
    scene: Scene, tmp_path: Path
) -> None:
    _, edge = scene.tier("edge", always("edge"))
    recognizer = scene.recognizer(edge)
    (tmp_path / "photo.jpg").write_bytes(PHOTO)
    features = OrbExtractor().extract(load_image(PHOTO), 200)
    for image in (tmp_path / "photo.jpg", str(tmp_path / "photo.jpg"), picture(1), features):
        assert recognizer.recognize_blocking(image).corners == EXHIBIT.corners
    large = cv2.resize(picture(1), (1280, 1280))
    corners = recognizer.recognize_blocking(large).corners
    assert corners is not None
    assert np.allclose(corners, np.array(EXHIBIT.corners) * 2)


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("no cloud"),
        Overloaded("busy"),
        NotFound("no museum"),
        Unauthenticated("key"),
        ValueError("bug"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_cloud_answers_when_the_edge_fails(scene: Scene, error: Exception) -> None:
    _, edge = scene.tier("edge", failing(error))
    _, cloud = scene.tier("cloud", always("cloud"))
    recognition = scene.recognizer(edge, cloud).recognize_blocking(PHOTO)
    assert recognition.answered_by == "cloud"
    assert [attempt.tier for attempt in recognition.attempts] == ["edge", "cloud"]
    assert recognition.attempts[1].outcome is StatusCode.OK


def test_a_request_that_the_edge_refuses_is_not_put_to_the_cloud(scene: Scene) -> None:
    _, edge = scene.tier("edge", failing(InvalidArgument("not like this")))
    service, cloud = scene.tier("cloud", always("cloud"))
    with pytest.raises(InvalidArgument, match="not like this"):
        scene.recognizer(edge, cloud).recognize_blocking(PHOTO)
    assert not service.contexts


def test_an_edge_that_never_answers_leaves_the_cloud_time_enough(scene: Scene) -> None:
    _, edge = scene.tier("edge", never())
    _, cloud = scene.tier("cloud", always("cloud"))
    recognition = scene.recognizer(edge, cloud).recognize_blocking(PHOTO)
    assert recognition.answered_by == "cloud"
    assert recognition.attempts[0].outcome is StatusCode.DEADLINE_EXCEEDED
    assert 900 < recognition.attempts[0].elapsed_ms < 2500


def test_an_edge_that_does_not_exist_is_skipped_after_a_few_failures(scene: Scene) -> None:
    _, cloud = scene.tier("cloud", always("cloud"))
    settings = RecognizerSettings(timeout_s=2.0, tier_share=0.2)
    recognizer = scene.recognizer(NOBODY, cloud, settings)
    for _ in range(3):
        assert recognizer.recognize_blocking(PHOTO).answered_by == "cloud"
    assert recognizer.breaker_states()["edge"] is BreakerState.COOLING
    assert [a.tier for a in recognizer.recognize_blocking(PHOTO).attempts] == ["cloud"]


def test_with_all_tiers_gone_the_error_is_typed_in_time_and_says_what_to_do(scene: Scene) -> None:
    recognizer = scene.recognizer(NOBODY, "tcp://127.0.0.1:19")
    started_s = time.monotonic()
    recognizer.recognize(PHOTO, scene.callbacks, timeout_s=0.5)
    (error,) = scene.callbacks.wait()
    assert time.monotonic() - started_s < 0.5 + 0.5
    assert isinstance(error, PeerError)
    assert error.advice
    assert "edge" in error.message


def test_an_edge_killed_in_mid_request_hands_on_to_the_cloud(scene: Scene) -> None:
    _, cloud = scene.tier("cloud", always("cloud"))
    with server_process("edge", "silent") as edge:
        recognizer = scene.recognizer(edge.endpoint, cloud)
        for _ in range(5):
            recognizer.recognize(PHOTO, scene.callbacks)
        edge.wait_until_asked()
        edge.kill()
        outcomes = scene.callbacks.wait(5)
    assert [getattr(outcome, "answered_by", outcome) for outcome in outcomes] == ["cloud"] * 5


def test_an_only_edge_killed_in_mid_request_is_a_typed_error(scene: Scene) -> None:
    with server_process("edge", "silent") as edge:
        recognizer = scene.recognizer(edge.endpoint)
        recognizer.recognize(PHOTO, scene.callbacks, timeout_s=1.0)
        edge.wait_until_asked()
        edge.kill()
        assert isinstance(scene.callbacks.wait()[0], PeerError)


def test_requests_go_to_the_edge_again_once_it_is_back(scene: Scene) -> None:
    _, cloud = scene.tier("cloud", always("cloud"))
    with server_process("edge", "answer") as edge:
        endpoint = edge.endpoint
        recognizer = scene.recognizer(endpoint, cloud)
        assert recognizer.recognize_blocking(PHOTO).answered_by == "edge"
        edge.kill()
        answers = {recognizer.recognize_blocking(PHOTO).answered_by for _ in range(4)}
        assert answers == {"cloud"}
    with server_process("edge", "answer", endpoint):
        wait_until(
            lambda: recognizer.recognize_blocking(PHOTO).answered_by == "edge", what="an answer of the edge"
        )
        assert recognizer.breaker_states()["edge"] is BreakerState.CLOSED


def test_a_device_with_one_tier_recovers_when_it_comes_back(scene: Scene) -> None:
    with server_process("edge", "answer") as edge:
        endpoint = edge.endpoint
        recognizer = scene.recognizer(endpoint)
        recognizer.recognize_blocking(PHOTO)
        edge.kill()
        for _ in range(4):
            with pytest.raises(PeerError):
                recognizer.recognize_blocking(PHOTO, timeout_s=0.3)
    with server_process("edge", "answer", endpoint):
        assert recognizer.recognize_blocking(PHOTO).answered_by == "edge"


@pytest.mark.parametrize("kind", ["empty", "truncated", "no image", "bomb"])
def test_an_image_that_is_none_is_an_outcome_and_asks_nobody(scene: Scene, kind: str) -> None:
    service, edge = scene.tier("edge", always("edge"))
    scene.recognizer(edge).recognize(broken_images()[kind], scene.callbacks)
    assert isinstance(scene.callbacks.wait()[0], InvalidArgument)
    assert not service.contexts


@pytest.mark.parametrize("kind", ["1 x 1", "black"])
def test_an_image_without_content_is_asked_as_any_other(scene: Scene, kind: str) -> None:
    _, edge = scene.tier("edge", lambda: response("edge", None))
    scene.recognizer(edge).recognize(broken_images()[kind], scene.callbacks)
    (outcome,) = scene.callbacks.wait()
    assert isinstance(outcome, Recognition)
    assert not outcome.known


def test_a_missing_file_is_an_outcome(scene: Scene, tmp_path: Path) -> None:
    _, edge = scene.tier("edge", always("edge"))
    scene.recognizer(edge).recognize(tmp_path / "none.jpg", scene.callbacks)
    assert isinstance(scene.callbacks.wait()[0], NotFound)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"callback": None}, TypeError),
        ({"image": None}, TypeError),
        ({"timeout_s": "soon"}, TypeError),
        ({"timeout_s": float("nan")}, ValueError),
        ({"timeout_s": 1e9}, ValueError),
    ],
)
def test_programming_errors_are_raised_at_once(
    scene: Scene, arguments: dict[str, object], error: type[Exception]
) -> None:
    recognizer = scene.recognizer(NOBODY)
    with pytest.raises(error):
        recognizer.recognize(**({"image": PHOTO, "callback": scene.callbacks} | arguments))
    assert recognizer.pending == 0


def test_a_recognizer_without_any_tier_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="edge or a cloud"):
        Recognizer(None, "", "museum")


def test_a_callback_that_raises_harms_no_other(scene: Scene) -> None:
    _, edge = scene.tier("edge", always("edge"))
    recognizer = scene.recognizer(edge)
    recognizer.recognize(PHOTO, lambda _: 1 / 0)
    recognizer.recognize(PHOTO, scene.callbacks)
    assert isinstance(scene.callbacks.wait()[0], Recognition)


def test_callbacks_come_in_the_order_of_completion_on_one_thread(scene: Scene) -> None:
    waiting: list[Future[object]] = []

    def hold() -> Future[object]:
        waiting.append(Future())
        return waiting[-1]

    _, edge = scene.tier("edge", hold)
    recognizer = scene.recognizer(edge)
    order: list[tuple[int, int]] = []
    for number in range(3):
        recognizer.recognize(
            PHOTO, lambda _, n=number: order.append((n, threading.get_ident())), timeout_s=20
        )
        wait_until(lambda n=number: len(waiting) == n + 1)
    for position, number in enumerate((2, 0, 1), start=1):
        waiting[number].set_result(response("edge"))
        wait_until(lambda n=position: len(order) == n)
    assert [number for number, _ in order] == [2, 0, 1]
    assert len({thread for _, thread in order}) == 1
    assert order[0][1] != threading.get_ident()


def test_blocking_calls_and_close_work_inside_a_callback(scene: Scene) -> None:
    _, edge = scene.tier("edge", always("edge"))
    recognizer = scene.recognizer(edge)

    def inside(outcome: Recognition | NearsightError) -> None:
        second = recognizer.recognize_blocking(PHOTO)
        recognizer.close()
        scene.callbacks(second)

    recognizer.recognize(PHOTO, inside)
    assert isinstance(scene.callbacks.wait()[0], Recognition)


def test_close_ends_pending_requests_and_their_callbacks_have_run(scene: Scene) -> None:
    service, edge = scene.tier("edge", never())
    recognizer = scene.recognizer(edge)
    handles = [recognizer.recognize(PHOTO, scene.callbacks, timeout_s=60) for _ in range(20)]
    assert service.asked.acquire(timeout=10)
    recognizer.close()
    assert len(scene.callbacks.seen) == 20
    assert all(isinstance(outcome, Cancelled) for outcome in scene.callbacks.seen)
    assert all(handle.done() for handle in handles)
    recognizer.recognize(PHOTO, scene.callbacks)
    assert isinstance(scene.callbacks.wait(21)[-1], Cancelled)


def test_cancel_gives_the_callback_its_error_once(scene: Scene) -> None:
    service, edge = scene.tier("edge", never())
    handle = scene.recognizer(edge).recognize(PHOTO, scene.callbacks)
    assert service.asked.acquire(timeout=10)
    assert handle.cancel()
    assert not handle.cancel()
    assert isinstance(scene.callbacks.wait()[0], Cancelled)
    with pytest.raises(Cancelled):
        handle.result(0)


@pytest.mark.parametrize("timeout_s", [-1.0, 0.0, 1e-6, 0.001, 0.05])
def test_a_deadline_shorter_than_the_round_trip_is_a_typed_error(scene: Scene, timeout_s: float) -> None:
    _, edge = scene.tier("edge", never())
    scene.recognizer(edge).recognize(PHOTO, scene.callbacks, timeout_s=timeout_s)
    assert isinstance(scene.callbacks.wait()[0], DeadlineExceeded)


def test_hundreds_of_requests_at_once_each_get_one_callback(scene: Scene) -> None:
    _, edge = scene.tier("edge", always("edge"))
    recognizer = scene.recognizer(edge)
    counts = [0] * 400
    done = threading.Semaphore(0)

    def count(number: int, outcome: Recognition | NearsightError) -> None:
        assert isinstance(outcome, Recognition | NearsightError)
        counts[number] += 1
        done.release()

    def ask(number: int) -> None:
        recognizer.recognize(PHOTO, lambda outcome: count(number, outcome), timeout_s=15)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(400)))
    for _ in range(400):
        assert done.acquire(timeout=20)
    recognizer.close()
    assert counts == [1] * 400


def test_requests_over_the_limit_are_overloaded_at_once(scene: Scene) -> None:
    _, edge = scene.tier("edge", never())
    recognizer = scene.recognizer(edge, None, RecognizerSettings(max_pending=2))
    for _ in range(3):
        recognizer.recognize(PHOTO, scene.callbacks, timeout_s=30)
    assert isinstance(scene.callbacks.wait()[0], Overloaded)
    assert recognizer.pending == 2


def test_an_edge_that_is_overloaded_sends_requests_to_the_cloud_and_rests(scene: Scene) -> None:
    service, edge = scene.tier("edge", failing(Overloaded("busy")))
    _, cloud = scene.tier("cloud", always("cloud"))
    recognizer = scene.recognizer(edge, cloud, RecognizerSettings(timeout_s=10))
    answers = [recognizer.recognize_blocking(PHOTO).answered_by for _ in range(10)]
    assert answers == ["cloud"] * 10
    assert len(service.contexts) < 10


def test_awaiting_gives_the_recognition_or_raises(scene: Scene, tmp_path: Path) -> None:
    _, edge = scene.tier("edge", always("edge"))
    recognizer = scene.recognizer(edge)

    async def main() -> None:
        answers = await asyncio.gather(*(recognizer.recognize_async(PHOTO) for _ in range(20)))
        assert {answer.object_id for answer in answers} == {"0042"}
        with pytest.raises(NotFound):
            await recognizer.recognize_async(tmp_path / "none.jpg")

    asyncio.run(main())


def test_cancelling_a_task_cancels_the_request(scene: Scene) -> None:
    service, edge = scene.tier("edge", never())
    recognizer = scene.recognizer(edge)

    async def main() -> None:
        task = asyncio.create_task(recognizer.recognize_async(PHOTO, timeout_s=60))
        while not service.asked.acquire(blocking=False):
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert recognizer.pending == 0
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(recognizer.recognize_async(PHOTO, timeout_s=60), 0.05)
        assert recognizer.pending == 0

    asyncio.run(main())


def test_a_broken_answer_of_the_edge_is_not_passed_on(scene: Scene) -> None:
    def broken() -> object:
        message = response("edge")
        del message.object.corners[2:]
        return message

    _, edge = scene.tier("edge", broken)
    _, cloud = scene.tier("cloud", always("cloud"))
    assert scene.recognizer(edge, cloud).recognize_blocking(PHOTO).answered_by == "cloud"
    with pytest.raises(InternalError, match="broken answer"):
        scene.recognizer(edge).recognize_blocking(PHOTO)


def test_every_kind_of_trouble_at_once_still_gives_one_callback_each(scene: Scene) -> None:
    errors = [failing(error) for error in (Overloaded("busy"), ValueError("bug"), NotFound("museum"))]
    troubles = itertools.cycle([always("edge"), never(), *errors])
    lock = threading.Lock()

    def mixed() -> object:
        with lock:
            answer = next(troubles)
        return answer()

    _, edge = scene.tier("edge", mixed)
    _, cloud = scene.tier("cloud", mixed)
    recognizer = scene.recognizer(edge, cloud)
    images = itertools.cycle([PHOTO, b"", picture(2), broken_images()["truncated"]])
    for number in range(100):
        handle = recognizer.recognize(next(images), scene.callbacks, timeout_s=0.2 + 0.01 * number)
        if number % 7 == 0:
            handle.cancel()
    scene.callbacks.wait(100)
    recognizer.close()
    assert len(scene.callbacks.seen) == 100
