"""Catalogue data of an exhibit: a plausible title, artist, year and technique."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearsight.experiments.museum.art.exhibit import describe_exhibit, random_stream


def _words(text: str, separator: str = " ") -> tuple[str, ...]:
    return tuple(text.split(separator))


_FIRST = _words(
    "Ada Bruno Clara Dario Elena Fausto Greta Henrik Ines Jonas Katja Leonor Mateo Nadia Oskar "
    "Paola Quirin Rosa Silvio Tereza Ugo Vera Willem Xenia Yusuf Zofia Aiko Bela Chiara Diego "
    "Emeka Farah Goran Hana Ivo Jelena"
)
_LAST = _words(
    "Aldermoor Brandvik Castellan Dorlay Eskildsen Fontaine Grabowski Halloran Ibarra Jansen "
    "Kovalenko Lindqvist Marchetti Nakagawa Oduya Petrov Quiroga Rossignol Sandoval Thorvald "
    "Ullmann Vasari Wexler Ybarra Zeller Amsel Bertolli Cho Duarte Engstrom Ferrante Guldberg "
    "Haddad Ismailov Jurgens Kaplan"
)
_PLACES = _words(
    "Arles Bergen Cadaques Delft Ebeltoft Fiesole Ghent Hvar Ischia Jurmala Kotor Lucca Murano "
    "Naxos Olomouc Porto Ravello Sintra Tallinn Urbino Visby Weimar Zadar"
)
_MOODS = _words(
    "quiet late early last blue restless forgotten silent burning distant white hidden broken "
    "endless slow golden"
)
_TIMES = _words(
    "at dawn|at noon|in the evening|in winter|in spring|after the rain|before the storm|by night|in August",
    "|",
)
_TITLES: dict[str, tuple[str, ...]] = {
    "hills": ("Hills near {place}", "Fields {time}", "The {mood} valley", "Road to {place} {time}"),
    "mountains": ("Peaks above {place}", "The {mood} lake", "Mountains {time}"),
    "seascape": ("Ships off {place}", "The {mood} sea", "Harbour of {place} {time}", "Sails {time}"),
    "forest": ("The {mood} wood", "Forest {time}", "Path in the forest near {place}"),
    "city": ("Roofs of {place}", "{place} {time}", "The {mood} city"),
    "village": ("Village near {place}", "{place} from the south", "The {mood} village"),
    "desert": ("Caravan {time}", "The {mood} dunes", "Journey, no. {number}"),
    "portrait": ("Portrait of {name}", "{name} {time}", "The {mood} sitter", "Self-portrait {time}"),
    "gathering": ("The {mood} dance", "Company {time}", "Feast at {place}"),
    "horse": ("Horses {time}", "The {mood} mare", "Meadow near {place}"),
    "birds": ("Two birds {time}", "Birds and blossom, no. {number}", "The {mood} finch"),
    "still life": ("Still life with jug", "The {mood} table", "Fruit and bottle, no. {number}"),
    "flowers": ("Flowers from {place}", "The {mood} bouquet", "Vase {time}"),
    "room": ("Interior {time}", "The {mood} room", "Room in {place}"),
    "arcade": ("Arcade in {place}", "The {mood} square", "Colonnade {time}"),
    "manuscript": ("Leaf from the {place} psalter", "The {mood} book, folio {number}"),
    "map": ("Map of the coast of {place}", "The isles of {name}", "New chart of {place}"),
    "calligraphy": ("Poem {time}", "The {mood} line", "Characters, no. {number}"),
    "botanical": ("Flora of {place}, plate {number}", "Herbal, plate {number}"),
    "machine": ("Engine, drawing {number}", "The {mood} mechanism", "Mill works at {place}"),
    "stars": ("Chart of the northern sky", "The {mood} firmament", "Celestial atlas, plate {number}"),
    "score": ("Sonata no. {number}", "The {mood} fugue", "Mass for {place}"),
    "poster": ("Exhibition at {place}", "The {mood} cabaret", "Poster for {name}"),
    "carpet": ("Carpet from {place}", "The {mood} garden carpet"),
    "tiles": ("Tile panel from {place}", "The {mood} courtyard"),
    "mandala": ("Wheel, no. {number}", "The {mood} circle"),
    "mask": ("Mask of the {mood} dancer", "Festival mask from {place}"),
}
_ABSTRACT = (
    "Composition no. {number}",
    "The {mood} rhythm",
    "Untitled ({place})",
    "Study {time}",
    "Variation {number}",
)


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """Text of the label beside a picture."""

    title: str
    artist: str
    year: int
    technique: str


def catalogue_entry(seed: int, index: int) -> CatalogueEntry:
    """Catalogue data of one exhibit; deterministic for a seed and index."""
    exhibit = describe_exhibit(seed, index)
    rng = random_stream(seed, index, 3)
    artist = f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"
    words = {
        "place": str(rng.choice(_PLACES)),
        "mood": str(rng.choice(_MOODS)),
        "time": str(rng.choice(_TIMES)),
        "name": f"{rng.choice(_FIRST)} {rng.choice(_LAST)}",
        "number": str(rng.integers(2, 90)),
    }
    title = str(rng.choice(_TITLES.get(exhibit.subject, _ABSTRACT))).format(**words)
    return CatalogueEntry(title, artist, _year(exhibit.style, rng), exhibit.style)


def _year(style: str, rng: np.random.Generator) -> int:
    modern = ("cubist", "screen", "acrylic", "enamel", "cut paper", "gouache", "lithograph", "photograph")
    old = ("vellum", "fresco", "mosaic", "glass", "tapestry", "engraving")
    if any(word in style for word in modern):
        return int(rng.integers(1890, 1995))
    if any(word in style for word in old):
        return int(rng.integers(1240, 1760))
    return int(rng.integers(1580, 1960))
