"""Clips of studies: videos of a folder, and generated handheld clips of the museum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.museum.art.exhibit import render_reference
from nearsight.experiments.museum.camera.handheld import Filming, Frame, Stay, film
from nearsight.experiments.museum.generation import object_id
from nearsight.experiments.studies.approximate_keys.standing import clips_in, real

MUSEUM_SEED = 1
"""Seed of the museum on whose exhibits MuseumCNN is trained, with other clips."""
_EXHIBITS = 30
NO_VIDEOS = "real clips are left out: give a folder of videos (.avi, .mp4, .mov or .mkv) with --data"
_FRAMES_PER_S = 30.0
_TURNING_S = 1.6
"""Time in which the phone turns to an exhibit and away from it [s]."""

Pixels = NDArray[np.uint8]


class FilmingStyle(NamedTuple):
    """Parameters of the filming of a clip."""

    liveliness: float
    """See `Filming`."""
    dwell_s: float
    """Time before each exhibit [s]; in addition the phone turns to it and away from it, for 0.8 s each."""


FILMING_STYLES: Mapping[str, FilmingStyle] = MappingProxyType(
    {"standing": FilmingStyle(0.5, 6.0), "walking": FilmingStyle(1.0, 3.0), "panning": FilmingStyle(0.5, 0.2)}
)
TOURS: Mapping[str, FilmingStyle] = MappingProxyType(
    {"tour standing": FilmingStyle(0.5, 1.0), "tour walking": FilmingStyle(1.0, 1.0)}
)
"""Clips of many exhibits, one after the other."""


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """Frames, resized to the input of a network."""

    frames: tuple[Pixels, ...]
    """Each (H, W, 3) uint8, blue-green-red."""
    labels: tuple[str, ...]
    """Exhibit in each frame; empty: nothing that a network could recognise."""


def names_of(options: RunOptions, generated: Iterable[str] = FILMING_STYLES) -> list[str]:
    """Names of generated clips, and of the videos of ``--data``."""
    return [*generated, *([] if options.data is None else [path.name for path in clips_in(options.data)])]


@lru_cache(maxsize=4)
def clip_of(name: str, data: Path | None, seed: int, size: tuple[int, int], most: int) -> Clip:
    """Read the first frames of a clip, resized to width and height; ``name`` is one of `names_of`."""
    style = {**FILMING_STYLES, **TOURS}.get(name)
    shown = _filmed(name, style, seed, most) if style else real((data or Path()) / name)
    frames = list(islice(shown, most))
    labels = [frame.object_id or "" if style else "" for frame in frames]
    scaled = [cv2.resize(frame.image, size, interpolation=cv2.INTER_AREA) for frame in frames]
    return Clip(tuple(np.asarray(frame, np.uint8) for frame in scaled), tuple(labels))


def _filmed(name: str, style: FilmingStyle, seed: int, most: int) -> Iterator[Frame]:
    """Film exhibit after exhibit until there are enough frames; starts before the first exhibit."""
    stays = int(most / _FRAMES_PER_S / (style.dwell_s + _TURNING_S)) + 2
    exhibits = np.random.default_rng([seed, *name.encode()]).permutation(_EXHIBITS)[:stays]
    walk = [Stay(object_id(one), render_reference(MUSEUM_SEED, one), style.dwell_s) for one in exhibits]
    turned = int(_TURNING_S / 2 * _FRAMES_PER_S) if style.dwell_s > 1 else 0
    return islice(film(walk, Filming(style.liveliness, _FRAMES_PER_S), seed), turned, None)
