"""Which frames of a stream are asked for, and what holds for each frame until the next answer. Pure.

A question takes longer than a frame lasts. So each frame first moves the outline of the answer in force, and
only some frames are asked for. The rules, in this order:

- The answer in force holds as long as its outline can be followed. Without an outline (results, networks,
  unknown) it holds until the scene changes.
- A new question is due if no answer holds, if the outline was lost, or if the last question is old.
- A frame that looks like the last one asked needs no question. A blurred one, or one of a fast turn, is not
  worth it: its question would hold a credit while better frames come.
- Credits bound the questions in flight: without one the frame is superseded, and a newer one will be asked.
- A question gets one look, which is fast: other frames follow. What stays unknown gets a second look, too.
- After questions that failed, the stream waits longer and longer. The answer in force still holds.

An answer belongs to the frame that was asked, some frames ago. It comes into force if its outline can be
followed to the present frame, or if the scene is still the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument, NearsightError
from nearsight.common.recognition.images import GrayImage
from nearsight.common.recognition.results import Corners
from nearsight.device.recognition import Recognition
from nearsight.device.video.gate import SAME_PICTURE, SAME_SCENE, STEADY, BlurGate, Glance, glance_at
from nearsight.device.video.tracking import Outline, OutlineTracker

_RECHECK_S = 1.0
"""A picture that does not change is asked for again after this time: the catalogue may have changed."""
_LONGEST_TURN_S = 0.3
"""A stream that moves all the time is asked for this often all the same."""
_UNKNOWN_IN_A_ROW = 3
"""Answers that end a known one that still holds: a known picture is not recognised in each frame."""
_SECOND_LOOK_S = 2.0
"""While the answer is unknown, one question in this time gets a second look, which takes thrice as long."""
_FIRST_PAUSE_S, _MOST_DOUBLINGS = 0.2, 3
"""After a question that failed; each further failure doubles it."""


class Done(StrEnum):
    """What was done with a frame."""

    ASKED = "asked"
    """It is a question now; the answer comes with a later frame."""
    TRACKED = "tracked"
    """The answer in force holds for it as well; no new question is due."""
    UNCHANGED = "unchanged"
    """It shows the same as the last frame that was asked."""
    BLURRED = "blurred"
    """A question was due, but not with this frame: it is blurred, or of a fast turn."""
    SUPERSEDED = "superseded"
    """A question was due, but as many are in flight as may be: a newer frame will be asked."""
    PAUSED = "paused"
    """A question was due, but the last ones failed, and the stream waits before the next."""
    INVALID = "invalid"
    """It is no image that can be used."""


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How a stream asks.

    Raises
    ------
    InvalidArgument
        If a number is out of range.
    """

    credits: int = 2
    """Questions in flight: one is made ready while another one is answered. While the scene is unknown: 1."""
    refresh_s: float = 0.09
    """An answer that holds is asked for anew after this time; inf: only when it is lost."""
    timeout_s: float = 1.0
    """Deadline of a question."""

    def __post_init__(self) -> None:
        if not (self.credits >= 1 and self.refresh_s >= 0 and 0 < self.timeout_s < math.inf):
            raise InvalidArgument(
                f"a stream has at least one credit, a refresh of 0 s or more and a finite timeout, got {self}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class _Frame:
    """A frame, shrunk."""

    number: int
    at_s: float
    image: GrayImage
    glance: Glance

    def shows_scene_of(self, other: _Frame) -> bool:
        return self.same_size(other) and self.glance.likeness(other.glance) >= SAME_SCENE

    def same_size(self, other: _Frame) -> bool:
        return self.image.source_size == other.image.source_size

    @property
    def _scale(self) -> NDArray[np.float32]:
        across, down = (of / by for of, by in zip(self.image.source_size, self.image.size, strict=True))
        return np.array([across, down], np.float32)

    def shrunk(self, corners: Corners) -> Outline:
        return np.asarray(np.array(corners, np.float32) / self._scale, np.float32)

    def in_source(self, outline: Outline) -> Corners:
        first, second, third, fourth = ((float(x), float(y)) for x, y in outline * self._scale)
        return first, second, third, fourth


@dataclass(frozen=True, slots=True)
class Holding:
    """The answer in force."""

    recognition: Recognition
    number: int
    at_s: float
    """The frame that was asked, and when it came."""


class LiveView:
    """The decisions of one stream.

    Parameters
    ----------
    settings : StreamSettings
        Credits and times.
    """

    def __init__(self, settings: StreamSettings) -> None:
        self._settings = settings
        self._blur = BlurGate()
        self._in_flight: dict[int, _Frame] = {}
        self._last_asked: _Frame | None = None
        self._now: _Frame | None = None
        self._basis: _Frame | None = None  # that the answer in force was given to
        self._tracker: OutlineTracker | None = None
        self._lost = False
        self._unknown = self._failures = 0
        self._resume_s = self._second_look_s = -math.inf
        self.one_look = True
        """Whether one look is enough for the frame that was asked last."""
        self.holding: Holding | None = None
        """The answer in force; None if none holds."""
        self.outline: Corners | None = None
        """Where its object is in the last frame, in pixels of the application's image."""
        self.error: NearsightError | None = None
        """Why the last question failed; None if it did not."""

    def frame(self, number: int, image: GrayImage, now_s: float) -> Done:
        """A frame came; numbers grow. After `Done.ASKED` the driver puts the question."""
        now = _Frame(number, now_s, image, glance_at(image.pixels))
        if self._now is not None and not now.same_size(self._now):
            self._drop()
        before, self._now, last = self._now, now, self._last_asked
        self._follow(now)
        blurred = self._blur.blurred(now.glance, now_s) or self._turning(before, now)
        if self._holds() and last is not None and now_s - last.at_s < self._settings.refresh_s:
            return Done.TRACKED
        if last is not None and _needs_no_question(now, last):
            return Done.UNCHANGED
        if blurred:
            return Done.BLURRED
        if len(self._in_flight) >= self._credits():
            return Done.SUPERSEDED
        if now_s < self._resume_s:
            return Done.PAUSED
        self._in_flight[number] = self._last_asked = now
        self._lost = False
        self.one_look = not self._stays_unknown(now_s)
        if not self.one_look:
            self._second_look_s = now_s
        return Done.ASKED

    def answered(self, number: int, recognition: Recognition) -> None:
        """The question of this frame was answered. Nothing happens if the answer in force is newer."""
        asked, now = self._in_flight.pop(number), self._now
        self._failures, self._resume_s, self.error = 0, -math.inf, None
        overtaken = self.holding is not None and self.holding.number > number
        if now is None or overtaken or not asked.same_size(now):
            return
        tracker = self._tracker_from(asked, now, recognition)
        if tracker is None and not asked.shows_scene_of(now):
            self._lost = True  # the picture has moved on: what it shows now is a new question
            return
        held = self.holding.recognition if self.holding is not None else None
        self._unknown = 0 if recognition.known else self._unknown + 1
        if held is not None and held.known and 0 < self._unknown < _UNKNOWN_IN_A_ROW:
            return
        if tracker is not None:
            self._tracker = tracker
        elif held is None or held.object_id != recognition.object_id:
            self._tracker = None
        self._lost = self._tracker is None and recognition.corners is not None
        self.holding, self._basis = Holding(recognition, number, asked.at_s), asked

    def failed(self, number: int, error: NearsightError, now_s: float) -> None:
        """The question of this frame failed."""
        del self._in_flight[number]
        if self._last_asked is not None and self._last_asked.number == number:
            self._last_asked = None
        pause_s = _FIRST_PAUSE_S * 2.0**self._failures
        self._failures = min(self._failures + 1, _MOST_DOUBLINGS)
        self._resume_s, self.error = now_s + pause_s, error

    def _tracker_from(self, asked: _Frame, now: _Frame, recognition: Recognition) -> OutlineTracker | None:
        """Follows the outline of an answer, from the frame that was asked to the present one."""
        if recognition.corners is None:
            return None
        tracker = OutlineTracker(asked.image.pixels, asked.shrunk(recognition.corners))
        return tracker if tracker.follow(now.image.pixels) is not None else None

    def _follow(self, now: _Frame) -> None:
        """Move the outline to this frame, and see whether the answer in force still holds."""
        self.outline = None
        if self._tracker is not None:
            outline = self._tracker.follow(now.image.pixels)
            if outline is not None:
                self.outline = now.in_source(outline)
                return
            self._tracker, self._lost = None, True
        if self._basis is not None and not now.shows_scene_of(self._basis):
            self.holding = self._basis = None

    def _holds(self) -> bool:
        return self.holding is not None and not self._lost

    def _credits(self) -> int:
        """Questions that may be in flight: one while the scene is unknown, as two delay each other."""
        return 1 if self._holds_unknown() else self._settings.credits

    def _stays_unknown(self, now_s: float) -> bool:
        """Whether the scene is unknown at first look, and had no second one for long."""
        return self._holds_unknown() and now_s - self._second_look_s >= _SECOND_LOOK_S

    def _holds_unknown(self) -> bool:
        """Whether the answer in force says that the scene is unknown."""
        return self.holding is not None and not self.holding.recognition.known

    def _turning(self, before: _Frame | None, now: _Frame) -> bool:
        """Whether the camera turns fast, and has not done so for long."""
        last = self._last_asked
        recent = last is not None and now.at_s - last.at_s < _LONGEST_TURN_S
        return recent and before is not None and now.glance.likeness(before.glance) < STEADY

    def _drop(self) -> None:
        """Nothing of frames of another size can be compared with those to come."""
        self.holding = self._basis = self._tracker = self._last_asked = None


def _needs_no_question(now: _Frame, last: _Frame) -> bool:
    """Whether it would be answered as the last frame that was asked."""
    return now.at_s - last.at_s < _RECHECK_S and now.glance.likeness(last.glance) >= SAME_PICTURE
