"""Rows and metrics of the study of block matching."""

import pytest

from nearsight.experiments.framework.experiment import RunOptions, StoredRow
from nearsight.experiments.studies.deepcache.clips import NO_VIDEOS
from nearsight.experiments.studies.deepcache.matching_table import Figure

_OPTIONS = RunOptions(smoke=True)


def rows_of(clip: str, *frames: tuple[float, float, float, float]) -> list[StoredRow]:
    """Per frame: shares matched at offset 0, by our and by exhaustive search; time of our search [ms]."""
    rows = []
    for number, (here, ours, every, ours_ms) in enumerate(frames):
        for method, matched, match_ms in (
            ("offset 0", here, 0.1),
            ("ours", ours, ours_ms),
            ("exhaustive", every, 30.0),
        ):
            moved = "2" if method == "ours" and ours > here else "0"
            rows.append(
                {
                    "apart": "1",
                    "clip": clip,
                    "method": method,
                    "frame": str(number),
                    "match_ms": str(match_ms),
                    "matched": str(matched),
                    "down_px": moved,
                    "right_px": "0",
                }
            )
    return rows


def test_clips_have_equal_weight_and_frames_matched_at_offset_0_are_not_searched() -> None:
    rows = rows_of("calm", (1.0, 1.0, 1.0, 0.1), (1.0, 1.0, 1.0, 0.1), (0.5, 0.8, 0.82, 0.7))
    rows += rows_of("wild", (0.2, 0.3, 0.4, 0.9))
    summary = Figure().metrics(rows)
    assert summary["table"]["1"]["ours"]["clips"] == pytest.approx({"calm": 93.33, "wild": 30.0}, abs=0.01)
    assert summary["table"]["1"]["ours"]["matched"] == pytest.approx(61.67, abs=0.01)
    assert summary["searched"] == {
        "frames": 2,
        "share": 0.5,
        "ms": {"median": 0.8, "p95": 0.89},
        "moved": 2,
    }
    reached = [target.reached for target in Figure().targets(summary)]
    assert reached == [True, True, False]  # 10 points below exhaustive search on the second clip


def test_a_run_without_videos_prints_a_note() -> None:
    said: list[str] = []
    Figure().completed(_OPTIONS, said.append)
    assert said == [NO_VIDEOS]
