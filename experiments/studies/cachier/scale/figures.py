"""Figures 6.4 to 6.14: which variable each is about, and what it shows."""

from __future__ import annotations

from typing import ClassVar

from nearsight.experiments.studies.cachier.scale.operating_point import CLASSES, NETWORK, SECTIONS, VISITORS
from nearsight.experiments.studies.cachier.scale.scale_figure import (
    ACCURACY,
    ANSWERS,
    BANDWIDTH,
    CPU,
    LATENCY,
    ScaleFigure,
)

_SEEN_BY_USERS = (*LATENCY, *BANDWIDTH)
_RIGHT = (*ACCURACY, *ANSWERS)


class Figure6x4(ScaleFigure):
    """Over the number of visitors: latency, its parts, and bandwidth; six configurations."""

    name: ClassVar[str] = "fig6.4"
    source: ClassVar[str] = "Cachier dissertation, 6.3"
    variable: ClassVar[str] = VISITORS
    shown: ClassVar[tuple[str, ...]] = _SEEN_BY_USERS


class Figure6x5(ScaleFigure):
    """Over the number of visitors: CPU of edge and cloud; uses the rows of fig6.4."""

    name: ClassVar[str] = "fig6.5"
    source: ClassVar[str] = "Cachier dissertation, 6.3"
    same_rows_as: ClassVar[str] = "fig6.4"
    variable: ClassVar[str] = VISITORS
    shown: ClassVar[tuple[str, ...]] = CPU


class Figure6x6(ScaleFigure):
    """Over the number of visitors: recall, precision, and who answers; uses the rows of fig6.4."""

    name: ClassVar[str] = "fig6.6"
    source: ClassVar[str] = "Cachier dissertation, 6.3"
    same_rows_as: ClassVar[str] = "fig6.4"
    variable: ClassVar[str] = VISITORS
    shown: ClassVar[tuple[str, ...]] = _RIGHT


class Figure6x7(ScaleFigure):
    """Over the number of sections: latency, its parts, and bandwidth; six configurations."""

    name: ClassVar[str] = "fig6.7"
    source: ClassVar[str] = "Cachier dissertation, 6.4"
    variable: ClassVar[str] = SECTIONS
    shown: ClassVar[tuple[str, ...]] = _SEEN_BY_USERS


class Figure6x8(ScaleFigure):
    """Over the number of sections: CPU of edge and cloud; uses the rows of fig6.7."""

    name: ClassVar[str] = "fig6.8"
    source: ClassVar[str] = "Cachier dissertation, 6.4"
    same_rows_as: ClassVar[str] = "fig6.7"
    variable: ClassVar[str] = SECTIONS
    shown: ClassVar[tuple[str, ...]] = CPU


class Figure6x9(ScaleFigure):
    """Over the number of sections: recall, precision, and who answers; uses the rows of fig6.7."""

    name: ClassVar[str] = "fig6.9"
    source: ClassVar[str] = "Cachier dissertation, 6.4"
    same_rows_as: ClassVar[str] = "fig6.7"
    variable: ClassVar[str] = SECTIONS
    shown: ClassVar[tuple[str, ...]] = _RIGHT


class Figure6x10(ScaleFigure):
    """Over the number of classes: latency, its parts, and bandwidth; six configurations."""

    name: ClassVar[str] = "fig6.10"
    source: ClassVar[str] = "Cachier dissertation, 6.5"
    variable: ClassVar[str] = CLASSES
    shown: ClassVar[tuple[str, ...]] = _SEEN_BY_USERS


class Figure6x11(ScaleFigure):
    """Over the number of classes: CPU of edge and cloud; uses the rows of fig6.10."""

    name: ClassVar[str] = "fig6.11"
    source: ClassVar[str] = "Cachier dissertation, 6.5"
    same_rows_as: ClassVar[str] = "fig6.10"
    variable: ClassVar[str] = CLASSES
    shown: ClassVar[tuple[str, ...]] = CPU


class Figure6x12(ScaleFigure):
    """Over networks to the cloud: latency, its parts, and bandwidth; six configurations."""

    name: ClassVar[str] = "fig6.12"
    source: ClassVar[str] = "Cachier dissertation, 6.6"
    variable: ClassVar[str] = NETWORK
    shown: ClassVar[tuple[str, ...]] = _SEEN_BY_USERS


class Figure6x13(ScaleFigure):
    """Over networks to the cloud: CPU of edge and cloud; uses the rows of fig6.12."""

    name: ClassVar[str] = "fig6.13"
    source: ClassVar[str] = "Cachier dissertation, 6.6"
    same_rows_as: ClassVar[str] = "fig6.12"
    variable: ClassVar[str] = NETWORK
    shown: ClassVar[tuple[str, ...]] = CPU


class Figure6x14(ScaleFigure):
    """Over networks to the cloud: recall, precision, and who answers; uses the rows of fig6.12."""

    name: ClassVar[str] = "fig6.14"
    source: ClassVar[str] = "Cachier dissertation, 6.6"
    same_rows_as: ClassVar[str] = "fig6.12"
    variable: ClassVar[str] = NETWORK
    shown: ClassVar[tuple[str, ...]] = _RIGHT
