"""Sessions of real networks: results are equal to those of onnxruntime; sources of networks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from structlog.testing import capture_logs

import nearsight
from nearsight.common.errors import Cancelled, CorruptStore, NotFound
from nearsight.common.inference.region_reuse import PartialNetwork
from nearsight.common.inference.repository import ModelRepository, manifest_of_file
from nearsight.common.inference.runtime import Runtime
from nearsight.device.video.session import VideoSession
from nearsight.device.video.settings import VideoSettings
from support.networks import ALWAYS
from support.videos import SIDE, convolutional_network, frames_with_a_moving_patch


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convolutional_network(tmp_path_factory.mktemp("network") / "small.onnx")


def test_answers_of_frames_that_differ_in_a_patch_are_those_of_whole_executions(network: Path) -> None:
    runtime = Runtime()
    plain = runtime.load(network, "plain")
    with nearsight.VideoSession(network, settings=VideoSettings(threshold_db=60)) as session:
        results = []
        for frame in frames_with_a_moving_patch(30):
            result = session.run(frame)
            expected = plain.run({"": session.tensor(frame)})["logits"]
            np.testing.assert_allclose(result.outputs["logits"], expected, rtol=1e-4, atol=1e-5)
            results.append(result)
    plain.close()
    runtime.close()
    assert sum(not one.whole for one in results) >= 12, "at least the frames that did not change are reused"
    assert network.with_suffix(".segments").is_dir()


def test_results_do_not_change_while_the_session_continues(network: Path) -> None:
    with VideoSession(network) as session:
        results = [session.run(frame) for frame in frames_with_a_moving_patch(6)]
        kept = [one.outputs["logits"].copy() for one in results]
        for frame in frames_with_a_moving_patch(12):
            session.run(255 - frame)
    assert all((one.outputs["logits"] == copy).all() for one, copy in zip(results, kept, strict=True))


@pytest.mark.parametrize("spatial", [True, False], ids=["in segments", "whole"])
def test_a_closed_session_answers_no_frame(tmp_path: Path, spatial: bool) -> None:
    frame = next(frames_with_a_moving_patch(1))
    with VideoSession(convolutional_network(tmp_path / "net.onnx", spatial=spatial)) as session:
        session.run(frame)
    for next_frame in (frame, 255 - frame):
        with pytest.raises(Cancelled, match="is closed"):
            session.run(next_frame)


def test_a_network_of_a_repository_has_labels_and_a_range_of_pixels(network: Path, tmp_path: Path) -> None:
    repository = ModelRepository(tmp_path / "models")
    repository.add(
        network, replace(manifest_of_file(network, "small"), labels=("a", "b", "c"), pixels="-1..1")
    )
    with VideoSession("small", repository=tmp_path / "models", folder=tmp_path / "segments") as session:
        assert session.labels == ("a", "b", "c")
        assert session.tensor(np.zeros((SIDE, SIDE, 3), np.uint8)).min() == -1
    assert len(list((tmp_path / "segments").iterdir())) == 1, "the segments of another network have their own"
    with pytest.raises(NotFound, match="no network 'other'"):
        VideoSession("other", repository=tmp_path / "models")


def test_a_network_without_spatial_reuse_runs_whole(tmp_path: Path) -> None:
    path = convolutional_network(tmp_path / "mean.onnx", spatial=False)
    with VideoSession(path, settings=VideoSettings(threshold_db=60)) as session:
        results = [session.run(frame) for frame in frames_with_a_moving_patch(4)]
    reason = "no map can be reused after GlobalAveragePool"
    assert [one.whole for one in results] == ["first frame", "", reason, ""], "every other frame is new"
    assert results[0].outputs["logits"].shape == (1, 3)


@pytest.mark.parametrize(("at", "whole"), [(0, True), (3, False)], ids=["first", "in the middle"])
def test_an_unknown_operator_ends_the_reuse_and_is_logged_once(tmp_path: Path, at: int, whole: bool) -> None:
    path = convolutional_network(tmp_path / "sums.onnx", sums_at=at)
    runtime = Runtime()
    plain = runtime.load(path, "plain")
    with capture_logs() as logs:
        network = PartialNetwork(runtime, path, "sums", tmp_path / "segments", least_saved_ms=ALWAYS)
        session = VideoSession(network, settings=VideoSettings(threshold_db=60))
        results = []
        for frame in frames_with_a_moving_patch(20):
            results.append(session.run(frame))
            expected = plain.run({"": session.tensor(frame)})["logits"]
            np.testing.assert_allclose(results[-1].outputs["logits"], expected, rtol=1e-4, atol=1e-4)
    assert any("CumSum" in one.whole for one in results) == whole
    for one in (network, plain, runtime):
        one.close()
    said = [one["reason"] for one in logs if one["event"] == "changed frames are executed whole"]
    assert len(said) == whole
    assert all("CumSum" in one for one in said)


def test_frames_of_a_bad_camera_are_answered_as_whole_executions_are(network: Path) -> None:
    """Frames with black and repeated ones, gaps, and other sizes and formats."""
    clip = list(frames_with_a_moving_patch(40))
    black = np.zeros_like(clip[0])
    large = np.asarray(cv2.resize(clip[8], (96, 128)), np.uint8)
    grey = np.ascontiguousarray(clip[9][:, :, 0])
    frames = [*clip[:3], black, black, clip[3], clip[3], clip[3], clip[25], clip[39], large, grey, clip[0]]
    runtime = Runtime()
    plain = runtime.load(network, "plain")
    with VideoSession(network, settings=VideoSettings(threshold_db=60)) as session:
        for number, frame in enumerate(frames):
            result = session.run(frame)
            expected = plain.run({"": session.tensor(frame)})["logits"]
            np.testing.assert_allclose(result.outputs["logits"], expected, rtol=1e-4, atol=1e-4)
            assert result.number == number
    plain.close()
    runtime.close()


def test_a_network_that_leaves_its_size_open_gets_frames_of_all_sizes_in_one(tmp_path: Path) -> None:
    path = convolutional_network(tmp_path / "open.onnx", side=None)
    with capture_logs() as logs, VideoSession(path, settings=VideoSettings(size=(48, 40))) as session:
        sizes = [(64, 64), (32, 90), (48, 40), (64, 64), (300, 7)]
        shapes = {session.tensor(np.zeros((*size, 3), np.uint8)).shape for size in sizes}
        results = [session.run(np.full((*size, 3), 90, np.uint8)) for size in sizes]
    assert shapes == {(1, 3, 48, 40)}
    assert [one.whole for one in results] == ["first frame", "", "", "", ""], "it is not cut anew"
    assert not [one for one in logs if one["log_level"] == "warning"]


def test_a_file_that_is_no_network_is_named(tmp_path: Path) -> None:
    path = tmp_path / "damaged.onnx"
    path.write_bytes(b"no network")
    with pytest.raises(CorruptStore, match="damaged cannot be loaded"):
        VideoSession(path)
