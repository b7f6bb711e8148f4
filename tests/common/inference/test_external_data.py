"""Weights in other files are found wherever a network may contain tensors."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto, TensorProto

from nearsight.common.errors import CorruptStore
from nearsight.common.inference.external_data import FIELDS, check_is_one_file
from support.networks import colour_network, endless_network

PLACES: dict[str, Callable[[ModelProto], TensorProto]] = {
    "a weight": lambda model: model.graph.initializer.add(),
    "a sparse weight": lambda model: model.graph.sparse_initializer.add().values,
    "indices": lambda model: model.graph.node.add().attribute.add().sparse_tensors.add().indices,
    "a constant": lambda model: model.graph.node.add().attribute.add().t,
    "a nested graph": lambda model: (
        model.graph.node.add().attribute.add().g.node.add().attribute.add().graphs.add().initializer.add()
    ),
    "a function": lambda model: model.functions.add().node.add().attribute.add().tensors.add(),
    "training": lambda model: model.training_info.add().algorithm.initializer.add(),
}


def _located(tensor: TensorProto) -> None:
    tensor.data_location = TensorProto.EXTERNAL


def _named(tensor: TensorProto) -> None:
    tensor.external_data.add(key="location", value="secret.json")


@pytest.mark.parametrize("mark", [_located, _named])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_network_with_weights_in_another_file_is_refused(
    tmp_path: Path, place: Callable[[ModelProto], TensorProto], mark: Callable[[TensorProto], None]
) -> None:
    model = onnx.load(colour_network(tmp_path / "birds.onnx", weights_mb=0.1))
    path, tensor = tmp_path / "spy.onnx", place(model)
    tensor.raw_data, tensor.data_location = b"1234", TensorProto.DEFAULT
    path.write_bytes(model.SerializeToString())
    check_is_one_file(path, "spy")
    mark(tensor)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(CorruptStore, match="the weights of spy are in another file"):
        check_is_one_file(path, "spy")


def test_networks_in_one_file_pass(tmp_path: Path) -> None:
    check_is_one_file(colour_network(tmp_path / "colours.onnx", weights_mb=1), "colours")
    check_is_one_file(endless_network(tmp_path / "endless.onnx"), "endless")


def test_every_field_that_leads_to_a_tensor_is_followed() -> None:
    types = {one.name: one for one in onnx.onnx_ml_pb2.DESCRIPTOR.message_types_by_name.values()}
    reaches, before = {"TensorProto"}, set[str]()
    while reaches != before:
        before = set(reaches)
        reaches |= {
            name
            for name, one in types.items()
            if any(field.message_type and field.message_type.name in before for field in one.fields)
        }
    expected = {
        name: {
            field.number: field.message_type.name
            for field in types[name].fields
            if field.message_type and field.message_type.name in reaches
        }
        for name in reaches
    }
    assert expected == {**FIELDS, "TensorProto": {}}


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"no network",
        b"\x3a\x7f",  # a graph that is longer than the file
        b"\x3b\x3c",  # a group
        b"\x00\x01",  # field 0
        b"\xba\x80\x80\x80\x10\x00",  # a tag of more than 32 bits, whose lower bits are those of a graph
        b"\x08" + b"\xff" * 10,  # an endless integer
    ],
)
def test_malformed_messages_are_refused(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "damaged.onnx"
    path.write_bytes(damaged)
    with pytest.raises(CorruptStore, match="damaged cannot be loaded: it is not a file of the format ONNX"):
        check_is_one_file(path, "damaged")
