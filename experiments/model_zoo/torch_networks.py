"""Architectures that Keras does not have: SSD, and language models of the proportions of known ones.

They are built from their papers. Imported only to build: needs PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

WORDS = 20
"""Words per query (mCache, section 6.1)."""


class Proportions(NamedTuple):
    """Proportions of a language model; each attention head has 64 channels."""

    encoder_layers: int
    decoder_layers: int
    width: int
    feed_forward: int
    vocabulary: int


LANGUAGE_MODELS: Mapping[str, Proportions] = MappingProxyType(
    {
        "BERT": Proportions(12, 0, 768, 3072, 30_522),
        "RoBERTa": Proportions(12, 0, 768, 3072, 50_265),
        "XLNet": Proportions(12, 0, 768, 3072, 32_000),
        "GPT-2": Proportions(0, 12, 768, 3072, 50_257),
        "T5": Proportions(12, 12, 768, 3072, 32_128),
    }
)
"""Basic versions, all with the attention of "Attention is all you need".

XLNet's second stream, which exists only in training, is left out. The relative positions of XLNet and T5 are
replaced by learnt positions.
"""


class _Attention(nn.Module):
    """Multi-head attention of words to a memory; ``causal``: only to earlier positions."""

    def __init__(self, width: int, *, causal: bool) -> None:
        super().__init__()
        self._heads = width // 64
        self._causal = causal
        self._query, self._key, self._value, self._out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, words: Tensor, memory: Tensor) -> Tensor:
        query, key, value = (
            made.unflatten(2, (self._heads, 64)).transpose(1, 2)
            for made in (self._query(words), self._key(memory), self._value(memory))
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self._causal)
        found: Tensor = self._out(mixed.transpose(1, 2).flatten(2))
        return found


class _Layer(nn.Module):
    """Self-attention, cross-attention to the encoder if there is one, and a feed-forward network."""

    def __init__(self, width: int, feed_forward: int, *, causal: bool, crosses: bool) -> None:
        super().__init__()
        self._own = _Attention(width, causal=causal)
        self._cross = _Attention(width, causal=False) if crosses else None
        self._norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self._forward = nn.Sequential(
            nn.Linear(width, feed_forward), nn.GELU(), nn.Linear(feed_forward, width)
        )

    def forward(self, words: Tensor, memory: Tensor) -> Tensor:
        words = self._norms[0](words + self._own(words, words))
        if self._cross is not None:
            words = self._norms[1](words + self._cross(words, memory))
        found: Tensor = self._norms[2](words + self._forward(words))
        return found


class LanguageModel(nn.Module):
    """Word numbers ``(N, L)`` → scores of the next or the same word ``(N, L, vocabulary)``.

    Parameters
    ----------
    like : Proportions
        Proportions of the known model.
    shrink : int
        Divisor of width, feed-forward width and vocabulary; parameters are divided by its square.
    """

    def __init__(self, like: Proportions, shrink: int) -> None:
        super().__init__()
        width, feed_forward = like.width // shrink, like.feed_forward // shrink
        self._words = nn.Embedding(like.vocabulary // shrink, width)
        self._places = nn.Parameter(torch.randn(512, width) / 50)
        self._encoder = nn.ModuleList(
            _Layer(width, feed_forward, causal=False, crosses=False) for _ in range(like.encoder_layers)
        )
        self._decoder = nn.ModuleList(
            _Layer(width, feed_forward, causal=True, crosses=like.encoder_layers > 0)
            for _ in range(like.decoder_layers)
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Compute the scores."""
        start = found = self._words(ids) + self._places[: ids.shape[1]]
        for layer in self._encoder:
            found = layer(found, found)
        memory = found
        if self._decoder:
            found = start
        for layer in self._decoder:
            found = layer(found, memory)
        return found @ self._words.weight.T


_VGG = (64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512, 512, 512)
_CLASSES = 21
_BOXES = (4, 6, 6, 6, 4, 4)
_MAPS = (512, 1024, 512, 256, 256, 256)


class SSD300(nn.Module):
    """Single shot detector on VGG16 (Liu et al., 2016): photos ``(N, 3, 300, 300)`` → boxes and class scores.

    Returns
    -------
    Tensor, (N, 8732, 4)
        Offsets of boxes.
    Tensor, (N, 8732, 21)
        Scores; 20 classes and the background, as on PASCAL VOC.
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for one in _VGG:
            if isinstance(one, int):
                layers += [nn.Conv2d(channels, one, 3, padding=1), nn.ReLU()]
                channels = one
            else:
                layers.append(nn.MaxPool2d(2, ceil_mode=True))
        self._base = nn.Sequential(*layers)
        self._deeper = nn.Sequential(
            nn.MaxPool2d(2),
            *(part for _ in range(3) for part in (nn.Conv2d(512, 512, 3, padding=1), nn.ReLU())),
            nn.MaxPool2d(3, stride=1, padding=1),
            nn.Conv2d(512, 1024, 3, padding=6, dilation=6),
            nn.ReLU(),
            nn.Conv2d(1024, 1024, 1),
            nn.ReLU(),
        )
        self._extra = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(before, middle, 1),
                nn.ReLU(),
                nn.Conv2d(middle, after, 3, stride=stride, padding=padding),
                nn.ReLU(),
            )
            for before, middle, after, stride, padding in (
                (1024, 256, 512, 2, 1),
                (512, 128, 256, 2, 1),
                (256, 128, 256, 1, 0),
                (256, 128, 256, 1, 0),
            )
        )
        self._boxes, self._scores = (
            nn.ModuleList(
                nn.Conv2d(channels, count * each, 3, padding=1)
                for channels, count in zip(_MAPS, _BOXES, strict=True)
            )
            for each in (4, _CLASSES)
        )

    def forward(self, photos: Tensor) -> tuple[Tensor, Tensor]:
        """Compute boxes and scores."""
        maps = [self._base(photos)]
        maps.append(self._deeper(maps[0]))
        for layer in self._extra:
            maps.append(layer(maps[-1]))
        boxes = [head(one).movedim(1, 3).flatten(1) for head, one in zip(self._boxes, maps, strict=True)]
        scores = [head(one).movedim(1, 3).flatten(1) for head, one in zip(self._scores, maps, strict=True)]
        return torch.cat(boxes, 1).unflatten(1, (-1, 4)), torch.cat(scores, 1).unflatten(1, (-1, _CLASSES))


def export(network: nn.Module, sample: Tensor, input_name: str, path: Path) -> None:
    """Write a network to one ONNX file; the first axis of its input has variable size."""
    torch.onnx.export(
        network.eval(),
        (sample,),
        str(path),
        input_names=[input_name],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def build(name: str, path: Path, *, seed: int, shrink: int) -> None:
    """Build one of `LANGUAGE_MODELS`, or "SSD"."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    if name == "SSD":
        export(SSD300(), torch.zeros(2, 3, 300, 300), "photo", path)
    else:
        ids = torch.zeros(2, WORDS, dtype=torch.int64)
        export(LanguageModel(LANGUAGE_MODELS[name], shrink), ids, "ids", path)
