"""The models of the papers: load time, execution time and memory.

CremeBrulee measured 26 CNNs of Keras with TensorFlow Serving on an m5.large. Its published memory sizes are
all zero. The paper states that all 26 models need 21.7 GB; this module distributes them in proportion to the
weight files.

mCache served seven models from a GPU. It did not publish their costs, but the costs of nine others (table 2).
"""

from __future__ import annotations

from nearsight.common.model_cache.policy import ModelCosts

_MB = 1_000_000
_CREMEBRULEE_BYTES = 21_700 * _MB

# load s, execution s, weight file MB
_MEASURED: dict[str, tuple[float, float, int]] = {
    "DenseNet121": (7.430, 0.272, 33),
    "DenseNet169": (9.399, 0.301, 57),
    "DenseNet201": (11.553, 0.339, 80),
    "EfficientNetB0": (4.753, 0.263, 29),
    "EfficientNetB1": (5.947, 0.331, 31),
    "EfficientNetB2": (6.702, 0.379, 36),
    "EfficientNetB3": (6.945, 0.524, 48),
    "EfficientNetB4": (8.269, 0.869, 75),
    "EfficientNetB5": (10.272, 1.440, 118),
    "EfficientNetB6": (11.979, 2.216, 166),
    "EfficientNetB7": (14.874, 3.550, 256),
    "InceptionResNetV2": (12.141, 0.687, 215),
    "InceptionV3": (5.633, 0.423, 92),
    "MobileNet": (2.550, 0.191, 16),
    "MobileNetV2": (3.145, 0.193, 14),
    "NASNetLarge": (19.474, 1.269, 343),
    "NASNetMobile": (13.006, 0.300, 23),
    "ResNet50": (4.046, 0.278, 98),
    "ResNet50V2": (3.977, 0.269, 98),
    "ResNet101": (7.546, 0.373, 171),
    "ResNet101V2": (6.591, 0.366, 171),
    "ResNet152": (10.642, 0.464, 232),
    "ResNet152V2": (10.337, 0.454, 232),
    "VGG16": (4.589, 0.455, 528),
    "VGG19": (4.232, 0.522, 549),
    "Xception": (3.563, 0.512, 88),
}

_MCACHE_WEIGHTS_MB = {
    "ResNet50": 102,
    "SSD": 138,
    "BERT": 440,
    "RoBERTa": 499,
    "XLNet": 467,
    "GPT-2": 548,
    "T5": 892,
}
"""Sizes of the basic versions in the Hugging Face hub [MB]; the paper says "hundreds of MB to several GB"."""
_MCACHE_START_S, _MCACHE_MB_PER_S = 0.08, 60.0
"""Load times are a start and a transfer; a line through table 2 has 0.09 s and 100 MB/s.

These models come from a disk over a network. With 60 MB/s, loading is 98 % of the latency of
`quantiles` at 20 % of the memory, as in figure 7.
"""
_MCACHE_EXECUTION_S = 0.26
"""Execution time including the transfer to the client.

It is consistent with the load times of table 3 and the throughput of figure 10 at 80 % of the memory.
"""
MCACHE_FIXED_MB = 500
"""Memory of each of mCache's models besides its weights: graph and workspace."""


def mcache_models(fixed_mb: float = MCACHE_FIXED_MB) -> dict[str, ModelCosts]:
    """The seven models of mCache's section 6 by name; the size of each is its weights and a fixed part.

    The fixed part is not published. Without it, penalties would be proportional to sizes, and equation 1
    would contain no information besides the rates.
    """
    return {
        name: ModelCosts(
            round((fixed_mb + megabytes) * _MB),
            1e3 * (_MCACHE_START_S + megabytes / _MCACHE_MB_PER_S),
            1e3 * _MCACHE_EXECUTION_S,
        )
        for name, megabytes in _MCACHE_WEIGHTS_MB.items()
    }


def cremebrulee_models() -> dict[str, ModelCosts]:
    """The 26 models of CremeBrulee by name; together they need 21.7 GB."""
    all_mb = sum(weights_mb for _, _, weights_mb in _MEASURED.values())
    return {
        name: ModelCosts(_CREMEBRULEE_BYTES * weights_mb // all_mb, 1e3 * load_s, 1e3 * execution_s)
        for name, (load_s, execution_s, weights_mb) in _MEASURED.items()
    }
