"""Optimised, saved graphs: they give the same answers; damaged and foreign ones are not used."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nearsight.common.errors import CorruptStore, Unavailable
from nearsight.common.inference.measurement import measure
from nearsight.common.inference.runtime import Runtime
from nearsight.common.inference.saved_graphs import SavedGraphs, prepare, temporary_folder
from support.networks import adder_network, colour_network, endless_network


@pytest.fixture
def saved(runtime: Runtime, tmp_path: Path) -> Path:
    """The saved graph of a network with 1 MB of weights."""
    path = colour_network(tmp_path / "colours.onnx", weights_mb=1)
    assert prepare(runtime, path, "colours", tmp_path / "prepared")
    return tmp_path / "prepared"


def test_a_saved_graph_answers_the_same(runtime: Runtime, saved: Path, tmp_path: Path) -> None:
    plain = runtime.load(tmp_path / "colours.onnx", "colours")
    graph = SavedGraphs(runtime.version).find(saved)
    assert graph is not None
    assert (saved / "weights").stat().st_size > 10**6 > 100 * graph.stat().st_size
    network = runtime.load(graph, "colours", saved=True)
    assert (network.inputs, network.outputs) == (plain.inputs, plain.outputs)
    for seed in range(5):
        photo = np.random.default_rng(seed).random((2, 3, 8, 8), np.float32)
        for output, values in plain.run({"": photo}).items():
            np.testing.assert_array_equal(network.run({"": photo})[output], values)


def test_weights_lie_without_gaps(runtime: Runtime, tmp_path: Path) -> None:
    """Pages of their own would make large networks slower (decision 054). One is in a nested graph."""
    rng, length = np.random.default_rng(0), 2**18 + 3  # the library pads weights of 1 MB and more
    weights = {name: numpy_helper.from_array(rng.random(length, np.float32), name) for name in "abc"}
    x, y, value, more = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [length])
        for name in ("x", "y", "value", "more")
    )
    at = helper.make_tensor_value_info("round", TensorProto.INT64, [])
    on, go_on = (helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("on", "go_on"))
    inside = [
        helper.make_node("Identity", ["on"], ["go_on"]),
        helper.make_node("Mul", ["value", "b"], ["more"]),
    ]
    body = helper.make_graph(inside, "body", [at, on, value], [go_on, more], [weights["b"]])
    nodes = [
        helper.make_node("Add", ["x", "a"], ["begun"]),
        helper.make_node("Loop", ["rounds", "", "begun"], ["looped"], body=body),
        helper.make_node("Sub", ["looped", "c"], ["y"]),
    ]
    rounds = numpy_helper.from_array(np.array(2), "rounds")
    graph = helper.make_graph(nodes, "nested", [x], [y], [rounds, weights["a"], weights["c"]])
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(network, str(tmp_path / "nested.onnx"))
    assert prepare(runtime, tmp_path / "nested.onnx", "nested", tmp_path / "prepared")
    found = (tmp_path / "prepared" / "weights").stat()
    assert 0 <= found.st_size - 3 * 4 * length < 2 * 64  # each begins at a line of the processor's caches
    assert found.st_mode == (tmp_path / "prepared" / "graph.onnx").stat().st_mode


def test_a_graph_of_another_runtime_or_processor_is_not_used(saved: Path) -> None:
    assert SavedGraphs("another").find(saved) is None
    assert SavedGraphs("another").find(saved / "none") is None


@pytest.mark.parametrize("name", ["graph.onnx", "weights", "made.json"])
def test_a_damaged_graph_is_detected(runtime: Runtime, saved: Path, name: str) -> None:
    graphs = SavedGraphs(runtime.version)
    assert graphs.find(saved) is not None
    content = bytearray((saved / name).read_bytes())
    content[len(content) // 2] ^= 1
    (saved / name).write_bytes(content)
    if name == "made.json":
        (saved / name).write_text(json.dumps({"runtime": runtime.version}))
    with pytest.raises(CorruptStore, match="prepared"):
        graphs.find(saved)
    (saved / name).unlink()
    with pytest.raises(CorruptStore):
        graphs.find(saved)


def test_a_graph_with_different_answers_is_not_kept(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = adder_network(tmp_path / "adder.onnx"), adder_network(tmp_path / "other.onnx", 1.0001)
    load = Runtime.load
    monkeypatch.setattr(
        Runtime,
        "load",
        lambda self, at, name, **how: load(self, other if how.get("saved") else at, name, **how),
    )
    assert not prepare(runtime, path, "adder", tmp_path / "prepared")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["adder.onnx", "other.onnx"]


def test_without_a_writable_folder_the_file_itself_is_measured(tmp_path: Path) -> None:
    path = colour_network(tmp_path / "colours.onnx")
    (tmp_path / "full").write_text("no folder can be made here")
    measured, cycles = measure(path, "colours", prepared=tmp_path / "full" / "prepared")
    assert measured.memory_bytes >= path.stat().st_size
    assert len(cycles) == 1


def test_unfinished_files_of_an_aborted_measurement_are_removed(tmp_path: Path) -> None:
    path = endless_network(tmp_path / "endless.onnx", rounds=10**12)
    with pytest.raises(Unavailable, match="exceeded the time limit"):
        measure(path, "endless", within_s=1.5, prepared=tmp_path / "prepared")
    assert not temporary_folder(tmp_path / "prepared").exists()
