"""Simulates the video of a phone whose owner walks from exhibit to exhibit and stops before each.

The hand has a slow drift and a fast tremor, visitors move and pass by, lamps flicker, and the light changes.
One number, the liveliness, scales all of these. They are functions of the seed and of the time, not of the
frame rate: a clip at 5 frames per second has every sixth frame of the clip at 30, except for the sensor
noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.museum.camera.bystanders import add_head
from nearsight.experiments.museum.camera.optics import View
from nearsight.experiments.museum.camera.photograph import (
    DEFAULT_DIFFICULTY,
    PHOTO_LONG_SIDE,
    PHOTO_SHORT_SIDE,
    Standpoint,
    develop,
    look_at,
    step_before,
    visible,
)
from nearsight.experiments.museum.camera.viewpoint import project, wall_to_photo
from nearsight.experiments.museum.camera.wall import Scene, hang

_TURN_S = 0.8
"""Duration of the phone's turn to an exhibit, and of the turn away from it."""
_TURN = 1.3
"""Displacement of the picture during a turn, as a share of the frame's width."""
_SHOWN = 0.3
"""A frame shows an exhibit if it contains at least this share of the picture's area."""
_SHUTTER_S = 1 / 50
_DRIFT_HZ, _TREMOR_HZ = (0.03, 0.4), (0.8, 4.0)
_WAVES = 6
_FLICKER_HZ = 100.0
"""Flicker of lamps on 50 Hz mains. The camera records the aliased flicker between frames."""


