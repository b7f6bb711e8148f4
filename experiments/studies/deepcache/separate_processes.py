"""Measurements that need processes of their own: memory of a network, and times of frames of noise."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean

import numpy as np

from nearsight.common.inference.process_memory import own_memory_bytes, return_freed_memory
from nearsight.common.inference.runtime import Runtime
from nearsight.common.video.matching import Frame
from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.studies.deepcache import networks
from nearsight.experiments.studies.deepcache.ways import (
    BLOCK_FRAMES,
    OURS,
    PLAIN,
    Answer,
    engines_of,
    in_turn,
    seen,
)

_PROCESSES, _BLOCKS = 8, 8
"""Number of processes, and of clips of noise in each."""


def noise_ms(network: networks.StudyNetwork, kept: Path, options: RunOptions) -> list[tuple[float, float]]:
    """Mean times of frames of noise, plain and with reuse, for each of several processes.

    The time of a layer with many weights differs by up to 15 % between two copies of the weights, depending
    on where they lie in memory. So one process says little.
    """
    processes, blocks = (2, 2) if options.smoke else (_PROCESSES, _BLOCKS)
    found = list[tuple[float, float]]()
    for number in range(processes):
        with _separate_process() as process:
            rng = options.rng("noise", number)
            found.append(process.submit(_noise_here_ms, network, kept, rng, blocks).result())
    return found


def _noise_here_ms(
    network: networks.StudyNetwork, kept: Path, rng: np.random.Generator, blocks: int
) -> tuple[float, float]:
    """Mean times of a frame in this process, plain and with reuse; one session processes all of the noise."""
    with engines_of(network, kept) as engines:
        width, height = engines.size
        shape = (BLOCK_FRAMES + 1, height, width, 3)
        clips = (rng.integers(0, 256, shape, np.uint8) for _ in range(blocks))
        plain_ms, reuse_ms = zip(*in_turn(engines.way(PLAIN), engines.way(OURS), clips), strict=True)
    return mean(plain_ms), mean(reuse_ms)


def memory_mb(
    network: networks.StudyNetwork, tensors: Sequence[Answer], kept: Path, frames: Sequence[Frame]
) -> tuple[float, float]:
    """Memory of a process that processes a clip, including the network: plain, and with reuse."""
    with _separate_process() as plain:
        plain_mb = plain.submit(_plain_mb, network.path, tensors).result()
    with _separate_process() as reuse:
        return plain_mb, reuse.submit(_reuse_mb, network, kept, list(frames)).result()


def _separate_process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def _plain_mb(path: Path, tensors: Sequence[Answer]) -> float:
    before = _memory_with_library()
    session = networks.plain_session(path)
    for tensor in tensors:
        session.run(None, {session.get_inputs()[0].name: tensor})
    return _grown_mb(before)


def _reuse_mb(network: networks.StudyNetwork, kept: Path, frames: Sequence[Frame]) -> float:
    before = _memory_with_library()
    with engines_of(network, kept) as engines:
        seen(engines.way(OURS), frames)
        return _grown_mb(before)


def _memory_with_library() -> int:
    """Memory of this process [bytes], after the library itself is loaded."""
    Runtime().close()
    return own_memory_bytes()


def _grown_mb(before: int) -> float:
    return_freed_memory()
    return (own_memory_bytes() - before) / 1e6
