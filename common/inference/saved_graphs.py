"""Saves the optimised graph of a network, so that later loads are faster.

onnxruntime optimises a graph at every load, and copies all weights. Therefore the optimised graph is saved
beside the network's file, with the weights in a separate file that onnxruntime maps into memory. Later loads
are several times shorter, and weights in the page cache need not be read again. The saved graph must give the
same outputs bit by bit; otherwise nothing is saved (decision 048).

A saved graph is valid for one processor and one version of onnxruntime: `Runtime.version`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import xxhash

from nearsight.common.errors import CorruptStore, NearsightError
from nearsight.common.inference.runtime import SAVED_GRAPH, SAVED_WEIGHTS, Network, Runtime

if TYPE_CHECKING:
    import onnx

_MADE = "made.json"
_ALIGNMENT_BYTES = 64
"""Alignment of weights: a line of the processor's caches."""


def prepare(runtime: Runtime, path: Path, name: str, folder: Path) -> bool:
    """Save the optimised graph of a network in a folder of its own; returns whether this succeeded."""
    temporary = temporary_folder(folder)
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        network = save_optimised(runtime, path, name, temporary)
        inputs = network.sample_inputs()
        expected = network.run(inputs)
        network.close()
        network = runtime.load(temporary / SAVED_GRAPH, name, saved=True)
        found = network.run(inputs)
        network.close()
        same = all(found[output].tobytes() == values.tobytes() for output, values in expected.items())
        if same:
            complete(runtime.version, folder)
    except (NearsightError, OSError):  # such as a full disk; loading reports a damaged file
        same = False
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return same


def save_optimised(
    runtime: Runtime,
    path: Path,
    name: str,
    folder: Path,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> Network:
    """Load a network and save its optimised graph: `SAVED_GRAPH` and `SAVED_WEIGHTS` in this folder.

    onnxruntime begins each weight of at least 1 MB at a page of its own. The same places of many weights then
    compete for the same lines of the processor's caches, which made ResNet-50 slower on some processors
    (decision 054). Therefore the weights are moved together.

    Raises
    ------
    CorruptStore, Unavailable
        As `Runtime.load`.
    OSError
        If writing fails.
    """
    network = runtime.load(path, name, save_in=folder, sizes=sizes)
    graph, weights = folder / SAVED_GRAPH, folder / SAVED_WEIGHTS
    if weights.exists():  # else all are small
        import onnx  # noqa: PLC0415  optional

        model, packed = onnx.load(str(graph), load_external_data=False), weights.with_name("packed")
        with weights.open("rb") as apart, packed.open("wb") as together:
            for place in _places_of_weights(model.graph):
                apart.seek(int(place["offset"].value))
                together.write(bytes(-together.tell() % _ALIGNMENT_BYTES))
                place["offset"].value = str(together.tell())
                together.write(apart.read(int(place["length"].value)))
        shutil.copymode(weights, packed)
        packed.replace(weights)
        onnx.save(model, str(graph))
    return network


def _places_of_weights(graph: onnx.GraphProto) -> Iterator[dict[str, onnx.StringStringEntryProto]]:
    """Where the weights of a graph and of the graphs in it lie in their file: "offset" and "length"."""
    for tensor in graph.initializer:
        if tensor.external_data:
            yield {one.key: one for one in tensor.external_data}
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _places_of_weights(inner)


def complete(version: str, folder: Path) -> None:
    """Move the temporary folder to its final place, with the digests of all its files.

    Raises
    ------
    OSError
        If writing fails.
    """
    temporary, digests = temporary_folder(folder), {}
    for one in sorted(temporary.iterdir()):
        with one.open("rb") as file:
            os.fsync(file.fileno())  # before the folder gets its final name
        digests[one.name] = digest_of(one)
    (temporary / _MADE).write_text(json.dumps({"runtime": version, "digests": digests}))
    shutil.rmtree(folder, ignore_errors=True)
    temporary.replace(folder)


def temporary_folder(folder: Path) -> Path:
    """Temporary folder of a graph until it is complete."""
    return folder.with_name(f"{folder.name}.new")


class SavedGraphs:
    """Finds saved graphs. The digests of a folder are compared once, and again if its files change.

    Parameters
    ----------
    version : str
        Version of the runtime that loads them; see `Runtime.version`.
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._checked: dict[Path, tuple[tuple[int, ...], ...]] = {}

    def find(self, folder: Path) -> Path | None:
        """Path of the graph in a folder; None if there is none for this runtime, or it is unreadable now.

        Raises
        ------
        CorruptStore
            If files are damaged or missing.
        """
        if not folder.exists():
            return None
        try:
            made = json.loads((folder / _MADE).read_text())
            if made["runtime"] != self._version:
                return None
            digests = made["digests"]
            states = [(folder / name).stat() for name in digests]
            seen = tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in states)
            if self._checked.get(folder) != seen:
                damaged = [name for name, digest in digests.items() if digest_of(folder / name) != digest]
                if damaged:
                    raise CorruptStore(f"{folder / damaged[0]} has changed since it was saved")
                self._checked[folder] = seen
        except (FileNotFoundError, ValueError, TypeError, KeyError) as error:
            raise CorruptStore(f"{folder} is damaged: {error}") from error
        except OSError:  # such as too many open files
            return None
        return folder / SAVED_GRAPH


def digest_of(path: Path) -> str:
    """XxHash digest (XXH3, 64 bits, hexadecimal) of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_64).hexdigest()
