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
    """Latency and bandwidth over the number of visitors (6.3)."""

    name: ClassVar[str] = "fig6.4"
    variable: ClassVar[str] = VISITORS
    shown: ClassVar[tuple[str, ...]] = _SEEN_BY_USERS


class Figure6x5(ScaleFigure):
    """CPU over the number of visitors (6.3)."""

    name: ClassVar[str] = "fig6.5"
    same_rows_as: ClassVar[str] = "fig6.4"
    variable: ClassVar[str] = VISITORS
    shown: ClassVar[tuple[str, ...]] = CPU


class Figure6x6(ScaleFigure):
    """Recall, precision, and who answers, over the number of visitors (6.3)."""

    name: ClassVar[str] = "fig6.6"
    same_rows_as: ClassVar[str] = "fig6.4"
    variable: ClassVar[str] = VISITORS
    shown: ClassVar[tuple[str, ...]] = _RIGHT


class Figure6x7(ScaleFigure):
    """Latency and bandwidth over the number of sections (6.4)."""

    name: ClassVar[str] = "fig6.7"
    variable: ClassVar[str] = SECTIONS
    shown: ClassVar[tuple[str, ...]] = _SEEN_BY_USERS


class Figure6x8(ScaleFigure):
    """CPU over the number of sections (6.4)."""

    name: ClassVar[str] = "fig6.8"
    same_rows_as: ClassVar[str] = "fig6.7"
    variable: ClassVar[str] = SECTIONS
    shown: ClassVar[tuple[str, ...]] = CPU


class Figure6x9(ScaleFigure):
    """Recall, precision, and who answers, over the number of sections (6.4)."""

    name: ClassVar[str] = "fig6.9"
    same_rows_as: ClassVar[str] = "fig6.7"
    variable: ClassVar[str] = SECTIONS
    shown: ClassVar[tuple[str, ...]] = _RIGHT


class Figure6x10(ScaleFigure):
    """Latency and bandwidth over the number of classes (6.5)."""

    name: ClassVar[str] = "fig6.10"
    variable: ClassVar[str] = CLASSES
    shown: ClassVar[tuple[str, ...]] = _SEEN_BY_USERS


class Figure6x11(ScaleFigure):
    """CPU over the number of classes (6.5)."""

    name: ClassVar[str] = "fig6.11"
    same_rows_as: ClassVar[str] = "fig6.10"
    variable: ClassVar[str] = CLASSES
    shown: ClassVar[tuple[str, ...]] = CPU


class Figure6x12(ScaleFigure):
    """Latency and bandwidth over networks (6.6)."""

    name: ClassVar[str] = "fig6.12"
    variable: ClassVar[str] = NETWORK
    shown: ClassVar[tuple[str, ...]] = _SEEN_BY_USERS


class Figure6x13(ScaleFigure):
    """CPU over networks (6.6)."""

    name: ClassVar[str] = "fig6.13"
    same_rows_as: ClassVar[str] = "fig6.12"
    variable: ClassVar[str] = NETWORK
    shown: ClassVar[tuple[str, ...]] = CPU


class Figure6x14(ScaleFigure):
    """Recall, precision, and who answers, over networks (6.6)."""

    name: ClassVar[str] = "fig6.14"
    same_rows_as: ClassVar[str] = "fig6.12"
    variable: ClassVar[str] = NETWORK
    shown: ClassVar[tuple[str, ...]] = _RIGHT
