"""Clips of DeepCache's studies."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.studies.deepcache.clips import FILMING_STYLES, clip_of, names_of


@pytest.mark.system
def test_a_generated_clip_depends_on_its_seed() -> None:
    clips = [clip_of("walking", None, seed, (64, 48), 3) for seed in (1, 2)]
    clip_of.cache_clear()
    again = clip_of("walking", None, 1, (64, 48), 3)
    assert again.frames[0].shape == (48, 64, 3)
    assert all(np.array_equal(one, other) for one, other in zip(clips[0].frames, again.frames, strict=True))
    assert not np.array_equal(clips[0].frames[0], clips[1].frames[0])
    assert set(again.labels) == {again.labels[0]} != {""}


def test_videos_of_a_folder_are_clips_without_labels(tmp_path: Path) -> None:
    video = cv2.VideoWriter(str(tmp_path / "red.avi"), cv2.VideoWriter.fourcc(*"MJPG"), 30, (80, 60))
    for _ in range(5):
        video.write(np.full((60, 80, 3), (0, 0, 200), np.uint8))
    video.release()
    assert names_of(RunOptions(data=tmp_path)) == [*FILMING_STYLES, "red.avi"]
    clip = clip_of("red.avi", tmp_path, 1, (40, 30), 3)
    assert len(clip.frames) == 3
    assert clip.frames[0].mean(axis=(0, 1)) == pytest.approx((0, 0, 200), abs=12)
    assert clip.labels == ("", "", "")
