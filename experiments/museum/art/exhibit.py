"""From (seed, index) to an exhibit: what it shows, in which manner, who made it, and the picture itself.

An exhibit depends on nothing but the two numbers: a museum grows without a change to what hangs there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.museum.art import (
    abstraction,
    documents,
    figures,
    interiors,
    ornament,
    scenery,
    styles,
)
from nearsight.experiments.museum.art.canvas import Canvas
from nearsight.experiments.museum.art.colours import draw_palette

Subject = Callable[[Canvas], None]
Style = Callable[[Canvas], NDArray[np.uint8]]

LONGEST_SIDE = 640
"""Pixels of the longer side of a reference image."""

SUBJECTS: dict[str, Subject] = {
    "hills": scenery.hills,
    "mountains": scenery.mountains,
    "seascape": scenery.seascape,
    "forest": scenery.forest,
    "city": scenery.city,
    "village": scenery.village,
    "desert": scenery.desert,
    "portrait": figures.portrait,
    "gathering": figures.gathering,
    "horse": figures.horse,
    "birds": figures.birds,
    "still life": interiors.still_life,
    "flowers": interiors.flowers,
    "room": interiors.room,
    "arcade": interiors.arcade,
}
"""What can be shown in any of the `STYLES`."""

STYLES: dict[str, Style] = {
    "oil on canvas": styles.oil,
    "oil in short strokes": styles.dabs,
    "oil in dots": styles.dots,
    "oil, cubist": styles.facets,
    "mosaic": styles.mosaic,
    "stained glass": styles.stained_glass,
    "woodcut": styles.woodcut,
    "etching": styles.etching,
    "screen print": styles.pop,
    "watercolour": styles.watercolour,
    "tapestry": styles.tapestry,
    "fresco": styles.fresco,
    "charcoal and chalk": styles.charcoal,
    "toned photograph": styles.photograph_print,
}
"""Manners in which a subject is made."""

PLAIN: dict[str, tuple[Subject, str]] = {
    "planes": (abstraction.planes, "oil on canvas"),
    "grid": (abstraction.grid, "oil on canvas"),
    "circles": (abstraction.circles, "gouache on board"),
    "drips": (abstraction.drips, "enamel on canvas"),
    "waves": (abstraction.waves, "acrylic on board"),
    "fields": (abstraction.fields, "oil on canvas"),
    "collage": (abstraction.collage, "cut paper"),
    "shards": (abstraction.shards, "acrylic on canvas"),
    "manuscript": (documents.manuscript, "ink and pigment on vellum"),
    "map": (documents.chart, "engraving, coloured by hand"),
    "calligraphy": (documents.calligraphy, "ink on paper"),
    "botanical": (documents.botanical, "watercolour and ink on paper"),
    "machine": (documents.machine, "pen on paper"),
    "stars": (documents.stars, "engraving"),
    "score": (documents.score, "ink on paper"),
    "poster": (documents.poster, "lithograph"),
    "carpet": (ornament.carpet, "knotted wool"),
    "tiles": (ornament.tiles, "glazed earthenware"),
    "mandala": (ornament.mandala, "pigment on cloth"),
    "mask": (ornament.mask, "painted wood"),
}
"""What comes in one manner only, with its technique."""

_ASPECTS = (0.7, 0.75, 0.8, 0.8, 1.0, 1.25, 1.25, 1.33, 1.33, 1.5, 1.6)
_PLAIN_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Exhibit:
    """What hangs at one place of the museum, before it is painted.

    Attributes
    ----------
    seed, index : int
        The museum and the place; they fix all the rest.
    subject : str
        A key of `SUBJECTS` or `PLAIN`.
    style : str
        A key of `STYLES`, or the technique of a plain subject.
    size : (int, int)
        Width and height in pixels.
    """

    seed: int
    index: int
    subject: str
    style: str
    size: tuple[int, int]


def random_stream(seed: int, index: int, *purpose: int) -> np.random.Generator:
    """Independent randomness for each purpose of each exhibit, the same on every machine.

    Raises
    ------
    InvalidArgument
        If a number is negative.
    """
    if min(seed, index, *purpose, 0) < 0:
        raise InvalidArgument(f"seed and index must not be negative, got {seed} and {index}")
    return np.random.default_rng([seed, index, *purpose])


def describe_exhibit(seed: int, index: int) -> Exhibit:
    """What the exhibit is; costs nothing, paints nothing."""
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
    """The exhibit's picture without frame.

    Parameters
    ----------
    seed : int
        Names the museum; not negative.
    index : int
        The place in it; not negative.

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
