"""The architectures of Keras. Imported only to build: needs Keras with PyTorch as its backend."""

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

# Keras refuses to build NASNet with PyTorch "due to an outstanding bug". Building and exporting it works.
_NOT_TORCH = SimpleNamespace(**{**vars(keras_nasnet.backend), "backend": lambda: ""})


class _Wrapped(nn.Module):
    """A network of Keras as a PyTorch module with one input."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self._network = network

    def forward(self, photo: Tensor) -> Tensor:
        """Execute the network on a batch of photos."""
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
    network(np.zeros((1, *shape), np.float32))  # the export requires one call before
    if architecture == "Xception":  # Keras cannot export its pooling layers
        with torch.no_grad():
            torch_networks.export(_Wrapped(network), torch.zeros(2, *shape), "photo", path)
    else:
        network.export(str(path), format="onnx", verbose=False)
