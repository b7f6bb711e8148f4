"""Decides which frames of a stream are sent as requests, and which answer is valid for each frame. Pure.

A request takes longer than a frame lasts. Therefore each frame first moves the outline of the current answer,
and only some frames are sent. The rules, in this order:

- The current answer is valid as long as its outline can be tracked. Without an outline (results, networks,
  unknown) it is valid until the scene changes.
- A new request is due if no answer is valid, if the outline was lost, or if the last request is too old.
- A frame that looks like the last one sent needs no request. A blurred frame, or one of a fast turn, is not
  sent: its request would occupy a credit while better frames arrive.
- Credits limit the requests in flight. Without a free credit the frame is superseded, and a later one is
  sent.
- A device that recognises objects itself looks at a frame that is not sent while nothing is known, one frame
  at a time. So an object that it holds is known before a request about an earlier frame is answered.
- The tiers make one recognition attempt per request, which is fast, since other frames follow. If the scene
  stays unknown, some requests allow a second, more thorough attempt.
- After failed requests the stream backs off. The current answer remains valid.

An answer belongs to the frame that was sent, some frames ago. It becomes the current answer if its outline
can be tracked to the newest frame, or if the scene is still the same.
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
from nearsight.common.rpc.envelope import LONGEST_S
from nearsight.device.recognition import Recognition
from nearsight.device.video.gate import SAME_PICTURE, SAME_SCENE, STEADY, BlurGate, Glance, glance_at
from nearsight.device.video.tracking import Outline, OutlineTracker

_RECHECK_S = 1.0
"""An unchanged picture is sent again after this time, since the catalogue may have changed."""
_LONGEST_TURN_S = 0.3
"""Maximum time between requests while the camera moves fast."""
_UNKNOWN_IN_A_ROW = 3
"""Number of unknown answers in a row that replace a known one, as not every frame is recognised."""
_SECOND_LOOK_S = 2.0
"""Minimum time between requests with a second recognition attempt, which takes three times as long."""
_FIRST_PAUSE_S, _MOST_DOUBLINGS = 0.2, 3
"""Back-off after the first failed request; maximum number of times that further failures double it."""


class Done(StrEnum):
    """What was done with a frame."""

    ASKED = "asked"
    """It was sent as a request. The answer is available with a later frame."""
    LOOKED = "looked"
    """A request was due and could not be sent; the device itself looks at the frame."""
    TRACKED = "tracked"
    """The current answer is valid for this frame, too; no new request is due."""
    UNCHANGED = "unchanged"
    """It shows the same picture as the last frame that was sent."""
    BLURRED = "blurred"
    """A request was due, but this frame is blurred or belongs to a fast turn."""
    SUPERSEDED = "superseded"
    """A request was due, but the limit of requests in flight is reached; a later frame is sent."""
    PAUSED = "paused"
    """A request was due, but the stream backs off after failed requests."""
    INVALID = "invalid"
    """It is not a valid image."""


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Limits of a stream's requests.

    Raises
    ------
    InvalidArgument
        If a number is out of range.
    """

    credits: int = 2
    """Maximum requests in flight, so that one is prepared while another is processed. 1 in unknown scenes."""
    refresh_s: float = 0.09
    """Time from the last request to the next while its answer is valid [s]; inf: only when it is lost. An
    unchanged picture is sent again only after 1 s."""
    timeout_s: float = 1.0
    """Deadline of a request [s]."""

    def __post_init__(self) -> None:
        if not (self.credits >= 1 and self.refresh_s >= 0 and 0 < self.timeout_s <= LONGEST_S):
            raise InvalidArgument(
                f"a stream needs credits >= 1, refresh_s >= 0 and 0 < timeout_s <= {LONGEST_S:g}, got {self}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A frame, reduced in size for comparisons and tracking."""

    number: int
    at_s: float
    """Arrival time."""
    image: GrayImage
    glance: Glance

    def shows_scene_of(self, other: Frame) -> bool:
        """Whether both frames show the same scene."""
        return self.same_size(other) and self.glance.correlation(other.glance) >= SAME_SCENE

    def same_size(self, other: Frame) -> bool:
        """Whether the application's images have the same size."""
        return self.image.source_size == other.image.source_size

    @property
    def _scale(self) -> NDArray[np.float32]:
        across, down = (of / by for of, by in zip(self.image.source_size, self.image.size, strict=True))
        return np.array([across, down], np.float32)

    def shrunk(self, corners: Corners) -> Outline:
        """Convert corners in the application's image to this reduced frame."""
        return np.asarray(np.array(corners, np.float32) / self._scale, np.float32)

    def in_source(self, outline: Outline) -> Corners:
        """Convert an outline in this reduced frame to the application's image."""
        first, second, third, fourth = ((float(x), float(y)) for x, y in outline * self._scale)
        return first, second, third, fourth


@dataclass(frozen=True, slots=True, eq=False)
class CurrentAnswer:
    """The current answer, and the frame that was sent."""

    recognition: Recognition
    frame: Frame


class LiveView:
    """The decisions for one stream.

    Parameters
    ----------
    settings : StreamSettings
        Credits and times.
    looks_here : bool
        Whether the device may recognise frames without a tier.
    """

    def __init__(self, settings: StreamSettings, *, looks_here: bool = False) -> None:
        self._settings = settings
        self._looks_here = looks_here
        self._blur = BlurGate()
        self._in_flight: dict[int, Frame] = {}
        self._looked_at: Frame | None = None
        self._last_asked: Frame | None = None
        self._now: Frame | None = None
        self._tracker: OutlineTracker | None = None
        self._lost = False
        self._unknown = self._failures = 0
        self._resume_s = self._second_look_s = -math.inf
        self.one_look = True
        """Whether the last request allows only one recognition attempt."""
        self.current: CurrentAnswer | None = None
        """The current answer; None if no answer is valid."""
        self.outline: Corners | None = None
        """Outline of its object in the newest frame, in pixels of the application's image, if known."""
        self.error: NearsightError | None = None
        """Error of the last request; None if it succeeded."""

    def frame(self, number: int, image: GrayImage, now_s: float) -> Done:
        """Process a new frame; numbers increase.

        After `Done.ASKED` the driver sends the request, after `Done.LOOKED` one that only the device answers.
        """
        now = Frame(number, now_s, image, glance_at(image.pixels))
        if self._now is not None and not now.same_size(self._now):
            # New frames cannot be compared with the stored ones.
            self.current = self._tracker = self._last_asked = None
        before, self._now, last = self._now, now, self._last_asked
        self._follow(now)
        blurred = self._blur.blurred(now.glance, now_s)
        valid = self.current is not None and not self._lost
        if valid and last is not None and now_s - last.at_s < self._settings.refresh_s:
            return Done.TRACKED
        recent = last is not None and now_s - last.at_s < _RECHECK_S
        if last is not None and recent and now.glance.correlation(last.glance) >= SAME_PICTURE:
            return Done.UNCHANGED
        if blurred:
            return Done.BLURRED
        # While the scene is unknown, requests take long, and two would delay each other.
        unknown = self.current is not None and not self.current.recognition.known
        obstacle = None
        if self._turning(before, now):
            obstacle = Done.BLURRED
        elif len(self._in_flight) >= (1 if unknown else self._settings.credits):
            obstacle = Done.SUPERSEDED
        elif now_s < self._resume_s:
            obstacle = Done.PAUSED
        if obstacle is not None:
            if not self._looks_here or self._looked_at is not None or (valid and not unknown):
                return obstacle
            self._looked_at = now
            return Done.LOOKED
        self._in_flight[number] = self._last_asked = now
        self._lost = False
        self.one_look = not unknown or now_s - self._second_look_s < _SECOND_LOOK_S
        if not self.one_look:
            self._second_look_s = now_s
        return Done.ASKED

    def answered(self, number: int, recognition: Recognition) -> None:
        """Process the answer to a frame's request. Ignored if the current answer belongs to a newer frame."""
        now = self._now
        if self._looked_at is not None and self._looked_at.number == number:
            asked, self._looked_at = self._looked_at, None
        else:
            asked = self._in_flight.pop(number)
            self._failures, self._resume_s, self.error = 0, -math.inf, None
        newer = self.current is not None and self.current.frame.number > number
        if now is None or newer or not asked.same_size(now):
            return
        tracker = self._tracker_from(asked, now, recognition)
        if tracker is None and not asked.shows_scene_of(now):
            self._lost = True  # the picture has changed meanwhile and needs a new request
            return
        held = self.current.recognition if self.current is not None else None
        self._unknown = 0 if recognition.known else self._unknown + 1
        if held is not None and held.known and 0 < self._unknown < _UNKNOWN_IN_A_ROW:
            return
        if tracker is not None:
            self._tracker = tracker
        elif held is None or held.object_id != recognition.object_id:
            self._tracker = None
        self._lost = self._tracker is None and recognition.corners is not None
        self.current = CurrentAnswer(recognition, asked)

    def failed(self, number: int, error: NearsightError, now_s: float) -> None:
        """Process the failure of a frame's request. A look on the device that found nothing says little."""
        if self._looked_at is not None and self._looked_at.number == number:
            self._looked_at = None
            return
        del self._in_flight[number]
        if self._last_asked is not None and self._last_asked.number == number:
            self._last_asked = None
        pause_s = _FIRST_PAUSE_S * 2.0**self._failures
        self._failures = min(self._failures + 1, _MOST_DOUBLINGS)
        self._resume_s, self.error = now_s + pause_s, error

    def _tracker_from(self, asked: Frame, now: Frame, recognition: Recognition) -> OutlineTracker | None:
        """Track an answer's outline from the frame that was sent to the newest one; None if it is lost."""
        if recognition.corners is None:
            return None
        tracker = OutlineTracker(asked.image.pixels, asked.shrunk(recognition.corners))
        return tracker if tracker.follow(now.image.pixels) is not None else None

    def _follow(self, now: Frame) -> None:
        """Move the outline to this frame, and drop the current answer if it is no longer valid."""
        self.outline = None
        if self._tracker is not None:
            outline = self._tracker.follow(now.image.pixels)
            if outline is not None:
                self.outline = now.in_source(outline)
                return
            self._tracker, self._lost = None, True
        if self.current is not None and not now.shows_scene_of(self.current.frame):
            self.current = None

    def _turning(self, before: Frame | None, now: Frame) -> bool:
        """Whether the camera turns fast, and a frame was sent recently."""
        last = self._last_asked
        recent = last is not None and now.at_s - last.at_s < _LONGEST_TURN_S
        return recent and before is not None and now.glance.correlation(before.glance) < STEADY
