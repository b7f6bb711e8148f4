"""A phone that films exhibits in passing, connected to an edge by a link, and what each frame shows.

The clip is generated once and kept. A contender receives its frames as from a camera: one every 33 ms,
without waiting for the contender. For each frame, the content that the application would show is recorded
together with the true content.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InternalError, NearsightError
from nearsight.common.recognition.results import Corners
from nearsight.device.recognition import Recognition
from nearsight.device.recognizer import Recognizer
from nearsight.device.video.stream import LiveStream
from nearsight.experiments.framework.experiment import Row
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.museum.art.exhibit import render_reference
from nearsight.experiments.museum.camera.handheld import Filming, Frame, Stay, film
from nearsight.experiments.museum.generation import object_id
from nearsight.experiments.museum.settings import UNKNOWN_FROM
from nearsight.experiments.rig.processes import ProcessGroup
from nearsight.experiments.rig.tiers import RunningLink, deployed, endpoint_of

FRAMES_PER_S = 30.0
TO_EDGE = LinkShape(rtt_ms=10.0)
"""Link to an edge 5 ms away."""
TO_CLOUD = LinkShape(rtt_ms=40.0)
_QUALITY = 95
"""Quality of the frames on disk, as in a camera's motion JPEG."""
_LIVELINESS = 0.5
_EARLIER = 5
"""Number of earlier visitors who teach the edge its predictions."""

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Walk:
    """Content of a clip."""

    exhibits: Sequence[int]
    """Indices in the museum, in the order in which the visitor stands before them."""
    dwell_s: float
    size: tuple[int, int] = (1280, 720)
    """Width and height of a frame."""


def clip_of(folder: Path, museum_seed: int, walk: Walk, seed: int) -> list[Frame]:
    """Load the frames of a walk into memory; they are filmed first if they are not in the folder."""
    name = f"{walk.size[0]}x{walk.size[1]}-{walk.dwell_s:g}s-{'-'.join(map(str, walk.exhibits))}-seed{seed}"
    frames, truth = folder / f"{name}.avi", folder / f"{name}.json"
    if not truth.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        _film(frames, truth, museum_seed, walk, seed)
    video = cv2.VideoCapture(str(frames))
    return [
        Frame(one["at_s"], np.asarray(video.read()[1], np.uint8), one["object_id"], np.array(one["corners"]))
        for one in json.loads(truth.read_text())
    ]


def _film(frames: Path, truth: Path, museum_seed: int, walk: Walk, seed: int) -> None:
    stays = [
        Stay(object_id(one) if one < UNKNOWN_FROM else None, render_reference(museum_seed, one), walk.dwell_s)
        for one in walk.exhibits
    ]
    motion_jpeg = cv2.VideoWriter.fourcc(*"MJPG")
    video = cv2.VideoWriter(str(frames), motion_jpeg, FRAMES_PER_S, walk.size)
    video.set(cv2.VIDEOWRITER_PROP_QUALITY, _QUALITY)
    noted = []
    for frame in film(stays, Filming(_LIVELINESS, FRAMES_PER_S, walk.size), seed):
        if frame.corners is None:
            raise InternalError("a clip of the museum without corners")
        video.write(frame.image)
        noted.append(
            {"at_s": frame.at_s, "object_id": frame.object_id, "corners": frame.corners.round(2).tolist()}
        )
    video.release()
    truth.write_text(json.dumps(noted))


@dataclass(slots=True)
class Shown:
    """Content that an application shows over one frame, and the outcome of the frame's own request."""

    done: str = ""
    """Outcome of the frame's own request, or the reason why there was none."""
    answered_ms: float | None = None
    """Time from the frame to its own answer [ms]; None without an answer."""
    answer: str = ""
    """The object in its own answer; empty: unknown, or no answer."""
    object_id: str = ""
    """The object in the answer that is shown; empty: unknown, or no answer."""
    age_ms: float | None = None
    """Age of that answer: time from the frame that it belongs to until this frame is shown [ms]."""
    outline: Corners | None = None
    """Outline as drawn over this frame."""


