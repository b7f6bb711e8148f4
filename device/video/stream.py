"""A live stream: the frames of a camera in, for each of them what it shows.

`LiveStream.push` never waits for a tier. It takes some milliseconds of the calling thread: a glance at the
frame, optical flow, and a copy of the frame if it is asked for. Answers of earlier frames are taken up there,
so all decisions of a stream are made by one thread at a time (`live_view`).
"""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop, CancelledError
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Protocol, Self

from nearsight.common.clock import Clock
from nearsight.common.errors import Cancelled, NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.results import Corners
from nearsight.common.recognition.settings import ImageLimits
from nearsight.device.callback_thread import Callback, await_result, running_loop
from nearsight.device.image_sources import AnyImage, plain_image
from nearsight.device.recognition import Recognition, RequestHandle
from nearsight.device.video.live_view import Done, LiveView, StreamSettings

_LOOK_PX = 320
"""Longest side of the frames that are compared and followed."""
_CLOSE_TIMEOUT_S = 5.0

Outcome = Recognition | NearsightError


class Ask(Protocol):
    """Puts a question: the image, who gets its outcome (at once or later, from any thread), deadline [s]."""

    def __call__(
        self, image: AnyImage, deliver: Callable[[Outcome], None], timeout_s: float, *, one_look: bool
    ) -> RequestHandle:
        """Returns at once. With ``one_look`` no tier looks again at what is unknown at first."""


_log = get_logger("device.stream")


@dataclass(frozen=True, slots=True)
class StreamAnswer:
    """What one frame of a stream shows.

    Attributes
    ----------
    number : int
        Of the frame, from 0.
    at_s : float
        When it came, on the clock of the recognizer (`time.monotonic`).
    done : Done
        What was done with it: "asked", "tracked", "unchanged", "blurred", "superseded", "paused", "invalid".
    recognition : Recognition or None
        The answer in force, which may be "unknown"; None if there is none. Its own corners are those in the
        frame that was asked.
    outline : four (x, y) pairs, or None
        Where the object is in this frame, in its pixels; None if that is not known.
    asked : int or None
        The frame that the answer was given to.
    age_s : float or None
        How long ago that frame came.
    error : NearsightError or None
        Why the last question failed, until one is answered; or why this frame cannot be used.
    """

    number: int
    at_s: float
    done: Done
    recognition: Recognition | None = None
    outline: Corners | None = None
    asked: int | None = None
    age_s: float | None = None
    error: NearsightError | None = None


class LiveStream:
    """Recognises what a camera sees, frame by frame. Made by `Recognizer.stream`. Thread-safe.

    Parameters
    ----------
    ask : callable
        Puts a question.
    settings : StreamSettings
        How it asks.
    limits : ImageLimits
        Of a frame.
    clock : Clock
        Time of frames and answers.
    """

    def __init__(self, ask: Ask, settings: StreamSettings, limits: ImageLimits, clock: Clock) -> None:
        self._ask = ask
        self._settings = settings
        self._limits = replace(limits, longest_side=_LOOK_PX)
        self._clock = clock
        self._view = LiveView(settings)
        self._lock = threading.Lock()
        self._next = 0
        self._open: dict[int, RequestHandle] = {}
        self._outcomes: SimpleQueue[tuple[int, Outcome]] = SimpleQueue()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: AbstractEventLoop | None = None
        self._failure: BaseException | None = None

    def push(self, frame: AnyImage) -> StreamAnswer:
        """Give the newest frame; returns what it shows, as far as that is known.

        Parameters
        ----------
        frame : ndarray, or another image
            As for `Recognizer.recognize`: mostly ``(H, W, 3)`` uint8 of a camera. Its buffer may be reused as
            soon as this returns. Size and format may change; then nothing holds from before.

        Raises
        ------
        Cancelled
            If the stream is closed.
        """
        with self._lock:
            if self._closed.is_set():
                raise Cancelled("the stream is closed", advice="open a new one")
            number, self._next = self._next, self._next + 1
            now_s, view = self._clock.monotonic(), self._view
            self._take_answers(now_s)
            try:
                image = plain_image(frame, self._limits)
                done = view.frame(number, load_image(image, self._limits), now_s)
            except NearsightError as error:
                return self._answer(number, now_s, Done.INVALID, error)
            if done is Done.ASKED:
                self._open[number] = self._ask(
                    image,
                    lambda outcome: self._outcomes.put((number, outcome)),
                    self._settings.timeout_s,
                    one_look=view.one_look,
                )
            return self._answer(number, now_s, done, view.error)

    def run(
        self,
        frames: Iterable[AnyImage],
        callback: Callback[StreamAnswer],
        loop: AbstractEventLoop | None = None,
    ) -> None:
        """Push all frames of an iterable; ``callback`` gets the answer to each, before the next is taken.

        What an ``async`` callback returns is awaited on ``loop``, or on a loop of its own if None. An
        exception in the callback is logged, and the stream goes on; one of the iterable ends it and is raised
        here, as is ``sys.exit()`` in the callback. Ends after the last frame, or when the stream is closed.
        """
        for frame in frames:
            try:
                answer = self.push(frame)
            except Cancelled:
                return
            if self._closed.is_set():
                return
            try:
                await_result(callback(answer), loop)
            # The application's code may raise anything, and cancel itself; the stream goes on.
            except (Exception, CancelledError):  # noqa: BLE001
                _log.exception("the callback of a stream raised", frame=answer.number)

    def start(self, frames: Iterable[AnyImage], callback: Callback[StreamAnswer]) -> None:
        """`run` on a thread of its own, which ends the stream after the last frame. Once per stream."""
        loop = self._loop = running_loop()

        def run() -> None:
            try:
                self.run(frames, callback, loop)
            except BaseException as error:  # noqa: BLE001  a camera may raise anything; `wait` hands it on
                self._failure = error
                _log.warning("the frames of a stream ended with an error", error=repr(error))
            self._end()

        self._thread = threading.Thread(target=run, name="nearsight-stream", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the last frame's callback; False if that takes longer. Raises what ended `run`."""
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return False
        if self._failure is not None:
            raise self._failure
        return True

    def close(self) -> None:
        """End questions in flight and take no more frames; no callback runs afterwards. May be called twice.

        Waits for a callback that runs, not longer than 5 s, and from within one not at all, nor in the thread
        of the event loop on which it is awaited.
        """
        self._end()
        own = running_loop()
        awaited_here = own is not None and own is self._loop
        if self._thread is not None and threading.current_thread() is not self._thread and not awaited_here:
            self._thread.join(_CLOSE_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self) -> None:
        self._closed.set()
        with self._lock:
            left, self._open = list(self._open.values()), {}
        for handle in left:
            handle.cancel()

    def _take_answers(self, now_s: float) -> None:
        while True:
            try:
                number, outcome = self._outcomes.get_nowait()
            except Empty:
                return
            self._open.pop(number, None)
            if isinstance(outcome, NearsightError):
                self._view.failed(number, outcome, now_s)
            else:
                self._view.answered(number, outcome)

    def _answer(self, number: int, now_s: float, done: Done, error: NearsightError | None) -> StreamAnswer:
        view, holding = self._view, self._view.holding
        if holding is None or done is Done.INVALID:
            return StreamAnswer(number, now_s, done, error=error)
        age_s = now_s - holding.at_s
        return StreamAnswer(
            number, now_s, done, holding.recognition, view.outline, holding.number, age_s, error
        )
