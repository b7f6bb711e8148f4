"""A phone that films while its owner walks past exhibits, before an edge over a link: what each frame shows.

The clip is generated once and kept. A contender gets its frames as a camera gives them: one every 33 ms, and
none waits for it. What the application would show is noted at each frame, beside what the frame truly shows.
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
"""An edge 5 ms away."""
TO_CLOUD = LinkShape(rtt_ms=40.0)
_QUALITY = 95
"""Of the frames on disk, as of a camera's motion JPEG."""
_LIVELINESS = 0.5
_EARLIER = 5
"""Visitors from whom the edge learnt what is asked for next."""

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Walk:
    """What is filmed."""

    exhibits: Sequence[int]
    """Numbers in the museum, in the order in which the owner stands before them."""
    dwell_s: float
    size: tuple[int, int] = (1280, 720)
    """Width and height of a frame."""


def clip_of(folder: Path, museum_seed: int, walk: Walk, seed: int) -> list[Frame]:
    """The frames of a walk, in memory; they are filmed if they are not in the folder."""
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
    """What an application shows over one frame, and what became of the frame."""

    done: str = ""
    """What became of the frame: the outcome of its own question, or why there was none."""
    answered_ms: float | None = None
    """From the frame to its own answer; None without one."""
    answer: str = ""
    """The object in its own answer; empty: unknown, or no answer."""
    object_id: str = ""
    """In the answer that is shown; empty: unknown, or no answer."""
    age_ms: float | None = None
    """Of that answer: from the frame that it was given to, to the moment at which this frame is shown."""
    outline: Corners | None = None
    """As it is drawn over this frame."""


class Screen:
    """Notes what an application shows over each frame of a clip.

    Parameters
    ----------
    frames : int
        Of the clip.
    """

    def __init__(self, frames: int) -> None:
        self.shown = [Shown() for _ in range(frames)]
        """By frame."""
        self._given_s = [0.0] * frames
        self._lock = threading.Lock()
        self._newest: tuple[int, Recognition] | None = None

    def ask(self, number: int, image: Pixels, recognizer: Recognizer) -> None:
        """Give a frame as a photo; over it the answer to the newest frame that has one is shown."""
        self._given_s[number] = time.monotonic()
        recognizer.recognize(image, lambda outcome: self._answered(number, outcome))
        with self._lock:
            if self._newest is not None:
                asked, answer = self._newest
                self._show(number, asked, answer, answer.corners)

    def push(self, number: int, image: Pixels, stream: LiveStream) -> None:
        """Give a frame to a stream, and show what that says."""
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
    """Each frame when the camera has it; one that is late is not made up for."""
    start_s, wait = time.monotonic(), threading.Event().wait
    for number, frame in enumerate(clip):
        wait(max(0.0, start_s + frame.at_s - time.monotonic()))
        yield number, frame


@contextmanager
def running(folder: Path, database: Path, exhibits: int, seed: int) -> Iterator[tuple[str, str]]:
    """Cloud, edge and links as processes of their own; earlier visitors have walked past all exhibits.

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
    """What is kept of a frame."""
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