class Screen:
    """Records what an application shows over each frame of a clip.

    Parameters
    ----------
    frames : int
        Number of frames of the clip.
    """

    def __init__(self, frames: int) -> None:
        self.shown = [Shown() for _ in range(frames)]
        self._given_s = [0.0] * frames
        self._lock = threading.Lock()
        self._newest: tuple[int, Recognition] | None = None

    def ask(self, number: int, image: Pixels, recognizer: Recognizer) -> None:
        """Send a frame as a photo; show the answer of the newest answered frame."""
        self._given_s[number] = time.monotonic()
        recognizer.recognize(image, lambda outcome: self._answered(number, outcome))
        with self._lock:
            if self._newest is not None:
                asked, answer = self._newest
                self._show(number, asked, answer, answer.corners)

    def push(self, number: int, image: Pixels, stream: LiveStream) -> None:
        """Pass a frame to a stream, and show the stream's answer."""
        self._given_s[number] = time.monotonic()
        answer = stream.push(image)
        self.shown[number].done = answer.done.value
        if answer.recognition is not None and answer.asked is not None:
            age_ms = self._show(number, answer.asked, answer.recognition, answer.outline)
            asked = self.shown[answer.asked]
            asked.answered_ms = age_ms if asked.answered_ms is None else asked.answered_ms
            asked.answer = answer.recognition.object_id or ""

    def _show(self, number: int, asked: int, answer: Recognition, outline: Corners | None) -> float:
        shown, age_ms = self.shown[number], (time.monotonic() - self._given_s[asked]) * 1e3
        shown.object_id, shown.outline, shown.age_ms = answer.object_id or "", outline, age_ms
        return age_ms

    def _answered(self, number: int, outcome: Recognition | NearsightError) -> None:
        shown = self.shown[number]
        with self._lock:
            if isinstance(outcome, NearsightError):
                shown.done = type(outcome).__name__
                return
            shown.done, shown.answer = outcome.answered_by, outcome.object_id or ""
            shown.answered_ms = (time.monotonic() - self._given_s[number]) * 1e3
            if self._newest is None or self._newest[0] < number:
                self._newest = number, outcome


def in_real_time(clip: Sequence[Frame]) -> Iterator[tuple[int, Frame]]:
    """Yield each frame at its time; a late frame is yielded at once, and none is skipped."""
    start_s, wait = time.monotonic(), threading.Event().wait
    for number, frame in enumerate(clip):
        wait(max(0.0, start_s + frame.at_s - time.monotonic()))
        yield number, frame


@contextmanager
def running(folder: Path, database: Path, exhibits: int, seed: int) -> Iterator[tuple[str, str]]:
    """Start cloud, edge and links as processes; earlier visitors have passed all exhibits.

    Yields the endpoints of edge and cloud, behind their links.
    """
    earlier = [(f"earlier-{one}", object_id(number)) for one in range(_EARLIER) for number in range(exhibits)]
    with (
        deployed(folder, database=database, edges={"": {}}, network=TO_CLOUD, seed=seed) as tiers,
        ProcessGroup(folder / "near") as group,
    ):
        near = RunningLink.started(group, endpoint_of(tiers.edges[""]), TO_EDGE, seed=seed)
        tiers.warm_up(earlier, {"": None}, with_models=True)
        tiers.link.reshape(TO_CLOUD)
        yield near.endpoint, tiers.link.endpoint


def overlap(outline: Corners | None, true: NDArray[np.float64] | None) -> float:
    """Intersection over union of two quadrangles; 0 if one is not convex, or there is no outline."""
    if outline is None or true is None:
        return 0.0
    one, other = np.array(outline, np.float32), true.astype(np.float32)
    if not (cv2.isContourConvex(one) and cv2.isContourConvex(other)):
        return 0.0
    common, _ = cv2.intersectConvexConvex(one, other)
    union = cv2.contourArea(one) + cv2.contourArea(other) - common
    return float(common / union) if union > 0 else 0.0


def row_of(number: int, frame: Frame, shown: Shown) -> Row:
    """Row of a frame."""
    right = bool(frame.object_id) and shown.object_id == frame.object_id and shown.outline is not None
    true = frame.corners
    off = np.abs(np.array(shown.outline) - true) if right and true is not None else None
    return {
        "frame": number,
        "at_s": round(frame.at_s, 4),
        "true": frame.object_id or "",
        "shown": shown.object_id,
        "done": shown.done,
        "answer": shown.answer,
        "answered_ms": "" if shown.answered_ms is None else round(shown.answered_ms, 2),
        "age_ms": "" if shown.age_ms is None else round(shown.age_ms, 2),
        "overlap": "" if off is None else round(overlap(shown.outline, true), 4),
        "off_px": "" if off is None else round(float(np.hypot(off[:, 0], off[:, 1]).mean()), 2),
    }
