"""A small trained network that classifies 30 exhibits of the generated museum.

The seed determines everything: the frames of handheld clips, their augmentation, and the weights. Imported
only to build: needs PyTorch. Training takes about five minutes on one core.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearsight.experiments.model_zoo.torch_networks import export
from nearsight.experiments.museum.art.exhibit import render_reference
from nearsight.experiments.museum.camera.handheld import Filming, Stay, film
from nearsight.experiments.museum.generation import object_id

EXHIBITS, MUSEUM_SEED = 30, 1
"""Number of exhibits, and seed of the museum whose first exhibits they are."""
SIDE_PX = 224
_CLIPS, _CLIP_S, _FRAMES_PER_S = 6, 6.0, 2.0
"""Clips per exhibit for training, their duration and frame rate."""
_SIDES_PX = (160,) * 8 + (SIDE_PX,) * 3
"""Side length of the pictures in each epoch: most of the training uses small pictures."""
_BATCH, _RATE = 32, 2e-3
_STORED_PX = 256

Pictures = NDArray[np.uint8]


def build(name: str, path: Path, *, seed: int) -> None:
    """Train the network and write it as ONNX, and its labels to a text file beside it."""
    del name
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    pictures, labels = _training_set(seed)
    network = _network()
    _train(network, pictures, labels, np.random.default_rng([seed, 1]))
    export(network, torch.zeros(2, 3, SIDE_PX, SIDE_PX), "photo", path)
    path.with_suffix(".txt").write_text("\n".join(object_id(index) for index in range(EXHIBITS)))


def _network() -> nn.Module:
    """Five convolutions with batch normalisation, global average pooling, one fully connected layer."""
    layers: list[nn.Module] = []
    channels = 3
    sizes = ((24, 5, 2, 1), (48, 3, 1, 1), (96, 3, 1, 1), (160, 3, 1, 0), (192, 3, 1, 0))
    for width, kernel, stride, pools in sizes:
        layers += [nn.Conv2d(channels, width, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(width)]
        layers += [nn.ReLU(), *[nn.MaxPool2d(2)] * pools]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, EXHIBITS))


def _training_set(seed: int) -> tuple[Pictures, NDArray[np.int64]]:
    """Frames that show an exhibit, (N, 256, 256, 3), and its index, (N,)."""
    pictures, labels = [], []
    for index in range(EXHIBITS):
        stay = Stay(object_id(index), render_reference(MUSEUM_SEED, index), _CLIP_S)
        for clip in range(_CLIPS):
            how = Filming(liveliness=(clip + 1) / _CLIPS, frames_per_s=_FRAMES_PER_S)
            # Seeds that differ from those of the studies' clips, which are small.
            for frame in film([stay], how, 1_000_000 * (seed + 1) + _CLIPS * index + clip):
                if frame.object_id is not None:
                    pictures.append(cv2.resize(frame.image, [_STORED_PX] * 2, interpolation=cv2.INTER_AREA))
                    labels.append(index)
    return np.asarray(pictures, np.uint8), np.asarray(labels)


def _train(
    network: nn.Module, pictures: Pictures, labels: NDArray[np.int64], rng: np.random.Generator
) -> None:
    optimizer = torch.optim.AdamW(network.parameters(), _RATE, weight_decay=0.02)
    steps = len(_SIDES_PX) * (len(pictures) // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, steps)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.1)
    network.train()
    for side_px in _SIDES_PX:
        for chosen in _batches(len(pictures), rng):
            batch = np.stack([_changed(pictures[one], side_px, rng) for one in chosen])
            loss: Any = loss_of(network(_tensor(batch)), torch.from_numpy(labels[chosen]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


def _batches(count: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    order = rng.permutation(count)
    for start in range(0, count - _BATCH + 1, _BATCH):
        yield order[start : start + _BATCH]


def _changed(picture: Pictures, side_px: int, rng: np.random.Generator) -> Pictures:
    """Augment a picture by crop, light, blur and occlusion: (side_px, side_px, 3)."""
    side = int(rng.integers(int(0.7 * _STORED_PX), _STORED_PX + 1))
    top, left = rng.integers(0, _STORED_PX - side + 1, 2)
    crop: Any = cv2.resize(picture[top : top + side, left : left + side], (side_px, side_px))
    if rng.random() < 0.3:
        crop = cv2.GaussianBlur(crop, (0, 0), float(rng.uniform(0.5, 2.0)))
    if rng.random() < 0.3:
        y, x = rng.integers(0, side_px - 30, 2)
        crop[y : y + rng.integers(15, 65), x : x + rng.integers(15, 65)] = rng.integers(0, 256, 3)
    grain = rng.standard_normal((side_px, side_px, 1), np.float32) * np.float32(rng.uniform(0, 8))
    contrast, level = rng.uniform(0.7, 1.3), rng.uniform(0.75, 1.25)
    light = (contrast * rng.uniform(0.9, 1.1, 3)).astype(np.float32)
    return np.asarray(
        np.clip(crop * light + (grain + np.float32(128 * (level - contrast))), 0, 255), np.uint8
    )


def _tensor(pictures: Pictures) -> Tensor:
    """(N, H, W, 3) uint8, blue-green-red → (N, 3, H, W) float32, red-green-blue, -1 to 1."""
    red_first = torch.from_numpy(np.ascontiguousarray(pictures[..., ::-1])).permute(0, 3, 1, 2)
    return red_first.float() / 127.5 - 1
