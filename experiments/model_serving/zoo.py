"""The models of the papers: what they take to load, to execute and in memory.

CremeBrulee measured 26 CNNs of Keras under TensorFlow Serving on an m5.large. Its published memory sizes are
all zero. It says that all 26 take 21.7 GB; here each takes twice its weight file, and all the same share of
the rest.
"""

from __future__ import annotations

from nearsight.common.model_cache.policy import ModelCosts

_MB = 1_000_000
_CREMEBRULEE_BYTES = 21_700 * _MB
_COPIES_OF_WEIGHTS = 2

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


def cremebrulee_models() -> dict[str, ModelCosts]:
    """The 26 models of CremeBrulee by name; together they take 21.7 GB."""
    weights = {name: _COPIES_OF_WEIGHTS * megabytes * _MB for name, (_, _, megabytes) in _MEASURED.items()}
    share = (_CREMEBRULEE_BYTES - sum(weights.values())) // len(weights)
    return {
        name: ModelCosts(share + weights[name], 1e3 * load_s, 1e3 * execution_s)
        for name, (load_s, execution_s, _) in _MEASURED.items()
    }
