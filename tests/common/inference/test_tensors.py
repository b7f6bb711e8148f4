import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument, InvalidMessage
from nearsight.common.inference.tensors import (
    DTYPES,
    TensorSpec,
    check_inputs,
    tensors_from_proto,
    tensors_to_proto,
)
from nearsight.protos.inference_pb2 import TensorMessage

IMAGE = TensorSpec("image", "float32", (None, 3, 4, 4))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_every_type_arrive_as_they_were_sent(dtype: str) -> None:
    tensor = (np.arange(24) % 5).astype(dtype).reshape(2, 3, 4)
    back = tensors_from_proto(
        *tensors_to_proto({"a": tensor, "b": tensor.T, "c": tensor[:0], "d": tensor[0, 0, 0:1]})
    )
    for name, sent in (("a", tensor), ("b", tensor.T), ("c", tensor[:0]), ("d", tensor[0, 0, 0:1])):
        assert back[name].dtype == tensor.dtype
        np.testing.assert_array_equal(back[name], sent)


def test_received_tensors_are_read_only_views() -> None:
    messages, _ = tensors_to_proto({"a": np.zeros(4, np.float32)})
    blob = memoryview(bytes(16))
    tensor = tensors_from_proto(messages, [blob])["a"]
    assert np.shares_memory(tensor, np.frombuffer(blob, np.uint8))
    assert not tensor.flags.writeable


@pytest.mark.parametrize(
    ("messages", "blobs"),
    [
        ([TensorMessage(name="a", dtype="float32", shape=[4])], []),
        ([TensorMessage(name="a", dtype="float32", shape=[4])], [bytes(15)]),
        ([TensorMessage(name="a", dtype="object", shape=[2])], [bytes(16)]),
        ([TensorMessage(name="a", dtype="float32", shape=[2**40, 2**40])], [bytes(16)]),
        ([TensorMessage(name="a", dtype="uint8", shape=[1] * 40)], [bytes(1)]),
        ([TensorMessage(name="a", dtype="uint8", shape=[1])] * 2, [bytes(1)] * 2),
    ],
)
def test_messages_that_do_not_fit_their_blobs_are_refused(
    messages: list[TensorMessage], blobs: list[bytes]
) -> None:
    with pytest.raises(InvalidMessage):
        tensors_from_proto(messages, blobs)


def test_tensors_of_objects_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="float32"):
        tensors_to_proto({"a": np.array([object()])})


def test_an_unnamed_tensor_is_the_only_input() -> None:
    tensor = np.zeros((2, 3, 4, 4), np.float32)
    assert check_inputs("m", [IMAGE], {"": tensor}) == {"image": pytest.approx(tensor)}


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (
            {"image": np.zeros((1, 3, 4, 5), np.float32)},
            r"shape \(1, 3, 4, 5\), expected float32 \(any, 3, 4, 4\)",
        ),
        ({"image": np.zeros((3, 4, 4), np.float32)}, r"shape \(3, 4, 4\)"),
        ({"image": np.zeros((1, 3, 4, 4), np.float64)}, r"float64.*astype\('float32'\)"),
        ({"photo": np.zeros((1, 3, 4, 4), np.float32)}, r"\['photo'\], expected 'image': float32"),
        ({}, "expected 'image'"),
    ],
)
def test_inputs_of_another_type_or_shape_are_refused_with_the_expected_one(
    inputs: dict[str, np.ndarray], says: str
) -> None:
    with pytest.raises(InvalidArgument, match=says):
        check_inputs("m", [IMAGE], inputs)
