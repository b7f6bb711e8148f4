"""The architectures that Keras has. Imported only to build: it needs Keras, with PyTorch behind it."""

from __future__ import annotations

import logging
import os
import warnings
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np

os.environ["KERAS_BACKEND"] = "torch"

import keras


def build(name: str, path: Path, *, seed: int) -> None:
    """Build ``keras.applications.NAME``; ``MobileNet-0.25`` is MobileNet with a quarter of the channels."""
    architecture, _, width = name.partition("-")
    keras.utils.clear_session(free_memory=True)
    keras.utils.set_random_seed(seed)
    options = {"alpha": float(width)} if width else {}
    network = getattr(keras.applications, architecture)(weights=None, **options)
    network(np.zeros((1, *network.input_shape[1:]), np.float32))  # the export wants one call before it
    with warnings.catch_warnings(), path.with_suffix(".log").open("w") as log, redirect_stdout(log):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            network.export(str(path), format="onnx", verbose=False)
        finally:
            logging.disable(logging.NOTSET)
    path.with_suffix(".log").unlink()
