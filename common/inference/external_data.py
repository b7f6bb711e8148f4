"""Refuses ONNX files whose weights are in other files, which the runtime would read from the same folder.

A repository stores one file per network, and a file from another machine must not name files of this one. The
encoded messages are followed to every tensor, also in functions and nested graphs. Weights are skipped, not
read. Malformed messages are refused, because the runtime might read them differently.

Sources: field numbers of ``onnx.proto``; protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import MappingProxyType

from nearsight.common.errors import CorruptStore

FIELDS = MappingProxyType(
    {
        "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
        "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
        "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
        "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
        "NodeProto": {5: "AttributeProto"},
        "AttributeProto": {
            **{5: "TensorProto", 6: "GraphProto", 10: "TensorProto", 11: "GraphProto"},
            **{22: "SparseTensorProto", 23: "SparseTensorProto"},
        },
        "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
        "TensorProto": {13: "StringStringEntryProto"},
    }
)
"""Fields that lead to tensors: for each message, the type of a field by its number."""
_FILE_NAME, _DATA_LOCATION = "StringStringEntryProto", 14
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
"""Wire types."""


def check_is_one_file(path: Path, name: str) -> None:
    """Check that a file of the format ONNX contains all weights of the network.

    Raises
    ------
    CorruptStore
        If weights are in other files, or the file is damaged.
    OSError
        If the file cannot be read.
    """
    try:
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            in_one_file = not _names_files(data)
    except ValueError as error:
        raise CorruptStore(
            f"{name} cannot be loaded: it is not a file of the format ONNX", advice="add a complete ONNX file"
        ) from error
    if not in_one_file:
        raise CorruptStore(
            f"the weights of {name} are in another file",
            advice='merge the files: python -c \'import onnx; onnx.save_model(onnx.load("FILE"), "FILE")\'',
        )


def _names_files(data: mmap) -> bool:
    """Whether a tensor of this model names a file. Raises `ValueError` if a message is malformed."""
    waiting = [("ModelProto", 0, len(data))]
    while waiting:
        message, at, end = waiting.pop()
        fields = FIELDS[message]
        while at < end:
            tag, at = _varint(data, at, end)
            number, wire_type = tag >> 3, tag & 7
            value, start = _varint(data, at, end) if wire_type in (_VARINT, _BYTES) else (0, at)
            size = {_VARINT: 0, _BYTES: value, _FIXED_64: 8, _FIXED_32: 4}.get(wire_type)
            at = start + (size or 0)
            if size is None or not 0 < number < 1 << 29 or at > end:  # ONNX has no groups
                raise ValueError(f"malformed {message} at byte {start}")
            if wire_type == _VARINT and value and message == "TensorProto" and number == _DATA_LOCATION:
                return True
            if wire_type == _BYTES and number in fields:
                if fields[number] == _FILE_NAME:
                    return True
                waiting.append((fields[number], start, at))
    return False


def _varint(data: mmap, at: int, end: int) -> tuple[int, int]:
    """Decode an integer; returns it, and the position behind it."""
    value = 0
    for place, byte in enumerate(data[at : min(at + 10, end)]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError(f"malformed integer at byte {at}")
