"""The SDK against real servers: exactly one outcome per request, by callback, blocking or async call."""

import asyncio
import copy
import gc
import io
import itertools
import pickle
import subprocess
import sys
import threading
import weakref
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nearsight import (
    Cancelled,
    InvalidImage,
    NearsightError,
    NotFound,
    Overloaded,
    PeerSettings,
    Recognition,
    Recognizer,
    RecognizerSettings,
)
from nearsight.experiments.rig.peer_group import free_udp_port
from support.pictures import broken_images, picture
from support.recognition_server import always, failing, never, response
from support.recognizers import NOBODY, PHOTO, Scene
from support.waiting import LONG_S, wait_until


def test_callbacks_run_in_order_of_completion_on_one_thread(scene: Scene) -> None:
    waiting: list[Future[object]] = []

    def hold() -> Future[object]:
        waiting.append(Future())
        return waiting[-1]

    _, edge = scene.tier("edge", hold)
    recognizer = scene.recognizer(edge)
    order: list[tuple[int, int]] = []
    for number in range(3):
        recognizer.recognize(
            PHOTO, lambda _, n=number: order.append((n, threading.get_ident())), timeout_s=LONG_S
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
    handles = [recognizer.recognize(PHOTO, scene.callbacks) for _ in range(20)]
    assert service.asked.acquire(timeout=LONG_S)
    recognizer.close()
    assert len(scene.callbacks.seen) == 20
    assert all(isinstance(outcome, Cancelled) for outcome in scene.callbacks.seen)
    assert all(handle.done() for handle in handles)
    recognizer.recognize(PHOTO, scene.callbacks)
    assert isinstance(scene.callbacks.wait(21)[-1], Cancelled)


LEFT_OPEN = """
import atexit, sys
from nearsight import Recognizer

outcomes = []
atexit.register(lambda: print([type(one).__name__ for one in outcomes]))
recognizer = Recognizer(None, sys.argv[1], "museum")
for _ in range(3):
    recognizer.recognize(sys.argv[2], outcomes.append, timeout_s=600)
if "closed" in sys.argv:
    recognizer.close()
if "dropped" in sys.argv:
    del recognizer
"""


@pytest.mark.system  # each starts an application, which takes seconds
@pytest.mark.parametrize("closed", [(), ("closed",), ("dropped",)])
def test_requests_in_flight_get_their_outcome_when_the_program_exits(
    scene: Scene, tmp_path: Path, closed: tuple[str, ...]
) -> None:
    _, cloud = scene.tier("cloud", never())
    (tmp_path / "photo.jpg").write_bytes(PHOTO)
    program = [sys.executable, "-W", "error", "-c", LEFT_OPEN, cloud, str(tmp_path / "photo.jpg"), *closed]
    ended = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("['Cancelled', 'Cancelled', 'Cancelled']\n", "")


def test_a_recognizer_that_is_dropped_without_a_close_frees_its_threads_and_warns(scene: Scene) -> None:
    _, edge = scene.tier("edge", always("edge"))
    before = set(threading.enumerate())
    recognizer = Recognizer(edge, None, "museum")
    recognizer.recognize(PHOTO, scene.callbacks)
    assert isinstance(scene.callbacks.wait()[0], Recognition)
    own = set(threading.enumerate()) - before
    with pytest.warns(ResourceWarning, match="call close"):
        del recognizer
        wait_until(lambda: gc.collect() >= 0 and not any(thread.is_alive() for thread in own))


def test_a_recognizer_stays_open_while_its_store_is_in_use() -> None:
    peers = PeerSettings(enabled=True, beacon_port=free_udp_port())
    before = set(threading.enumerate())
    recognizer = Recognizer(NOBODY, None, "museum", settings=RecognizerSettings(peers=peers))
    store, kept = recognizer.store, weakref.ref(recognizer)
    del recognizer
    gc.collect()
    assert store.put("key", b"value").result(LONG_S) is None
    assert kept() is not None
    own = set(threading.enumerate()) - before
    with pytest.warns(ResourceWarning, match="call close"):
        del store
        wait_until(lambda: gc.collect() >= 0 and not any(thread.is_alive() for thread in own))


def test_a_recognizer_is_neither_pickled_nor_copied(scene: Scene) -> None:
    _, edge = scene.tier("edge", always("edge"))
    recognizer = scene.recognizer(edge)
    for duplicate in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match=r"a Recognizer cannot be pickled.*make one in each process"):
            duplicate(recognizer)


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
        task = asyncio.create_task(recognizer.recognize_async(PHOTO))
        while not service.asked.acquire(blocking=False):
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert recognizer.pending == 0
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(recognizer.recognize_async(PHOTO), 0.05)
        assert recognizer.pending == 0

    asyncio.run(main())


