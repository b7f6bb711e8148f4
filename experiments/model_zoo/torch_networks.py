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

WORDS = 20
"""Words per query (mCache, section 6.1)."""
_HEAD = 64
"""Channels of an attention head."""


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


class LanguageModel(nn.Module):
    """Word numbers ``(N, L)`` → scores of the next or the same word ``(N, L, vocabulary)``.

    Parameters
    ----------
    like : Proportions
        Proportions of the known model.
    shrink : int
        Divisor of the number of heads (and so of the width), of feed-forward width and vocabulary, rounded
        down; at most the number of heads. Parameters are divided by about its square.
    """

    def __init__(self, like: Proportions, shrink: int) -> None:
        super().__init__()
        heads = like.width // _HEAD // shrink
        width, feed_forward = _HEAD * heads, like.feed_forward // shrink
        self._words = nn.Embedding(like.vocabulary // shrink, width)
        self._places = nn.Parameter(torch.randn(512, width) / 50)
        self._encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, feed_forward, activation="gelu", batch_first=True)
            for _ in range(like.encoder_layers)
        )
        # PyTorch's decoder layers need the output of an encoder; encoder layers with a mask do not.
        kind = nn.TransformerDecoderLayer if like.encoder_layers else nn.TransformerEncoderLayer
        self._decoder = nn.ModuleList(
            kind(width, heads, feed_forward, activation="gelu", batch_first=True)
            for _ in range(like.decoder_layers)
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Compute the scores. The decoder attends to earlier words only."""
        start = memory = self._words(ids) + self._places[: ids.shape[1]]
        for layer in self._encoder:
            memory = layer(memory)
        found = start if self._decoder else memory
        earlier = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        for layer in self._decoder:
            found = layer(found, memory, earlier) if self._encoder else layer(found, earlier)
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
