"""The interface of every recognizer: three ways to request a recognition, live streams, and a clean end.

A subclass chooses what answers: a cache and tiers (`Recognizer`), or a whole catalogue in this process
(`LocalRecognizer`). See ``docs/sdk.md`` for outcomes, threads and deadlines.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Self
from weakref import WeakSet, finalize, ref

from nearsight.common.errors import NearsightError
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.settings import ImageLimits
from nearsight.common.request.effects import Stage
from nearsight.common.request.next_tiers import NextTiers
from nearsight.common.rpc.envelope import LONGEST_S
from nearsight.device.callback_thread import Callback, CallbackThread, running_loop
from nearsight.device.engine import Outcome, RecognizerObserver, RequestEngine
from nearsight.device.forks import check_process
from nearsight.device.image_sources import AnyImage, snapshot
from nearsight.device.query import DeviceQuery, QueryContext
from nearsight.device.recognition import Recognition, RequestHandle
from nearsight.device.recognizer_settings import RequestSettings
from nearsight.device.tiers import RemoteTier
from nearsight.device.video.live_view import StreamSettings
from nearsight.device.video.stream import Ask, LiveStream, StreamAnswer

if TYPE_CHECKING:
    from nearsight.device.video.session import VideoSession

CLOSE_TIMEOUT_S = 5.0
"""Maximum wait of `BaseRecognizer.close` for running and queued callbacks [s]."""


class BaseRecognizer:
    """Requests recognitions from stages of this device and from tiers. Safe to use from several threads.

    Every request ends with exactly one outcome before its deadline: a `Recognition` (which may be "unknown")
    or a `NearsightError`. Close the recognizer, or use it in a ``with`` block. One that is still open when
    the program exits is closed then; one that is garbage-collected is closed with a `ResourceWarning`.

    Parameters
    ----------
    tiers, stages, next_tiers, observers
        As for `RequestEngine`.
    context : QueryContext
        Shared state of all photos. Its clock must run in real time.
    settings : RequestSettings
        Deadlines, limits.
    close_more : callable, optional
        Frees the resources of a subclass, after the last request and before the last callback. It must not
        refer to the recognizer, which would never be garbage-collected.
    """

    def __init__(
        self,
        tiers: Mapping[str, RemoteTier],
        context: QueryContext,
        stages: Sequence[Stage[DeviceQuery]],
        settings: RequestSettings,
        next_tiers: NextTiers,
        observers: Sequence[RecognizerObserver],
        close_more: Callable[[], object] | None = None,
    ) -> None:
        upload, self._clock = context.upload, context.clock
        query = partial(DeviceQuery, context=context)
        self._engine = RequestEngine(tiers, query, stages, settings, context.clock, next_tiers, observers)
        self._callbacks = CallbackThread()
        self._process = os.getpid()
        self._settings = settings
        self._recognises_here = bool(stages and tiers)
        self._limits = ImageLimits(upload.max_bytes, upload.max_pixels)
        self._streams: WeakSet[LiveStream] = WeakSet()
        self._free = partial(_free, self._engine, close_more, self._callbacks)
        self._finalizer = finalize(self, _end, ref(self), self._process, self._engine, self._free)

    def recognize(
        self,
        image: AnyImage | Features,
        callback: Callback[Recognition | NearsightError],
        *,
        timeout_s: float | None = None,
    ) -> RequestHandle:
        """Request the recognition of an image; returns at once.

        Parameters
        ----------
        image : bytes, path, ndarray, binary file or Pillow image
            A JPEG, PNG or WebP file as bytes, its path, or a file object of it; pixels ``(H, W)``,
            ``(H, W, 3)`` or ``(H, W, 4)`` uint8 in OpenCV's order (blue, green, red, alpha, which is
            dropped); or an image of Pillow. Buffers are copied: reuse them as soon as this returns.
            `Features` that were extracted elsewhere are accepted as well.
        callback : callable
            Called exactly once, with a `Recognition` or a `NearsightError`, on the callback thread. Callbacks
            run one after another in the order in which requests were completed, so a slow one delays the
            others. An ``async`` function is awaited before the next callback: on the event loop that runs in
            the calling thread, if there is one, else on a loop of the callback thread. An exception is
            logged.
        timeout_s : float, optional
            Seconds until the deadline of the outcome. Default: ``settings.timeout_s``.

        Raises
        ------
        TypeError
            If ``image`` has an unsupported type, or ``callback`` cannot be called.
        ValueError
            If ``timeout_s`` is not above 0, or over a day.
        RuntimeError
            If this process was forked from the one that made the recognizer.
        """
        return self.recognize_for(image, callback, timeout_s=timeout_s)

    def recognize_for(
        self,
        image: AnyImage | Features,
        callback: Callback[Recognition | NearsightError],
        *,
        timeout_s: float | None = None,
        one_look: bool = False,
        trace_id: str = "",
    ) -> RequestHandle:
        """As `recognize`, for the request of another program.

        Parameters
        ----------
        one_look : bool
            More photos of the same scene follow, so the tiers need not look a second time.
        trace_id : str
            The program's id of the request in all tiers and logs; empty: a random one.
        """
        if not callable(callback):
            raise TypeError(f"callback must be callable, not {type(callback).__name__}")
        loop = running_loop()

        def deliver(outcome: Outcome) -> None:
            self._callbacks.submit(partial(self._call, callback, outcome), loop)

        return self._submit(image, deliver, timeout_s, one_look=one_look, trace_id=trace_id)

    async def recognize_async(
        self, image: AnyImage | Features, *, timeout_s: float | None = None
    ) -> Recognition:
        """Await the recognition of an image. Cancelling the task cancels the request.

        Raises
        ------
        NearsightError
            If the request failed.
        TypeError, ValueError, RuntimeError
            As `recognize`.
        """
        handle = self._submit(image, None, timeout_s)
        try:
            return await asyncio.wrap_future(handle.outcome)
        except asyncio.CancelledError:
            handle.cancel()
            raise

    def recognize_blocking(
        self, image: AnyImage | Features, *, timeout_s: float | None = None
    ) -> Recognition:
        """Wait for the recognition of an image. May be used inside a callback.

        Raises
        ------
        NearsightError
            If the request failed.
        TypeError, ValueError, RuntimeError
            As `recognize`.
        """
        return self._submit(image, None, timeout_s).outcome.result()

    def stream(
        self,
        frames: Iterable[AnyImage] | None = None,
        callback: Callback[StreamAnswer] | None = None,
        *,
        settings: StreamSettings | None = None,
        network: VideoSession | None = None,
    ) -> LiveStream:
        """Recognise the frames of a camera; returns at once.

        Parameters
        ----------
        frames : iterable of images, optional
            Read one after another on a thread of the stream. Without it, pass each frame to
            `LiveStream.push`, which returns its answer.
        callback : callable, optional
            With ``frames``: called on that thread with the `StreamAnswer` of each frame, before the next
            frame is read. May be ``async``, as that of `recognize`. An exception in it is logged.
        settings : StreamSettings, optional
            How often frames are sent as requests.
        network : VideoSession, optional
            A network on the device that answers after the result cache; no tier is called. Only this stream
            may use it; close it after the stream. By default at most one request is in flight then.

        Raises
        ------
        InvalidArgument
            If the network has no labels.
        TypeError
            If only one of ``frames`` and ``callback`` is given, or ``callback`` cannot be called.
        """
        if (frames is None) != (callback is None) or not (callback is None or callable(callback)):
            raise TypeError("give frames with a callback that can be called, or neither")
        ask: Ask = self._submit
        looks_here = self._recognises_here and network is None
        if network is not None:
            from nearsight.device.video.network_stage import stages_of  # noqa: PLC0415  only if needed

            ask = partial(self._submit, stages=stages_of(network, self._settings.result_cache, self._clock))
            settings = settings or StreamSettings(credits=1)  # it executes one frame at a time
        settings = settings or StreamSettings()
        stream = LiveStream(ask, settings, self._limits, self._clock, looks_here=looks_here)
        self._streams.add(stream)
        if frames is not None and callback is not None:
            stream.start(frames, callback)
        return stream

    @property
    def pending(self) -> int:
        """Number of requests in flight."""
        return self._engine.pending

    def close(self) -> None:
        """End requests in flight with `Cancelled`, run the remaining callbacks, free all resources.

        When called from a callback, it does not wait for the callbacks. It does not wait either for callbacks
        that are awaited on the event loop of the calling thread, nor for those behind them. Later requests
        are answered `Cancelled`. May be called twice. In a forked process it does nothing, because the
        resources belong to the original process.
        """
        if os.getpid() != self._process:
            return
        for stream in list(self._streams):
            stream.close()
        self._finalizer.detach()
        self._free(CLOSE_TIMEOUT_S)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied, as its threads belong to this process: "
            "make one in each process"
        )

    def _call(self, callback: Callback[Outcome], outcome: Outcome) -> object:
        """Run a callback: as a method, so that the recognizer exists until its last callback has run."""
        return callback(outcome)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit(
        self,
        image: AnyImage | Features,
        deliver: Callable[[Outcome], None] | None,
        timeout_s: float | None,
        *,
        one_look: bool = False,
        only_here: bool = False,
        stages: Sequence[Stage[DeviceQuery]] | None = None,
        trace_id: str = "",
    ) -> RequestHandle:
        check_process(self._process, type(self).__name__)
        allowed_s, source = self._allowed_s(timeout_s), snapshot(image, self._limits)
        return self._engine.submit(
            source,
            deliver,
            allowed_s,
            one_look=one_look,
            only_here=only_here,
            stages=stages,
            trace_id=trace_id,
        )

    def _allowed_s(self, timeout_s: float | None) -> float:
        allowed_s = self._settings.timeout_s if timeout_s is None else timeout_s
        if not isinstance(allowed_s, int | float):
            raise TypeError(f"timeout_s must be a number of seconds, not {type(allowed_s).__name__}")
        if not 0 < allowed_s <= LONGEST_S:
            raise ValueError(f"timeout_s must be above 0 and at most {LONGEST_S:g} seconds, got {allowed_s}")
        return allowed_s


def _free(
    engine: RequestEngine,
    close_more: Callable[[], object] | None,
    callbacks: CallbackThread,
    timeout_s: float,
) -> None:
    engine.close()
    if close_more is not None:
        close_more()
    callbacks.close(timeout_s)


def _end(
    recognizer: ref[BaseRecognizer], process: int, engine: RequestEngine, free: Callable[[float], None]
) -> None:
    """End a recognizer that was not closed: the program exits, or it was garbage-collected."""
    if os.getpid() != process:
        return
    if (still := recognizer()) is not None:
        still.close()
        return
    # The garbage collector may run in any thread, which may hold any lock; so it must not wait here.
    engine.call_soon(partial(free, 0.0))
    warnings.warn(
        "a recognizer was not closed: call close(), or use it in a with block", ResourceWarning, stacklevel=2
    )