def test_under_all_faults_every_request_receives_one_callback(scene: Scene) -> None:
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


@pytest.mark.parametrize("timeout_s", [-1.0, 0.0, float("nan"), float("inf"), 86_401.0])
def test_an_invalid_timeout_is_a_value_error(scene: Scene, timeout_s: float) -> None:
    _, edge = scene.tier("edge", always("edge"))
    recognizer = scene.recognizer(edge)
    with pytest.raises(ValueError, match="timeout_s must be above 0 and at most 86400 seconds"):
        recognizer.recognize(PHOTO, scene.callbacks, timeout_s=timeout_s)
    with pytest.raises(ValueError, match="timeout_s"):
        recognizer.infer(np.zeros(3, np.float32), timeout_s=timeout_s)
    assert not scene.callbacks.seen


def test_async_callbacks_run_on_the_loop_of_the_caller_in_the_order_of_completion(scene: Scene) -> None:
    _, edge = scene.tier("edge", always("edge"))
    recognizer = scene.recognizer(edge)
    order: list[str] = []

    async def main() -> None:
        done = asyncio.Event()

        async def slow(outcome: Recognition | NearsightError) -> None:
            assert isinstance(outcome, Recognition)
            assert asyncio.get_running_loop() is own
            await asyncio.sleep(0)
            order.append("slow")
            recognizer.recognize(PHOTO, second)

        async def second(outcome: Recognition | NearsightError) -> None:
            order.append("second")
            recognizer.close()
            done.set()

        own = asyncio.get_running_loop()
        recognizer.recognize(PHOTO, slow)
        await asyncio.wait_for(done.wait(), LONG_S)

    asyncio.run(main())
    assert order == ["slow", "second"]


@pytest.mark.parametrize("begins", ["callback", "stream"])
def test_an_async_callback_without_a_loop_may_request_with_another_one(scene: Scene, begins: str) -> None:
    _, edge = scene.tier("edge", always("edge"))
    recognizer = scene.recognizer(edge)

    async def second(outcome: Recognition | NearsightError) -> None:
        await asyncio.sleep(0)
        scene.callbacks(outcome)

    async def first(_answer: object) -> None:
        recognizer.recognize(PHOTO, second)

    if begins == "callback":
        recognizer.recognize(PHOTO, first)
    else:
        recognizer.stream([picture(1)], first)
    assert isinstance(scene.callbacks.wait()[0], Recognition)


def test_files_and_images_of_other_libraries_are_recognised(scene: Scene) -> None:
    _, edge = scene.tier("edge", always("edge"))
    recognizer = scene.recognizer(edge)
    for image in (io.BytesIO(PHOTO), Image.open(io.BytesIO(PHOTO))):
        assert recognizer.recognize_blocking(image).known
    with pytest.raises(InvalidImage, match=r"seek\(0\)"):
        recognizer.recognize_blocking(io.BytesIO())
    with pytest.raises(InvalidImage, match="astype"):
        recognizer.recognize_blocking(np.zeros((64, 64, 3)))
