"""A live stream: one answer per frame under all faults of camera, callback and tiers."""

import asyncio
import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from nearsight.common.clock import ManualClock
from nearsight.common.errors import Cancelled, InvalidImage, NearsightError, Unavailable
from nearsight.common.recognition.images import ImageSource
from nearsight.common.recognition.settings import ImageLimits
from nearsight.common.request.next_tiers import BreakerState
from nearsight.device.recognition import Recognition, RequestHandle
from nearsight.device.video.live_view import Done, StreamSettings
from nearsight.device.video.stream import LiveStream, StreamAnswer
from support.camera import UNKNOWN, corners, frame, gray, recognition
from support.examples import example
from support.pictures import jpeg
from support.recognition_server import ScriptedRecognition, always, never, serve
from support.recognizers import Scene
from support.waiting import LONG_S, wait_until

WHERE = corners()
PATIENT = StreamSettings(timeout_s=LONG_S)


class Questions:
    """Replaces the engine: keeps requests until a test answers them."""

    def __init__(self, *, looks_here: bool = False, **settings: float) -> None:
        self.clock = ManualClock()
        self.open: list[Callable[[Recognition | NearsightError], None]] = []
        self.cancelled = 0
        self.one_looks: list[bool] = []
        self.only_here: list[bool] = []
        self.stream = LiveStream(
            self._ask,
            StreamSettings(**settings),
            ImageLimits(),
            self.clock,
            looks_here=looks_here,  # type: ignore[arg-type]
        )

    def push(self, image: ImageSource | None = None) -> StreamAnswer:
        self.clock.advance(0.1)
        return self.stream.push(frame() if image is None else image)

    def _ask(
        self,
        image: ImageSource,
        deliver: Callable[[Recognition | NearsightError], None],
        timeout_s: float,
        *,
        one_look: bool,
        only_here: bool,
    ) -> RequestHandle:
        assert timeout_s == 1.0
        self.one_looks.append(one_look)
        self.only_here.append(only_here)
        self.open.append(deliver)

        def cancel() -> bool:
            self.cancelled += 1
            deliver(Cancelled("the request was cancelled"))
            return True

        return RequestHandle("trace", cancel)


def test_each_frame_is_answered_immediately_with_the_latest_result() -> None:
    camera = Questions()
    assert camera.push() == StreamAnswer(0, 0.1, Done.ASKED)
    assert camera.push().recognition is None
    camera.open[0](answer := recognition(where=WHERE))
    third = camera.push()
    assert (third.number, third.recognition, third.asked) == (2, answer, 0)
    assert third.age_s == pytest.approx(0.2)
    assert np.array(third.outline) == pytest.approx(np.array(WHERE), abs=1)


def test_requests_that_cannot_be_sent_occupy_no_credits() -> None:
    def no_memory(*_: object, **__: object) -> RequestHandle:
        raise MemoryError

    camera = Questions()
    ask, camera.stream._ask = camera.stream._ask, no_memory
    for _ in range(2):
        with pytest.raises(MemoryError):
            camera.push()
        camera.clock.advance(2.0)
    camera.stream._ask = ask
    assert camera.push().done is Done.ASKED


def test_outlines_are_in_pixels_of_the_frame_however_large_it_is() -> None:
    camera = Questions()
    large = np.repeat(np.repeat(frame(), 4, axis=0), 4, axis=1)
    camera.push(large)
    camera.open[0](recognition(where=tuple((4 * x, 4 * y) for x, y in WHERE)))  # type: ignore[arg-type]
    assert np.array(camera.push(large).outline) == pytest.approx(4 * np.array(WHERE), abs=4)


def test_gray_frames_and_files_are_frames_too() -> None:
    camera = Questions()
    assert camera.push(frame()).done is Done.ASKED
    assert camera.push(gray(frame()).pixels).done is Done.UNCHANGED
    assert camera.push(jpeg(frame())).done is Done.UNCHANGED


@pytest.mark.parametrize("broken", [None, np.zeros((0, 5), np.uint8), np.zeros((4, 4)), b"no image"], ids=str)
def test_an_invalid_frame_is_reported_and_the_stream_continues(broken: ImageSource | None) -> None:
    camera = Questions()
    camera.push()
    camera.open[0](recognition(where=WHERE))
    answer = camera.stream.push(broken)  # type: ignore[arg-type]
    assert (answer.done, answer.recognition) == (Done.INVALID, None)
    assert isinstance(answer.error, InvalidImage)
    after = camera.push()
    assert after.recognition is not None and after.error is None


