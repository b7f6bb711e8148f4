"""The architectures that Keras has. Imported only to build: it needs Keras, with PyTorch behind it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nearsight.experiments.model_zoo import torch_networks

os.environ["KERAS_BACKEND"] = "torch"

import keras
import keras.src.applications.nasnet as keras_nasnet

# Keras refuses to make NASNet with PyTorch "due to an outstanding bug". Making and exporting it work.
_NOT_TORCH = SimpleNamespace(**{**vars(keras_nasnet.backend), "backend": lambda: ""})


class _Wrapped(nn.Module):
    """A network of Keras as one of PyTorch with one input."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self._network = network

    def forward(self, photo: Tensor) -> Tensor:
        """What it makes of photos."""
        found: Tensor = self._network(photo)
        return found


def build(name: str, path: Path, *, seed: int) -> None:
    """Build ``keras.applications.NAME``; ``MobileNet-0.25`` is MobileNet with a quarter of the channels."""
    architecture, _, width = name.partition("-")
    keras.utils.set_random_seed(seed)
    options = {"alpha": float(width)} if width else {}
    if architecture.startswith("NASNet"):
        keras_nasnet.backend = _NOT_TORCH
    network = getattr(keras.applications, architecture)(weights=None, **options)
    shape = network.input_shape[1:]
    network(np.zeros((1, *shape), np.float32))  # the export wants one call before it
    if architecture == "Xception":  # its pools cannot be exported by Keras
        with torch.no_grad():
            torch_networks.export(_Wrapped(network), torch.zeros(2, *shape), "photo", path)
    else:
        network.export(str(path), format="onnx", verbose=False)
