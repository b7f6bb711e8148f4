"""Generates an exhibit from (seed, index): subject, style, size and picture.

An exhibit depends only on these two numbers, so that a museum can grow without a change to its existing
exhibits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.museum.art import (
    abstraction,
    buildings,
    crafts,
    creatures,
    nature,
    ornament,
    pages,
    painting,
    plates,
    portraits,
    prints,
    tabletop,
    towns,
)
from nearsight.experiments.museum.art.canvas import Canvas
from nearsight.experiments.museum.art.colours import draw_palette

Subject = Callable[[Canvas], None]
Style = Callable[[Canvas], NDArray[np.uint8]]

LONGEST_SIDE = 640
"""Length of the longer side of a reference image [px]."""

SUBJECTS: dict[str, Subject] = {
    "hills": nature.hills,
    "mountains": nature.mountains,
    "seascape": nature.seascape,
    "forest": nature.forest,
    "city": towns.city,
    "village": towns.village,
    "desert": nature.desert,
    "portrait": portraits.portrait,
    "gathering": creatures.gathering,
    "horse": creatures.horse,
    "birds": creatures.birds,
    "still life": tabletop.still_life,
    "flowers": tabletop.flowers,
    "room": buildings.room,
    "arcade": buildings.arcade,
}
"""Subjects that can be rendered in each of the `STYLES`."""

STYLES: dict[str, Style] = {
    "oil on canvas": painting.oil,
    "oil in short strokes": painting.dabs,
    "oil in dots": painting.dots,
    "oil, cubist": painting.facets,
    "mosaic": crafts.mosaic,
    "stained glass": crafts.stained_glass,
    "woodcut": prints.woodcut,
    "etching": prints.etching,
    "screen print": prints.pop,
    "watercolour": painting.watercolour,
    "tapestry": crafts.tapestry,
    "fresco": painting.fresco,
    "charcoal and chalk": painting.charcoal,
    "toned photograph": prints.photograph_print,
}
"""Styles in which a subject can be rendered."""

PLAIN: dict[str, tuple[Subject, str]] = {
    "planes": (abstraction.planes, "oil on canvas"),
    "grid": (abstraction.grid, "oil on canvas"),
    "circles": (abstraction.circles, "gouache on board"),
    "drips": (abstraction.drips, "enamel on canvas"),
    "waves": (abstraction.waves, "acrylic on board"),
    "fields": (abstraction.fields, "oil on canvas"),
    "collage": (abstraction.collage, "cut paper"),
    "shards": (abstraction.shards, "acrylic on canvas"),
    "manuscript": (pages.manuscript, "ink and pigment on vellum"),
    "map": (plates.chart, "engraving, coloured by hand"),
    "calligraphy": (pages.calligraphy, "ink on paper"),
    "botanical": (plates.botanical, "watercolour and ink on paper"),
    "machine": (plates.machine, "pen on paper"),
    "stars": (plates.stars, "engraving"),
    "score": (pages.score, "ink on paper"),
    "poster": (pages.poster, "lithograph"),
    "carpet": (ornament.carpet, "knotted wool"),
    "tiles": (ornament.tiles, "glazed earthenware"),
    "mandala": (ornament.mandala, "pigment on cloth"),
    "mask": (ornament.mask, "painted wood"),
}
"""Subjects that have only one style, each with its technique."""

_ASPECTS = (0.7, 0.75, 0.8, 0.8, 1.0, 1.25, 1.25, 1.33, 1.33, 1.5, 1.6)
_PLAIN_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Exhibit:
    """Description of an exhibit, before it is painted."""

    seed: int
    index: int
    """Seed and index determine the other fields."""
    subject: str
    """A key of `SUBJECTS` or `PLAIN`."""
    style: str
    """A key of `STYLES`, or the technique of a plain subject."""
    size: tuple[int, int]
    """Width and height in pixels."""


def random_stream(seed: int, index: int, *purpose: int) -> np.random.Generator:
    """A random stream for one purpose of one exhibit: independent of the others, the same on every machine.

    Raises
    ------
    InvalidArgument
        If a number is negative.
    """
    if min(seed, index, *purpose, 0) < 0:
        raise InvalidArgument(f"seed and index must not be negative, got {seed} and {index}")
    return np.random.default_rng([seed, index, *purpose])


def describe_exhibit(seed: int, index: int) -> Exhibit:
    """Describe an exhibit without painting it."""
    rng = random_stream(seed, index, 0)
    if rng.random() < _PLAIN_SHARE:
        subject = str(rng.choice(list(PLAIN)))
        style = PLAIN[subject][1]
    else:
        subject, style = str(rng.choice(list(SUBJECTS))), str(rng.choice(list(STYLES)))
    aspect = float(rng.choice(_ASPECTS)) * float(rng.uniform(0.96, 1.04))
    width, height = min(1.0, aspect), min(1.0, 1 / aspect)
    return Exhibit(seed, index, subject, style, (round(width * LONGEST_SIDE), round(height * LONGEST_SIDE)))


def render_reference(seed: int, index: int) -> NDArray[np.uint8]:
    """Paint the picture of an exhibit, without frame.

    Parameters
    ----------
    seed : int
        Seed of the museum; not negative.
    index : int
        Index of the exhibit in the museum; not negative.

    Returns
    -------
    ndarray, (H, W, 3) uint8
        Blue, green, red; the longer side has `LONGEST_SIDE` pixels.
    """
    exhibit = describe_exhibit(seed, index)
    rng = random_stream(seed, index, 1)
    width, height = exhibit.size
    canvas = Canvas(np.zeros((height, width, 3), dtype=np.uint8), rng, draw_palette(rng))
    if exhibit.subject in PLAIN:
        PLAIN[exhibit.subject][0](canvas)
        return canvas.image
    SUBJECTS[exhibit.subject](canvas)
    return STYLES[exhibit.style](canvas)
