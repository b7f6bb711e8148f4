"""Rewriting LRN as a convolution."""

from pathlib import Path

import numpy as np
import pytest

from nearsight.experiments.model_zoo.onnx_graph import Graph, sample_photos
from nearsight.experiments.studies.deepcache.layers_figure import without_lrn
from nearsight.experiments.studies.deepcache.networks import plain_session


def test_lrn_as_a_convolution_gives_the_same_answers(tmp_path: Path) -> None:
    graph = Graph(16, 24, seed=1)
    graph.save(tmp_path / "lrn.onnx", graph.lrn(graph.conv(graph.input, 12, 3), bias=2.0))
    assert without_lrn(tmp_path / "lrn.onnx", tmp_path / "conv.onnx")
    photos = 50 * sample_photos(16, 24)
    found = [
        plain_session(tmp_path / name).run(None, {"photo": photos})[0] for name in ("lrn.onnx", "conv.onnx")
    ]
    assert np.abs(found[0]).max() > 5
    assert found[1] == pytest.approx(found[0], rel=1e-4, abs=1e-4)


def test_a_network_without_lrn_is_not_rewritten(tmp_path: Path) -> None:
    graph = Graph(16, 16, seed=1)
    graph.save(tmp_path / "plain.onnx", graph.conv(graph.input, 4, 3))
    assert not without_lrn(tmp_path / "plain.onnx", tmp_path / "conv.onnx")
    assert not (tmp_path / "conv.onnx").exists()