def test_damaged_files_among_the_frames_of_an_iterable_are_passed_over() -> None:
    camera, heard = Questions(), Listener()
    good = jpeg(frame())
    camera.stream.start([good, good[: len(good) // 2], b"", good, good[:-400] + bytes(400)], heard)
    assert camera.stream.wait(LONG_S)
    assert [one.done for one in heard.answers[:4]] == [Done.ASKED, Done.INVALID, Done.INVALID, Done.UNCHANGED]
    assert heard.numbers == [0, 1, 2, 3, 4]


def test_after_dropped_frames_a_visible_picture_keeps_its_result() -> None:
    camera = Questions()
    camera.push()
    camera.open[0](recognition(where=WHERE))
    camera.push()
    camera.clock.advance(5.0)
    after = camera.push(frame(left=66))
    assert after.recognition is not None
    assert np.array(after.outline) == pytest.approx(np.array(corners(left=66)), abs=2)
    assert after.done is Done.ASKED, "the answer is old"


def test_frames_of_another_size_reset_the_stream_and_old_answers_are_dropped() -> None:
    camera = Questions()
    camera.push()
    assert camera.push(frame()[:200, :160]).done is Done.ASKED
    camera.open[0](recognition(where=WHERE))
    assert camera.push(frame()[:200, :160]).recognition is None
    camera.open[1](recognition("other"))
    assert camera.push(frame()[:200, :160]).recognition is not None
    assert camera.push(frame()).recognition is None


def test_black_frames_and_the_same_frame_twice_are_asked_once() -> None:
    camera = Questions()
    assert camera.push().done is Done.ASKED
    assert camera.push().done is Done.UNCHANGED
    camera.open[0](recognition(where=WHERE))
    black = np.zeros_like(frame())
    first = next(step for step in range(60) if camera.push(black).done is Done.ASKED)
    assert first > 0, "the first ones are blurred, compared with the picture"
    assert {camera.push(black).done for _ in range(5)} == {Done.UNCHANGED}
    assert camera.push(black).recognition is None


def test_the_error_of_a_request_is_reported_until_one_succeeds() -> None:
    camera = Questions()
    camera.push()
    camera.open[0](error := Unavailable("nobody is there"))
    told = camera.push()
    assert (told.error, told.done) == (error, Done.PAUSED)
    while camera.push().done is not Done.ASKED:
        pass
    camera.open[1](UNKNOWN)
    assert camera.push().error is None


def test_repeatedly_unknown_pictures_receive_a_second_lookup() -> None:
    camera = Questions()
    camera.push()
    camera.open[0](UNKNOWN)
    camera.push(frame(left=64))
    assert camera.one_looks == [True, False]


def test_requests_of_streams_have_the_flag_for_single_lookups(scene: Scene) -> None:
    service, edge = scene.tier("edge", always("edge"))
    recognizer = scene.recognizer(edge)
    with recognizer.stream(settings=PATIENT) as stream:
        wait_until(lambda: stream.push(frame()).recognition is not None, what="an answer")
    recognizer.recognize_blocking(frame())
    *of_stream, of_photo = [request.image.one_look for request in service.requests]
    assert (set(of_stream), of_photo) == ({True}, False)


def test_closing_cancels_questions_and_refuses_frames() -> None:
    camera = Questions()
    camera.push()
    camera.stream.close()
    camera.stream.close()
    assert camera.cancelled == 1
    with pytest.raises(Cancelled, match="closed"):
        camera.push()


class Listener:
    """A callback that records answers."""

    def __init__(self) -> None:
        self.answers: list[StreamAnswer] = []

    def __call__(self, answer: StreamAnswer) -> None:
        self.answers.append(answer)

    @property
    def numbers(self) -> list[int]:
        return [answer.number for answer in self.answers]


def test_the_callback_gets_every_frame_of_an_iterable_in_order() -> None:
    camera, heard = Questions(), Listener()
    camera.stream.start([frame(left=60 + step) for step in range(9)], heard)
    assert camera.stream.wait(LONG_S)
    assert heard.numbers == list(range(9))
    assert len(camera.open) == 2, "credits bound the questions"
    with pytest.raises(Cancelled):
        camera.stream.push(frame())


def test_a_callback_that_raises_is_logged_and_gets_the_next_frame() -> None:
    camera, heard = Questions(), Listener()

    def raises_once(answer: StreamAnswer) -> None:
        heard(answer)
        if answer.number == 0:
            raise ValueError("a bug of the application")

    camera.stream.start([frame()] * 3, raises_once)
    assert camera.stream.wait(LONG_S)
    assert heard.numbers == [0, 1, 2]


def test_an_async_callback_is_awaited_before_the_next_frame_is_taken() -> None:
    camera, seen = Questions(), []

    async def main() -> None:
        own, done = asyncio.get_running_loop(), asyncio.Event()

        async def callback(answer: StreamAnswer) -> None:
            assert asyncio.get_running_loop() is own
            seen.append(answer.number)
            await asyncio.sleep(0)
            seen.append(answer.number)
            if answer.number == 3:
                camera.stream.close()
                done.set()

        camera.stream.start(frames(), callback)
        await asyncio.wait_for(done.wait(), LONG_S)

    def frames() -> Iterator[ImageSource]:
        while True:
            yield frame()

    asyncio.run(main())
    assert camera.stream.wait(LONG_S)
    assert seen == [0, 0, 1, 1, 2, 2, 3, 3]


def test_images_of_other_libraries_and_files_are_accepted_as_frames() -> None:
    file = io.BytesIO(jpeg(frame()))
    assert Questions().push(Image.open(file)).done is Done.ASKED
    file.seek(0)
    assert Questions().push(file).done is Done.ASKED
    at_its_end = Questions().push(file)
    assert (at_its_end.done, type(at_its_end.error)) == (Done.INVALID, InvalidImage)


def test_an_iterable_that_raises_ends_the_stream_and_is_heard_of() -> None:
    camera, heard = Questions(), Listener()

    def unplugged() -> Iterator[np.ndarray]:
        yield frame()
        raise OSError("the camera is gone")

    camera.stream.start(unplugged(), heard)
    with pytest.raises(OSError, match="camera is gone"):
        camera.stream.wait(LONG_S)
    assert (heard.numbers, camera.cancelled) == ([0], 1)


@pytest.mark.parametrize("ending", [SystemExit(3), KeyboardInterrupt()])
def test_a_callback_that_ends_the_program_ends_the_stream_and_is_heard_of(ending: BaseException) -> None:
    camera, heard = Questions(), Listener()

    def last(answer: StreamAnswer) -> None:
        heard(answer)
        raise ending

    camera.stream.start([frame()] * 3, last)
    with pytest.raises(type(ending)):
        camera.stream.wait(LONG_S)
    assert (heard.numbers, camera.cancelled) == ([0], 1)
    with pytest.raises(Cancelled):
        camera.stream.push(frame())


def test_a_slow_callback_delays_the_camera_and_no_frames_accumulate() -> None:
    camera, heard, gate = Questions(), Listener(), threading.Event()
    taken = []

    def frames() -> Iterator[np.ndarray]:
        for number in range(4):
            taken.append(number)
            yield frame(left=60 + 5 * number)

    def slow(answer: StreamAnswer) -> None:
        heard(answer)
        assert gate.wait(LONG_S)

    camera.stream.start(frames(), slow)
    wait_until(lambda: heard.numbers == [0], what="the first callback")
    assert not camera.stream.wait(0)
    assert taken == [0]
    gate.set()
    assert camera.stream.wait(LONG_S)
    assert heard.numbers == taken == [0, 1, 2, 3]


def test_no_callback_runs_after_close() -> None:
    camera, heard, taken = Questions(), Listener(), threading.Semaphore(0)

    def endless() -> Iterator[np.ndarray]:
        while True:
            yield frame()
            taken.release()

    camera.stream.start(endless(), heard)
    for _ in range(3):
        assert taken.acquire(timeout=LONG_S)
    camera.stream.close()
    count = len(heard.answers)
    assert camera.stream.wait(LONG_S)
    assert len(heard.answers) == count


def test_a_callback_may_close_its_stream() -> None:
    camera, heard = Questions(), Listener()

    def once(answer: StreamAnswer) -> None:
        heard(answer)
        camera.stream.close()

    camera.stream.start([frame()] * 5, once)
    assert camera.stream.wait(LONG_S)
    assert heard.numbers == [0]


def test_a_recognizer_recognises_frames_until_it_is_closed(scene: Scene) -> None:
    _, edge = scene.tier("edge", always("edge"))
    recognizer, heard = scene.recognizer(edge), Listener()

    def until_known() -> Iterator[np.ndarray]:
        while not (heard.answers and heard.answers[-1].recognition):
            yield frame()

    assert recognizer.stream(until_known(), heard, settings=PATIENT).wait(LONG_S)
    assert heard.answers[-1].recognition.object_id == "0042"  # type: ignore[union-attr]
    left = recognizer.stream()
    recognizer.close()
    with pytest.raises(Cancelled):
        left.push(frame())


@pytest.mark.parametrize("given", [{"frames": []}, {"callback": print}, {"frames": [], "callback": 5}])
def test_frames_need_a_callback(scene: Scene, given: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="callback"):
        scene.recognizer("tcp://127.0.0.1:9").stream(**given)  # type: ignore[arg-type]


def test_frames_beyond_the_rate_of_a_slow_tier_are_not_sent_and_are_no_errors(scene: Scene) -> None:
    service, edge = scene.tier("edge", never())
    recognizer = scene.recognizer(edge)
    stream = recognizer.stream(settings=PATIENT)
    answers = [stream.push(frame(left=60 + 4 * number)) for number in range(20)]
    assert [answer.done for answer in answers].count(Done.ASKED) == 2
    assert {answer.done for answer in answers[2:]} <= {Done.LOOKED, Done.SUPERSEDED}
    assert all(answer.error is None for answer in answers)
    for _ in range(2):
        assert service.asked.acquire(timeout=LONG_S)
    wait_until(lambda: recognizer.pending == 2, what="the end of looks on the device")
    stream.close()
    assert recognizer.pending == 0
    assert recognizer.breaker_states() == {"edge": BreakerState.CLOSED}


def test_while_the_tier_is_silent_the_device_looks_itself() -> None:
    camera = Questions(looks_here=True)
    done = [camera.push(frame(left=60 + 4 * step)).done for step in range(4)]
    assert done == [Done.ASKED, Done.ASKED, Done.LOOKED, Done.SUPERSEDED]
    assert camera.only_here == [False, False, True]
    camera.open[2](recognition(where=corners(left=68)))
    assert camera.push(frame(left=76)).asked == 2


def test_a_tier_restarted_during_a_stream_is_asked_again(scene: Scene) -> None:
    service = ScriptedRecognition(always("edge"))
    server = serve(service, "edge")
    stream = scene.recognizer(server.endpoint).stream(
        settings=StreamSettings(timeout_s=LONG_S, refresh_s=0.0)
    )
    step = iter(range(10**6))

    def push() -> StreamAnswer:
        return stream.push(frame(left=60 + next(step) % 2 * 6))

    wait_until(lambda: push().recognition is not None, what="an answer")
    server.stop(0.0)
    wait_until(lambda: isinstance(push().error, Unavailable), what="the failure")
    again = serve(service, "edge", listen=server.endpoint)
    try:
        wait_until(lambda: push().error is None, what="an answer of the new server")
    finally:
        again.stop(0.0)


def test_the_example_prints_and_draws_results(scene: Scene, tmp_path: Path) -> None:
    _, edge = scene.tier("edge", always("edge"))
    stream = scene.recognizer(edge).stream(settings=PATIENT)
    wait_until(lambda: stream.push(frame()).recognition is not None, what="an answer")
    source, out = str(tmp_path / "clip.avi"), str(tmp_path / "seen.avi")
    clip = cv2.VideoWriter(source, cv2.VideoWriter.fourcc(*"MJPG"), 1000.0, (320, 240))
    for _ in range(3):
        clip.write(frame())
    clip.release()
    live_camera = example("live_camera")
    lines = list(live_camera.watch(stream, live_camera.frames_of(source), live_camera.video_file(out)))
    assert [line.partition(": ")[2] for line in lines] == ["Night"]
    assert cv2.VideoCapture(out).get(cv2.CAP_PROP_FRAME_COUNT) == 3


def test_the_example_works_without_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    live_camera = example("live_camera")
    assert live_camera.window() is None
    assert "waiting" in live_camera.in_words(StreamAnswer(0, 0.0, Done.ASKED))
