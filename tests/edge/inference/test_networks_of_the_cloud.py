"""A network from the cloud to the application: real cloud, edge and SDK in this process."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nearsight import InvalidArgument, Recognizer
from nearsight.cloud.daemon import CloudDaemon
from nearsight.common.inference.settings import ModelSettings
from nearsight.edge.daemon import EdgeDaemon
from support.cloud import running_cloud
from support.edge import running_edge
from support.networks import add_network, adder_network, colour_network, jpeg_of, photo_of
from support.waiting import wait_until


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[CloudDaemon]:
    with running_cloud(tmp_path / "cloud.db", models=ModelSettings(folder=tmp_path / "models")) as daemon:
        add_network(daemon.networks.repository, "colours", colour_network(tmp_path / "colours.onnx"))
        add_network(daemon.networks.repository, "adder", adder_network(tmp_path / "adder.onnx"), ())
        yield daemon


@pytest.fixture
def edge(cloud: CloudDaemon, tmp_path: Path) -> Iterator[EdgeDaemon]:
    with running_edge(cloud.endpoint, models=ModelSettings(folder=tmp_path / "edge-models")) as daemon:
        yield daemon


def resident(edge: EdgeDaemon, name: str) -> bool:
    return edge.networks.memory.is_resident(name)


def test_a_network_names_photos_first_at_the_cloud_then_at_the_edge(edge: EdgeDaemon) -> None:
    with Recognizer(edge.endpoint, None, "colours") as recognizer:
        first = recognizer.recognize_blocking(photo_of("red"), timeout_s=20)
        assert (first.label, first.answered_by, first.grain) == ("red", "cloud", "network")
        wait_until(lambda: resident(edge, "colours"), what="the network at the edge", timeout_s=20)
        for colour in ("green", "blue"):
            for photo in (photo_of(colour), jpeg_of(colour)):
                answer = recognizer.recognize_blocking(photo)
                assert (answer.label, answer.answered_by, answer.grain) == (colour, "edge", "network")
                assert answer.confidence > 0.9
        unknown = recognizer.recognize_blocking(photo_of("grey"))
        assert (unknown.known, unknown.answered_by) == (False, "edge")


def test_tensors_go_through_a_network_at_both_tiers(edge: EdgeDaemon, cloud: CloudDaemon) -> None:
    tensor = np.arange(8, dtype=np.float32).reshape(2, 4)
    with Recognizer(edge.endpoint, cloud.endpoint, "adder") as recognizer:
        answer = recognizer.infer(tensor, timeout_s=20)
        assert answer.answered_by == "cloud"
        np.testing.assert_array_equal(answer.output, tensor + 1)
        wait_until(lambda: resident(edge, "adder"), what="the network at the edge", timeout_s=20)
        answer = recognizer.infer({"x": tensor})
        assert (answer.answered_by, list(answer.outputs)) == ("edge", ["y"])
        np.testing.assert_array_equal(answer.output, tensor + 1)
        with pytest.raises(InvalidArgument, match=r"shape \(2, 3\), expected float32 \(any, 4\)"):
            recognizer.infer(tensor[:, :3])
        with pytest.raises(InvalidArgument, match=r"astype\('float32'\)"):
            recognizer.infer(tensor.astype(np.float64))
