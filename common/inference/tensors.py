"""Tensors: validation of a network's inputs, and their encoding in messages.

A tensor is sent as a `TensorMessage` and a blob: little endian, in C order. The receiver does not copy it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument, InvalidMessage
from nearsight.protos.inference_pb2 import TensorMessage

Tensor = NDArray[Any]
Blob = bytes | bytearray | memoryview

DTYPES = MappingProxyType(
    {
        name: np.dtype(name)
        for name in (
            *("float16", "float32", "float64", "bool"),
            *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        )
    }
)
"""Element types that can be sent."""

MAX_RANK = 16


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, type and shape that a network declares for an input or output.

    Attributes
    ----------
    name : str
    dtype : str
        One of `DTYPES`.
    shape : tuple of int or None
        None: any size along this axis.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        sizes = ", ".join("any" if size is None else str(size) for size in self.shape)
        return f"{self.dtype} ({sizes})"

    def accepts(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of this shape matches the declared shape."""
        return len(shape) == len(self.shape) and all(
            wanted in (None, size) for wanted, size in zip(self.shape, shape, strict=True)
        )


def check_inputs(model: str, specs: Sequence[TensorSpec], inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Check the inputs of a network and return them by the network's input names.

    An input named "" is assigned to the only input of the network.

    Raises
    ------
    InvalidArgument
        If an input is missing or unknown, or has another shape or element type.
    """
    if set(inputs) == {""} and len(specs) == 1:
        inputs = {specs[0].name: inputs[""]}
    wanted = {spec.name: spec for spec in specs}
    if inputs.keys() != wanted.keys():
        described = ", ".join(f"{spec.name!r}: {spec}" for spec in specs)
        raise InvalidArgument(
            f"{model} received the inputs {sorted(inputs)}, expected {described}",
            advice="use the names of its inputs",
        )
    for name, spec in wanted.items():
        tensor = inputs[name]
        if tensor.dtype.name != spec.dtype:
            raise InvalidArgument(
                f"input {name!r} of {model} is {tensor.dtype.name} {tensor.shape}, expected {spec}",
                advice=f"convert the input: tensor.astype({spec.dtype!r})",
            )
        if not spec.accepts(tensor.shape):
            raise InvalidArgument(f"input {name!r} of {model} has shape {tensor.shape}, expected {spec}")
    return dict(inputs)


def tensors_to_proto(tensors: Mapping[str, Tensor]) -> tuple[list[TensorMessage], list[Blob]]:
    """Convert tensors to messages and blobs, in the same order.

    Raises
    ------
    InvalidArgument
        If the element type of a tensor is not in `DTYPES`.
    """
    messages: list[TensorMessage] = []
    blobs: list[Blob] = []
    for name, given in tensors.items():
        if given.dtype.name not in DTYPES:
            raise InvalidArgument(
                f"tensor {name!r} has elements of type {given.dtype}",
                advice=f"use one of {', '.join(DTYPES)}",
            )
        tensor = np.ascontiguousarray(given, given.dtype.newbyteorder("<"))
        messages.append(TensorMessage(name=name, dtype=given.dtype.name, shape=given.shape))
        blobs.append(tensor.reshape(-1).view(np.uint8).data)
    return messages, blobs


def tensors_from_proto(messages: Sequence[TensorMessage], blobs: Sequence[Blob]) -> dict[str, Tensor]:
    """Convert messages and blobs to tensors, by name. The tensors are read-only views of the blobs.

    Raises
    ------
    InvalidMessage
        If the numbers of messages and blobs differ, a name occurs twice, a type or rank is not supported, or
        a blob has the wrong size.
    """
    if len(messages) != len(blobs):
        raise InvalidMessage(f"{len(messages)} tensors are declared, but {len(blobs)} blobs were received")
    tensors: dict[str, Tensor] = {}
    for message, blob in zip(messages, blobs, strict=True):
        dtype, shape = DTYPES.get(message.dtype), tuple(message.shape)
        if dtype is None or len(shape) > MAX_RANK or message.name in tensors:
            raise InvalidMessage(
                f"tensor {message.name!r} of type {message.dtype!r} with {len(shape)} axes is not supported"
            )
        if math.prod(shape) * dtype.itemsize != len(blob):
            raise InvalidMessage(
                f"tensor {message.name!r} of {message.dtype} {shape} has a blob of {len(blob)} bytes"
            )
        tensors[message.name] = np.frombuffer(blob, dtype.newbyteorder("<")).reshape(shape)
    return tensors