@dataclass(frozen=True, slots=True)
class Filming:
    """How visitors film.

    Raises
    ------
    InvalidArgument
        If a number is out of range.
    """

    liveliness: float = 0.5
    """Amount of movement, in [0, 1].

    0 is a phone on a stand in an empty room. 0.5 is a phone held before the exhibit, as in real clips. 1 is a
    phone that is carried about in a crowd.
    """
    frames_per_s: float = 30.0
    size: tuple[int, int] = (PHOTO_LONG_SIDE, PHOTO_SHORT_SIDE)
    """Width and height of a frame."""
    difficulty: float = DEFAULT_DIFFICULTY
    """Difficulty of viewpoint, light and sensor, in [0, 1], as for single photos."""

    def __post_init__(self) -> None:
        if not (0 <= self.liveliness <= 1 and 0 <= self.difficulty <= 1):
            raise InvalidArgument(
                f"liveliness and difficulty are in [0, 1], got {self.liveliness:g} and {self.difficulty:g}"
            )
        if not (0 < self.frames_per_s <= 240 and min(self.size) >= 32):
            raise InvalidArgument(
                f"a clip has up to 240 frames per second of at least 32 px, "
                f"got {self.frames_per_s:g} of {self.size}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Stay:
    """A visitor stands before an exhibit."""

    object_id: str | None
    """None if the exhibit is not in the catalogue."""
    picture: NDArray[np.uint8]
    """(H, W, 3) uint8, blue-green-red."""
    dwell_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One frame of a clip, with its ground truth."""

    at_s: float
    """Time since the start of the clip."""
    image: NDArray[np.uint8]
    """(H, W, 3) uint8, blue-green-red."""
    object_id: str | None
    """The exhibit in the frame; None for a wall or for an exhibit that is not in the catalogue."""
    corners: NDArray[np.float64] | None = None
    """Corners of the picture, (4, 2) float64, also if it is outside the frame.

    Order: top left, top right, bottom right, bottom left; x and y in pixels of the frame. None if they are
    not known.
    """


def film(stays: Sequence[Stay], how: Filming, seed: int) -> Iterator[Frame]:
    """Film a sequence of stays; frames are generated on demand.

    Each stay begins with a turn of the phone to the exhibit and ends with a turn away from it. The clip has a
    cut between two stays.

    Raises
    ------
    InvalidArgument
        If the seed is negative.
    """
    if seed < 0:
        raise InvalidArgument(f"a seed is not negative, got {seed}")
    hand = _Hand(np.random.default_rng([seed, 0]), how.liveliness)
    start_s, count = 0.0, 0
    for number, stay in enumerate(stays):
        end_s = start_s + stay.dwell_s + 2 * _TURN_S
        shot = _Shot(stay, how, hand, (start_s, end_s), [seed, 1, number])
        while (at_s := count / how.frames_per_s) < end_s:
            yield shot.frame(at_s, np.random.default_rng([seed, 2, count]))
            count += 1
        start_s = end_s


class _Hand:
    """Movement of the phone; at a liveliness of 0.5 the amplitudes are those of real clips (decision 040)."""

    def __init__(self, rng: np.random.Generator, liveliness: float) -> None:
        self._drift = _waves(rng, 6, _DRIFT_HZ)
        self._tremor = _waves(rng, 3, _TREMOR_HZ)
        steps = liveliness**2
        """Quadratic: steps sideways or towards the picture are rare while a visitor stands."""
        self._drifts = np.array([0.024, 0.024, 0.026, 0.3, 0.15, 0.16]) * [*[liveliness] * 3, *[steps] * 3]
        self._tremors = np.array([0.006, 0.006, 0.0035]) * liveliness

    def moved(self, stand: Standpoint, at_s: float, turned: float) -> NDArray[np.float64]:
        """Homography from the wall, in pixels from the picture's middle, to the frame."""
        x, y, roll, yaw, pitch, nearer = self._drift(at_s) * self._drifts
        dx, dy, droll = self._tremor(at_s) * self._tremors
        long_side = max(stand.size)
        aim = (
            stand.aim[0] + turned + (x + dx) * long_side / stand.size[0],
            stand.aim[1] + (y + dy) * long_side / stand.size[1],
        )
        angles = stand.angles[0] + yaw, stand.angles[1] + pitch, stand.angles[2] + roll + droll
        return wall_to_photo(angles, float(np.exp(nearer)), stand.size, aim)


class _Shot:
    """One stay as seen by the camera."""

    def __init__(
        self, stay: Stay, how: Filming, hand: _Hand, span_s: tuple[float, float], seed: Sequence[int]
    ) -> None:
        rng = np.random.default_rng([*seed, 0])
        self._stay, self._how, self._hand = stay, how, hand
        self._start_s, self._end_s = span_s
        self._seed = seed
        self._stand = step_before(stay.picture.shape, rng, how.difficulty, how.size)
        self._scene = self._hang()
        self._light = _waves(rng, 4, _DRIFT_HZ)
        self._people = _passers(rng, how.liveliness, span_s)

    def frame(self, at_s: float, grain: np.random.Generator) -> Frame:
        """Render the frame at a time of the stay."""
        size, liveliness = self._how.size, self._how.liveliness
        view = self._view(at_s)
        seen, corners = look_at(self._scene, view, size)
        for passer in self._people:
            passer.pass_by(seen, at_s)
        balance = 1 + np.float32(0.04 * liveliness**2) * self._light(at_s)[:3].astype(np.float32)
        flicker = 0.016 * liveliness * np.sin(2 * np.pi * _FLICKER_HZ * at_s)
        level = np.exp(0.16 * liveliness**2 * self._light(at_s)[3] + flicker)
        seen *= balance * np.float32(level)
        movement = project(self._view(at_s + _SHUTTER_S), _MIDDLE)[0] - project(view, _MIDDLE)[0]
        moved = float(np.hypot(*movement)), float(np.arctan2(movement[1], movement[0]))
        # All frames of a stay use the same random stream, so that glare, colours and standing visitors stay
        # the same.
        constant = np.random.default_rng([*self._seed, 1])
        image = develop(seen, constant, self._how.difficulty, corners, moved=moved, grain=grain)
        object_id = self._stay.object_id if _shown(corners, size) >= _SHOWN else None
        return Frame(at_s, image, object_id, corners)

    def _view(self, at_s: float) -> NDArray[np.float64]:
        """Homography at a time: the picture slides in from the right, stays, and slides out to the left."""
        arriving, leaving = (at_s - self._start_s) / _TURN_S, (self._end_s - at_s) / _TURN_S
        turned = _TURN * (_eased(1 - arriving) - _eased(1 - leaving))
        return self._hand.moved(self._stand, at_s, turned)

    def _hang(self) -> Scene:
        times = np.linspace(self._start_s, self._end_s, 9)
        limit = max(2.2 * max(self._stand.picture_size), 1.9 * max(self._how.size))
        seen = [visible(self._view(float(at_s)), self._how.size, limit) for at_s in times]
        sides, ends = np.max(seen, axis=0)
        return hang(self._stay.picture, self._stand.picture_size[0], (float(sides), float(ends)))


_MIDDLE = np.zeros((1, 2))


@dataclass(frozen=True, slots=True)
class _Passer:
    """A visitor who walks past between phone and picture."""

    looks: int
    reach: float
    start_s: float
    crossing_s: float
    """Time to cross the frame; negative from right to left."""

    def pass_by(self, view: View, at_s: float) -> None:
        """Draw the visitor in place if they are in the frame at this time."""
        way = (at_s - self.start_s) / abs(self.crossing_s)
        if 0 <= way <= 1:
            place = -0.3 + 1.6 * (way if self.crossing_s > 0 else 1 - way)
            add_head(view, np.random.default_rng(self.looks), self.reach, place)


def _passers(rng: np.random.Generator, liveliness: float, span_s: tuple[float, float]) -> tuple[_Passer, ...]:
    """Draw the visitors who pass: on average 3 per minute at a liveliness of 0.5, 12 per minute at 1."""
    count = rng.poisson(0.2 * liveliness**2 * (span_s[1] - span_s[0]))
    return tuple(
        _Passer(
            looks=int(rng.integers(2**32)),
            reach=float(rng.uniform(0.2, 0.3 + 0.45 * liveliness)),
            start_s=float(rng.uniform(*span_s)),
            crossing_s=float(rng.uniform(1.2, 2.5) * rng.choice((-1, 1))),
        )
        for _ in range(count)
    )


def _waves(
    rng: np.random.Generator, channels: int, band_hz: tuple[float, float]
) -> Callable[[float], NDArray[np.float64]]:
    """Smooth random function of time, (channels,), of variance 1: cosines of random frequency and phase."""
    low, high = np.log(band_hz)
    frequencies = np.exp(rng.uniform(low, high, (channels, _WAVES)))
    phases = rng.uniform(0, 2 * np.pi, (channels, _WAVES))
    amplitude = np.sqrt(2 / _WAVES)
    return lambda at_s: np.asarray(
        amplitude * np.cos(2 * np.pi * frequencies * at_s + phases).sum(axis=1), dtype=np.float64
    )


def _eased(part: float) -> float:
    """Map [0, 1] to [0, 1] with a smooth start and end; the argument is clipped."""
    part = min(1.0, max(0.0, part))
    return part * part * (3 - 2 * part)


def _shown(corners: NDArray[np.float64], size: tuple[int, int]) -> float:
    """Share of a picture's area that lies within the frame."""
    frame = np.array([(0, 0), (size[0], 0), size, (0, size[1])], dtype=np.float32)
    picture = corners.astype(np.float32)
    inside, _ = cv2.intersectConvexConvex(picture, frame)
    return float(inside) / max(float(cv2.contourArea(picture)), 1.0)
