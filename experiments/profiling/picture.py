"""Draws figure 3.4, or 4.4 for a device: the measurements of `nearsight profile`, and the fitted curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes

from nearsight.common.object_cache.profile import CacheProfile
from nearsight.experiments.framework.drawing import SEQUENCE, STYLE, caption, legend_below, new_picture, save

_ONE = "#1f6f8b"
_MARKERS = ("s", "D", "^", "o")


def draw_profiles(profiles: Sequence[CacheProfile], path: Path, *, with_extraction: bool = False) -> None:
    """Draw time, recall and precision over k.

    Parameters
    ----------
    profiles : sequence of CacheProfile
        One of an edge, or several of a device with different numbers of features.
    path : Path
        The picture; its suffix determines the format, see `framework.drawing.check_picture`.
    with_extraction : bool
        Whether the time includes feature extraction, as on a device.

    Raises
    ------
    OSError
        If the picture cannot be written.
    """
    with rc_context(STYLE):
        picture = new_picture(10.5, 4.0)
        panels = picture.subplots(1, 3)
        for axes, name in zip(panels, ("lookup_ms", "recall", "precision"), strict=True):
            for number, profile in enumerate(profiles):
                _draw(axes, profile, name, number if len(profiles) > 1 else None, with_extraction)
            axes.set(xlabel="objects in the cache, k", xlim=(0, None))
            axes.set_ylim(0, None if name == "lookup_ms" else 1.04)
        time = "extraction, match and verification" if with_extraction else "match and verification"
        panels[0].set(title="Time to recognise", ylabel=f"{time} [ms]")
        panels[1].set_title("Recall")
        panels[2].set_title("Precision")
        caption(picture, _caption(profiles[0]))
        legend_below(picture, panels[0])
        save(picture, path)


def _draw(axes: Axes, profile: CacheProfile, name: str, number: int | None, with_extraction: bool) -> None:
    colour = _ONE if number is None else SEQUENCE[number % len(SEQUENCE)]
    marker = "o" if number is None else _MARKERS[number % len(_MARKERS)]
    more = profile.extraction_ms if with_extraction and name == "lookup_ms" else 0.0
    points = [point for one in profile.measurements if (point := one.model_dump())[name] is not None]
    axes.errorbar(
        [point["k"] for point in points],
        [point[name] + more for point in points],
        [point[f"{name}_std"] for point in points],
        fmt=marker,
        color=colour,
        markersize=4,
        elinewidth=0.8,
        capsize=2,
        label="mean and deviation of random subsets" if number is None else None,
    )
    curve: np.ndarray[Any, Any] = getattr(profile.curves(profile.largest_k), name)
    sizes = np.arange(1, profile.largest_k + 1)
    label = "fitted" if number is None else f"{profile.query_features} features"
    axes.plot(sizes, curve[1:] + more, color=colour, linewidth=1.5, label=label)


def _caption(profile: CacheProfile) -> str:
    parts = (profile.dataset, f"backend {profile.backend}", profile.machine, profile.created)
    return "; ".join(part for part in parts if part)
