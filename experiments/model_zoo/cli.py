"""``nearsight models build``: builds the papers' architectures; added to the other commands of `models`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from nearsight.cloud.models_cli import FolderOption, models_settings
from nearsight.common.command_line.options import ConfigOption
from nearsight.common.command_line.terminal import print_line
from nearsight.common.errors import InvalidArgument, MissingDependency
from nearsight.experiments.model_serving.requests_cli import app
from nearsight.experiments.model_serving.zoo import cremebrulee_models, mcache_models

if TYPE_CHECKING:
    from nearsight.common.inference.manifest import Pixels
    from nearsight.common.inference.settings import ModelSettings

__all__ = ["app"]

_VIDEO = (
    *("AlexNet", "GoogLeNet", "ResNet-50", "YOLO", "YOLOv8n"),
    *("Dave-orig", "MobileNet-v1", "SqueezeNet", "DeepFace"),
)

SETS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "cremebrulee": tuple(cremebrulee_models()),
        "mcache": tuple(mcache_models()),
        "mobilenet": ("MobileNet-0.25", "MobileNet-0.5", "MobileNet-0.75", "MobileNet-1.0"),
        "deepcache": (*_VIDEO, "MuseumCNN"),
    }
)
"""Sets of names: CremeBrulee's 26 CNNs, mCache's seven models, widths of MobileNetV1, DeepCache's networks.
"""

_BY_HAND = frozenset({"SSD", "BERT", "RoBERTa", "XLNet", "GPT-2", "T5"})
_PIXELS: Mapping[str, Pixels] = MappingProxyType(
    {"DenseNet": "imagenet", "EfficientNet": "0..255", "VGG": "caffe", "SSD": "caffe"}
)
"""Value ranges of pixels by family, as Keras defines them.

ResNet50, 101 and 152 use caffe, all other families and the networks of DeepCache -1..1.
"""


def _pixels(name: str) -> Pixels:
    if name in _VIDEO:  # their weights are scaled on photos of -1 to 1
        return "-1..1"
    if name.startswith("ResNet") and not name.endswith("V2"):
        return "caffe"
    return next((pixels for family, pixels in _PIXELS.items() if name.startswith(family)), "-1..1")


@app.command()
def build(
    names: Annotated[list[str], typer.Argument(help=f"Architectures, or sets of them: {', '.join(SETS)}.")],
    folder: FolderOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random weights.")] = 1,
    shrink: Annotated[
        int, typer.Option(min=1, max=12, help="Divides the widths of language models; 1: as published.")
    ] = 2,
    config: ConfigOption = None,
) -> None:
    """Build the papers' architectures with random weights, to fill a cloud for tests and experiments.

    They have the costs of trained networks, but their answers have no meaning. Networks that are already in
    the folder are kept. Only MuseumCNN is trained, on 30 exhibits of the generated museum, in about five
    minutes. The CNNs come from Keras; those of DeepCache are built layer by layer, which needs onnx only. SSD
    is built from its paper. BERT, RoBERTa, XLNet, GPT-2 and T5 are replaced by transformers of the same
    proportions, with plain attention and learnt positions, half as wide by default.
    """
    chosen = list(dict.fromkeys(one for name in names for one in SETS.get(name, (name,))))
    known = {one for members in SETS.values() for one in members}
    if unknown := [name for name in chosen if name not in known]:
        raise InvalidArgument(
            f"there is no architecture {unknown[0]!r}",
            advice=f"choose one of {', '.join(sorted(known))}; or a set: {', '.join(SETS)}",
        )
    _require_zoo(chosen)
    settings = models_settings(config, folder)
    with TemporaryDirectory(prefix="nearsight-zoo-") as place:
        for number, name in enumerate(chosen, 1):
            _build_one(name, f"{number} of {len(chosen)}", Path(place), settings, seed, shrink)


def _build_one(name: str, count: str, place: Path, settings: ModelSettings, seed: int, shrink: int) -> None:
    from nearsight.cloud.network_intake import costs_in_words, measure_and_add
    from nearsight.common.inference.repository import ModelRepository, manifest_of_file

    repository = ModelRepository(settings.folder)
    if repository.has(name):
        print_line(f"{count}: {name} is already in {settings.folder}")
        return
    started_s = time.perf_counter()
    path = place / f"{name}.onnx"
    _make(name, path, seed, shrink)
    built_s = time.perf_counter() - started_s
    labels = path.with_suffix(".txt")
    named = tuple(labels.read_text().split()) if labels.is_file() else ()
    manifest = replace(manifest_of_file(path, name), pixels=_pixels(name), labels=named)
    added = measure_and_add(repository, settings, path, manifest, cycles=1).manifest
    path.unlink()
    print_line(f"{count}: built {name} in {built_s:.0f} s: {costs_in_words(added)}")


def _make(name: str, path: Path, seed: int, shrink: int) -> None:
    """Run a builder in its own process, because Keras and PyTorch keep memory and print to the terminal."""
    module = _module(name)
    options = f"seed={seed}, shrink={shrink}" if name in _BY_HAND else f"seed={seed}"
    code = (
        f"from pathlib import Path; from nearsight.experiments.model_zoo import {module} as zoo; "
        f"zoo.build({name!r}, Path({str(path)!r}), {options})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode or not path.is_file():
        lines = done.stderr.strip().splitlines()
        raise InvalidArgument(f"{name} cannot be built: {lines[-1] if lines else 'no file was written'}")


_BUILDERS: Mapping[str, tuple[Collection[str], Sequence[str]]] = MappingProxyType(
    {
        "video_networks": (_VIDEO, ("onnx",)),
        "museum_network": (("MuseumCNN",), ("onnx", "torch")),
        "torch_networks": (_BY_HAND, ("torch", "onnx", "onnxscript")),
        "keras_networks": ((), ("keras", "torch", "onnx", "onnxscript")),
    }
)
"""Module → networks that it builds, and libraries that it needs; `keras_networks` builds all others."""


def _module(name: str) -> str:
    for module, (names, _) in _BUILDERS.items():
        if name in names:
            return module
    return "keras_networks"


def _require_zoo(names: Sequence[str]) -> None:
    needs: dict[str, None] = {}
    for name in names:
        _, libraries = _BUILDERS[_module(name)]
        needs |= dict.fromkeys(libraries)
    missing = [one for one in needs if find_spec(one) is None]
    if missing:
        raise MissingDependency(
            f"`nearsight models build` needs {', '.join(missing)}", advice="pip install 'nearsight[zoo]'"
        )
