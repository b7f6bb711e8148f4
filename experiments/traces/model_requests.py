"""Requests for models: times and models, the association of functions with models, and event files.

Both papers on model caching derive such a trace from calls of serverless functions (CremeBrulee, VI-A;
mCache, 6.1): each function is associated with a real model, then requests are dropped at random. Times and
models are numpy arrays, so that millions of requests need little time and memory.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.common.files import replacing

_LAYOUT = "a line `id time model`: three words, the time in seconds"


@dataclass(frozen=True, slots=True)
class ModelRequests:
    """Requests in ascending order of time.

    Raises
    ------
    InvalidArgument
        If lengths differ, a time is not finite, times are out of order, or a model has no name.
    """

    times_s: NDArray[np.float64]
    """(M,): on a clock that starts with the trace."""
    models: NDArray[np.int32]
    """(M,): index into ``names``."""
    names: tuple[str, ...]
    """(N,): names of all models, including models without requests."""

    def __post_init__(self) -> None:
        if self.times_s.shape != self.models.shape or self.times_s.ndim != 1:
            raise InvalidArgument(
                f"times and models must have one shape (M,), got {self.times_s.shape} and {self.models.shape}"
            )
        if not np.all(np.isfinite(self.times_s)) or np.any(np.diff(self.times_s) < 0):
            raise InvalidArgument("times of requests must be finite and in order")
        if len(self.models) and not 0 <= self.models.min() <= self.models.max() < len(self.names):
            raise InvalidArgument(f"models must be indices of names, 0 to {len(self.names) - 1}")

    def __len__(self) -> int:
        """M, the number of requests."""
        return len(self.times_s)

    def downsampled(self, share: float, rng: np.random.Generator) -> ModelRequests:
        """Keep each request with probability ``share``, independently of the others.

        Raises
        ------
        InvalidArgument
            If the share is not between 0 and 1.
        """
        if not 0.0 <= share <= 1.0:
            raise InvalidArgument(f"the share of requests to keep is between 0 and 1, got {share}")
        kept = rng.random(len(self)) < share
        return ModelRequests(self.times_s[kept], self.models[kept], self.names)

    def counts(self) -> NDArray[np.int64]:
        """Number of requests for each model, (N,)."""
        return np.bincount(self.models, minlength=len(self.names))


class Association(StrEnum):
    """Association of functions with real models: random, or by the order of popularity and load time.

    ``quantiles`` of both papers and ``quantiles-r`` of CremeBrulee's simulation (VI-C): popular-and-costly.
    ``quantiles-r`` of mCache and of CremeBrulee's testbed (VI-B): popular-and-cheap.
    """

    UNIFORM = "uniform"
    """A random model for each function (mCache: "random")."""
    ROUND_ROBIN = "round-robin"
    """Functions in descending order of popularity take models in turn, in descending order of load time."""
    POPULAR_AND_COSTLY = "popular-and-costly"
    """More popular functions have models with longer load times; each model has equally many functions."""
    POPULAR_AND_CHEAP = "popular-and-cheap"
    """More popular functions have models with shorter load times; each model has equally many functions."""


def associate(
    popularity: NDArray[np.float64], load_s: NDArray[np.float64], how: Association, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Assign a real model to each function.

    Parameters
    ----------
    popularity : ndarray, shape (F,)
        Rates or counts of calls; of equally popular functions, the first counts as more popular.
    load_s : ndarray, shape (K,)
        Load times of the real models.
    how : Association
    rng : numpy.random.Generator
        Used by `Association.UNIFORM` only.

    Returns
    -------
    ndarray, shape (F,)
        Index of the model.
    """
    functions, models = len(popularity), len(load_s)
    if how is Association.UNIFORM:
        return rng.integers(models, size=functions, dtype=np.int32)
    ranks = np.empty(functions, dtype=np.int64)
    ranks[np.argsort(-popularity, kind="stable")] = np.arange(functions)  # 0: the most popular
    costly_first = np.argsort(-load_s, kind="stable").astype(np.int32)
    if how is Association.ROUND_ROBIN:
        return costly_first[ranks % models]
    order = costly_first if how is Association.POPULAR_AND_COSTLY else costly_first[::-1]
    return order[ranks * models // functions]


def own_models(
    times_s: NDArray[np.float64],
    functions: NDArray[np.int32],
    chosen: NDArray[np.int32],
    names: tuple[str, ...],
) -> tuple[ModelRequests, NDArray[np.int32]]:
    """Requests if each called function has its own instance of a model, such as "VGG16-17".

    The requests for the real models are ``ModelRequests(times_s, chosen[functions], names)``.

    Parameters
    ----------
    times_s, functions : ndarray, shapes (M,)
        Calls of functions.
    chosen : ndarray, shape (F,)
        Real model of each function.
    names : tuple of str, length K
        Names of the real models.

    Returns
    -------
    requests : ModelRequests
        For N models, in the order of their functions.
    called : ndarray, shape (N,)
        The function of each model; ``chosen[called]`` are their real models.
    """
    called, models = np.unique(functions, return_inverse=True)
    own = tuple(f"{names[chosen[function]]}-{function}" for function in called)
    return ModelRequests(times_s, models.astype(np.int32), own), called.astype(np.int32)


def write_events(path: str | os.PathLike[str], requests: ModelRequests) -> None:
    """Write a line `id time model` for each request; ids count from 0, times are written exactly.

    A file that existed is replaced at the end.

    Raises
    ------
    InvalidArgument
        If the name of a model contains blanks: such a line could not be read.
    """
    for name in requests.names:
        if len(name.split()) != 1:
            raise InvalidArgument(f"the name of a model in an event line is one word, got {name!r}")
    with replacing(Path(path)) as new, new.open("w", encoding="utf-8") as file:
        for place, (time_s, model) in enumerate(
            zip(requests.times_s.tolist(), requests.models.tolist(), strict=True)
        ):
            file.write(f"{place} {time_s!r} {requests.names[model]}\n")


def read_events(path: str | os.PathLike[str]) -> ModelRequests:
    """Read requests from a file of event lines.

    Models are numbered in the order of their first request. Blank lines are skipped.

    Raises
    ------
    NotFound
        If the file does not exist.
    InvalidArgument
        If a line is malformed, or earlier than the line before it. The message names the file and the line.
    """
    path = Path(path)
    if not path.is_file():
        raise NotFound(f"there is no file {path}", advice="check the path")
    times: list[float] = []
    models: list[int] = []
    numbers: dict[str, int] = {}
    last_s = -math.inf
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                words = line.split()
                if not words:
                    continue
                time_s = _time(words)
                if not math.isfinite(time_s):
                    raise InvalidArgument(
                        f"{path}, line {number}: {line.strip()[:80]!r}", advice=f"expected {_LAYOUT}"
                    )
                if time_s < last_s:
                    raise InvalidArgument(
                        f"{path}, line {number}: {time_s:g} s is before {last_s:g} s, the request before it",
                        advice=f"sort the file by its times: sort -s -g -k2,2 {path.name}",
                    )
                last_s = time_s
                times.append(time_s)
                models.append(numbers.setdefault(words[2], len(numbers)))
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path} is no text in UTF-8: {error}", advice=f"expected {_LAYOUT}") from error
    return ModelRequests(np.array(times), np.array(models, dtype=np.int32), tuple(numbers))


def _time(words: list[str]) -> float:
    try:
        return float(words[1]) if len(words) == 3 else math.nan
    except ValueError:
        return math.nan
