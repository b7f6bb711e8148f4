"""Live stream: takes the frames of a camera and returns for each what it shows.

`LiveStream.push` never waits for a tier. It takes some milliseconds on the calling thread: a fast check of
the frame, optical flow, and a copy of the frame if it is sent. Answers to earlier frames are processed there,
too, so that all decisions of a stream are made by one thread at a time (`live_view`).
"""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop, CancelledError
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol, Self

from nearsight.common.clock import Clock
from nearsight.common.errors import Cancelled, NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.results import Corners
from nearsight.common.recognition.settings import ImageLimits
from nearsight.device.callback_thread import Callback, await_result, running_loop
from nearsight.device.engine import Outcome
from nearsight.device.image_sources import AnyImage, plain_image
from nearsight.device.recognition import Recognition, RequestHandle
from nearsight.device.video.live_view import Done, LiveView, StreamSettings

_LOOK_PX = 320
"""Longest side of the reduced frames that are compared and tracked."""
_CLOSE_TIMEOUT_S = 5.0


class Ask(Protocol):
    """Sends a request: image, callback for its outcome (at once or later, on any thread), deadline [s]."""

    def __call__(
        self,
        image: AnyImage,
        deliver: Callable[[Outcome], None],
        timeout_s: float,
        *,
        one_look: bool,
        only_here: bool,
    ) -> RequestHandle:
        """Return at once. With ``one_look`` tiers make only one recognition attempt.

        With ``only_here`` no tier is called, and the request fails if the device does not know the object.
        """


_log = get_logger("device.stream")


@dataclass(frozen=True, slots=True)
class StreamAnswer:
    """Answer for one frame of a stream.

    Attributes
    ----------
    number : int
        Number of the frame, from 0.
    at_s : float
        Arrival time of the frame on the recognizer's clock (`time.monotonic`).
    done : Done
        What was done with it: "asked", "looked", "tracked", "unchanged", "blurred", "superseded", "paused",
        "invalid".
    recognition : Recognition or None
        The current answer, which may be "unknown"; None if there is none. Its own corners are those in the
        frame that was sent.
    outline : four (x, y) pairs, or None
        Outline of the object in this frame, in its pixels; None if unknown.
    asked : int or None
        Number of the frame to which the answer was given.
    age_s : float or None
        Time since that frame arrived.
    error : NearsightError or None
        Error of the last request, until one succeeds; or the reason why this frame is invalid.
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
    """Recognises what a camera sees, frame by frame. Created by `Recognizer.stream`. Thread-safe.

    Parameters
    ----------
    ask : callable
        Sends a request.
    settings : StreamSettings
        Limits of the requests.
    limits : ImageLimits
        Limits of a frame.
    clock : Clock
        Clock of frames and answers.
    looks_here : bool
        Whether the device may recognise frames without a tier.
    """

    def __init__(
        self,
        ask: Ask,
        settings: StreamSettings,
        limits: ImageLimits,
        clock: Clock,
        *,
        looks_here: bool = False,
    ) -> None:
        self._ask = ask
        self._settings = settings
        self._limits = replace(limits, longest_side=_LOOK_PX)
        self._clock = clock
        self._view = LiveView(settings, looks_here=looks_here)
        self._lock = threading.Lock()
        self._next = 0
        self._open: dict[int, RequestHandle] = {}
        self._outcomes: deque[tuple[int, Outcome]] = deque()  # filled by other threads
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: AbstractEventLoop | None = None
        self._failure: BaseException | None = None

    def push(self, frame: AnyImage) -> StreamAnswer:
        """Process the newest frame; returns what it shows, as far as known.

        Parameters
        ----------
        frame : ndarray, or another image
            As for `Recognizer.recognize`: mostly ``(H, W, 3)`` uint8 of a camera. Its buffer may be reused
            after the call. Size and format may change; after that, earlier answers are not valid.

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
            if done in (Done.ASKED, Done.LOOKED):
                try:
                    self._open[number] = self._ask(
                        image,
                        lambda outcome: self._outcomes.append((number, outcome)),
                        self._settings.timeout_s,
                        one_look=view.one_look,
                        only_here=done is Done.LOOKED,
                    )
                except BaseException:  # such as a `MemoryError`; the credit must become free
                    view.failed(number, Cancelled("the request was not sent"), now_s)
                    raise
            return self._answer(number, now_s, done, view.error)

    def run(
        self,
        frames: Iterable[AnyImage],
        callback: Callback[StreamAnswer],
        loop: AbstractEventLoop | None = None,
    ) -> None:
        """Push all frames of an iterable, and call ``callback`` with each answer before the next frame.

        The result of an ``async`` callback is awaited on ``loop``, or on a new loop if None. An exception in
        the callback is logged, and the stream continues. An exception in the iterable, or ``sys.exit()`` in
        the callback, ends the stream and is raised here. Returns after the last frame, or when the stream is
        closed.
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
            # The application's code may raise any exception or cancel itself; the stream continues.
            except (Exception, CancelledError):  # noqa: BLE001
                _log.exception("the callback of a stream raised", frame=answer.number)

    def start(self, frames: Iterable[AnyImage], callback: Callback[StreamAnswer]) -> None:
        """Execute `run` on a new thread, and end the stream after the last frame. Call once per stream."""
        loop = self._loop = running_loop()

        def run() -> None:
            try:
                self.run(frames, callback, loop)
            except BaseException as error:  # noqa: BLE001  whatever a camera raises; `wait` raises it again
                self._failure = error
                _log.warning("the frames of a stream ended with an error", error=repr(error))
            self._end()

        self._thread = threading.Thread(target=run, name="nearsight-stream", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the last frame's callback; False after the timeout. Raises the error that ended `run`."""
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return False
        if self._failure is not None:
            raise self._failure
        return True

    def close(self) -> None:
        """Cancel requests in flight and accept no more frames. No callback runs afterwards.

        May be called twice. Waits up to 5 s for a running callback. Does not wait if called in the callback
        or on the thread of the event loop on which the callback is awaited.
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
        while self._outcomes:
            number, outcome = self._outcomes.popleft()
            self._open.pop(number, None)
            if isinstance(outcome, NearsightError):
                self._view.failed(number, outcome, now_s)
            else:
                self._view.answered(number, outcome)

    def _answer(self, number: int, now_s: float, done: Done, error: NearsightError | None) -> StreamAnswer:
        view, current = self._view, self._view.current
        if current is None or done is Done.INVALID:
            return StreamAnswer(number, now_s, done, error=error)
        age_s = now_s - current.frame.at_s
        return StreamAnswer(
            number, now_s, done, current.recognition, view.outline, current.frame.number, age_s, error
        )
