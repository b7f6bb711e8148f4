"""Networks of DeepCache: their layers, and random weights with which the output depends on the photo."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from nearsight.common.inference.runtime import Runtime
from nearsight.experiments.model_zoo.onnx_graph import Graph, sample_photos
from nearsight.experiments.model_zoo.video_networks import build


def executed(path: Path, photos: np.ndarray) -> np.ndarray:
    runtime = Runtime()
    network = runtime.load(path, path.stem)
    (answer,) = network.run({"": photos}).values()
    network.close()
    runtime.close()
    return answer


@pytest.fixture(scope="module")
def dave(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("networks") / "dave.onnx"
    build("Dave-orig", path, seed=1)
    return path


def test_the_driving_network_has_the_layers_of_the_paper(dave: Path) -> None:
    operators = Counter(node.op_type for node in onnx.load(str(dave)).graph.node)
    assert operators["Conv"] == 5
    assert operators["Gemm"] == 5


def test_different_photos_get_different_answers(dave: Path) -> None:
    angles = executed(dave, sample_photos(66, 200))
    assert angles.shape == (8, 1)
    assert np.ptp(angles) > 0.5


def test_strided_and_grouped_convolutions_keep_activations_alive(tmp_path: Path) -> None:
    graph = Graph(32, 48, seed=3)
    x = graph.max_pool(graph.relu(graph.conv(graph.input, 8, 5, 2)), 3, 2, ceil=True)
    for _ in range(12):
        x = graph.relu(graph.conv(graph.lrn(x, bias=2.0), 8, 3, groups=4))
    last = graph.conv(x, 4, 1)
    graph.save(tmp_path / "deep.onnx", last)
    found = executed(tmp_path / "deep.onnx", sample_photos(32, 48))
    assert found.mean(axis=(0, 2, 3)) == pytest.approx(np.full(4, 0.5), abs=1e-3)
    assert found.std(axis=(0, 2, 3)) == pytest.approx(np.ones(4), abs=1e-3)


def test_a_network_depends_on_its_seed(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        graph = Graph(16, 16, seed)
        graph.save(tmp_path / name, graph.dense(graph.conv(graph.input, 4, 3), 5))
    answers = [executed(tmp_path / name, sample_photos(16, 16)) for name in ("one", "same", "other")]
    assert np.array_equal(answers[0], answers[1])
    assert not np.allclose(answers[0], answers[2], atol=0.1)
