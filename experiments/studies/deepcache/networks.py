"""Networks of studies: those of the folder ``--data``, or else a small generated network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nearsight.common.errors import MissingDependency, NotFound
from nearsight.common.inference.manifest import Pixels
from nearsight.common.inference.repository import ModelRepository
from nearsight.common.inference.runtime import Runtime
from nearsight.experiments.framework.experiment import RunOptions

PAPER = ("AlexNet", "GoogLeNet", "ResNet-50", "YOLO", "Dave-orig")
"""Networks of the paper's tables 1 and 3."""
TODAY, TRAINED, SMALL = "YOLOv8n", "MuseumCNN", "small"
_ADVICE = "nearsight models build deepcache --folder DIR, then --data DIR"


@dataclass(frozen=True, slots=True)
class StudyNetwork:
    """File and properties of a network."""

    name: str
    path: Path
    pixels: Pixels = "-1..1"
    labels: tuple[str, ...] = ()


def networks_of(options: RunOptions, wanted: Sequence[str]) -> list[str]:
    """Names of the wanted networks that are available.

    Raises
    ------
    NotFound
        If ``--data`` has none of them.
    """
    if options.data is None:
        return [SMALL]
    there = ModelRepository(options.data).manifests()
    found = [name for name in wanted if name in there]
    if not found:
        raise NotFound(f"{options.data} has none of {', '.join(wanted)}", advice=_ADVICE)
    return found[: 1 if options.smoke else None]


def network_of(name: str, data: Path | None) -> StudyNetwork:
    """Open one of `networks_of`."""
    if name == SMALL or data is None:
        return StudyNetwork(SMALL, Path(_small_folder().name) / f"{SMALL}.onnx")
    repository = ModelRepository(data)
    manifest = repository.get(name)
    return StudyNetwork(name, repository.checked_path(manifest), manifest.pixels, manifest.labels)


def labels_of(name: str, data: Path | None) -> tuple[str, ...]:
    """Labels of one of `networks_of`, without reading its file; empty if it is not trained."""
    return () if data is None else ModelRepository(data).get(name).labels


@cache
def _small_folder() -> TemporaryDirectory[str]:
    """Create a folder with the small network; it is removed when the process ends."""
    try:
        from nearsight.experiments.model_zoo.onnx_graph import Graph  # noqa: PLC0415  optional
    except ImportError as error:
        raise MissingDependency(
            "without --data a small network is needed, which onnx makes",
            advice="pip install 'nearsight[inference]', or give a folder of networks with --data",
        ) from error
    folder = TemporaryDirectory(prefix="nearsight-deepcache-")
    graph = Graph(96, 128, seed=1)
    x = graph.max_pool(graph.relu(graph.conv(graph.input, 16, 5, 2)), 3, 2, pad=1)
    x = graph.lrn(graph.relu(graph.conv(x, 32, 3)))
    x = graph.relu(graph.conv(graph.max_pool(x, 3, 2, pad=1), 48, 3))
    graph.save(Path(folder.name) / f"{SMALL}.onnx", graph.dense(graph.node("GlobalAveragePool", x), 30))
    return folder


def segments_in(options: RunOptions) -> Path:
    """Folder in which segments of networks are kept; not in ``--data``, whose files identify a run."""
    return options.museums.parent / "deepcache-segments"


def plain_session(network: Path | bytes, **options: Any) -> Any:
    """Session of unmodified onnxruntime with one thread; ``options`` are attributes of ``SessionOptions``."""
    Runtime().close()  # imports the library with its telemetry disabled
    import onnxruntime  # noqa: PLC0415  optional

    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = chosen.inter_op_num_threads = 1
    for name, value in options.items():
        setattr(chosen, name, value)
    return onnxruntime.InferenceSession(network, chosen, providers=["CPUExecutionProvider"])
