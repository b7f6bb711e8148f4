"""Ways to process a clip: gates, the paper's matcher on the grid of a network, and changed frames."""

import numpy as np
import pytest

from nearsight.experiments.studies.deepcache.networks import SMALL, network_of
from nearsight.experiments.studies.deepcache.ways import (
    DEFAULT,
    GATE,
    OURS,
    PLAIN,
    Gate,
    GridMatcher,
    changes,
    engines_of,
    seen,
)


@pytest.fixture
def picture() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (96, 128, 3), np.uint8)


def test_a_gate_computes_changed_frames_and_after_the_expiry(picture: np.ndarray) -> None:
    computed = []

    def compute(frame: np.ndarray) -> np.ndarray:
        computed.append(frame)
        return np.array([len(computed)], np.float32)

    gate = Gate(compute, DEFAULT._replace(expiry=4))
    other = picture.copy()
    other[40:60, 40:60] = 255 - other[40:60, 40:60]
    answers = [int(gate(frame)[0]) for frame in (picture, picture, other, other, other, other, other)]
    assert answers == [1, 1, 2, 2, 2, 2, 3]


def test_frames_with_a_changed_block_are_detected(picture: np.ndarray) -> None:
    noisy = np.clip(picture.astype(int) + np.random.default_rng(2).integers(-5, 6, picture.shape), 0, 255)
    other = noisy.astype(np.uint8)
    other[:10, :10] = 255 - picture[:10, :10]
    assert changes([picture, noisy.astype(np.uint8), other, other]).tolist() == [True, False, True, False]


def test_offsets_of_the_papers_matcher_are_multiples_of_the_stride(picture: np.ndarray) -> None:
    smooth = np.kron(picture[:24, :32], np.ones((4, 4, 1), np.uint8))
    found = GridMatcher(DEFAULT, 4).match(np.roll(smooth, (-3, 0), (0, 1)), smooth)
    assert found.offset == (4, 0)
    assert found.matched.shape == (10, 13)


def test_outputs_with_reuse_equal_those_of_the_plain_network(tmp_path, picture: np.ndarray) -> None:
    other = picture.copy()
    other[30:50, 30:50] = 255 - other[30:50, 30:50]
    frames = [picture, picture, other, other]
    with engines_of(network_of(SMALL, None), tmp_path) as engines:
        assert engines.size == (128, 96)
        plain, times_ms = seen(engines.way(PLAIN), frames)
        assert times_ms.shape == (4,)
        for way in (GATE, OURS):
            found, _ = seen(engines.way(way), frames)
            for one, expected in zip(found, plain, strict=True):
                assert one == pytest.approx(expected, abs=1e-3)
