"""Interface of eviction policies: they receive requests, loads and evictions, and choose the models to evict.

A policy receives all requests, including those for models that are not resident, so that rates and
frequencies continue after an eviction. Models with the lowest scores are evicted first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from nearsight.common.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """Memory and times of a model: estimated before its first load, measured afterwards.

    Raises
    ------
    InvalidArgument
        If the size is not positive or a time is negative.
    """

    size_bytes: int
    """Size in memory, which differs from the file's size."""
    load_ms: float
    """Penalty of a miss: duration of the load, including a slow first execution."""
    execution_ms: float = 0.0
    """Duration of later executions."""

    def __post_init__(self) -> None:
        if self.size_bytes <= 0 or not self.load_ms >= 0 or not self.execution_ms >= 0:
            raise InvalidArgument(
                f"a model cannot have {self.size_bytes} bytes, load in {self.load_ms:g} ms and execute in "
                f"{self.execution_ms:g} ms",
                advice="give a positive size, and times that are not negative",
            )


Evictable = Mapping[str, ModelCosts]
"""Resident models that are neither executing nor pinned."""


class Victim(NamedTuple):
    """A model to evict, and its score."""

    model: str
    score: float
    """Score at the time of the choice. Only scores of the same time are comparable."""


@dataclass(frozen=True)
class Knowledge:
    """Information for creating a policy. Only clairvoyant policies use future requests and true rates."""

    requests: Sequence[str] = ()
    """Models of all future requests, in order."""
    rates: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """True mean request rates [1/s]."""
    seed: int = 1
    """Seed of random policies."""
    window_s: float = 600.0
    """Window of IAM, and memory of its EWMA. The default suits rarely requested models (decision 047)."""


class Policy(ABC):
    """Chooses the models to evict. Settings name the policies of `registry`."""

    def resized(self, budget_bytes: int) -> None:  # noqa: B027  most policies need no budget
        """Set the memory budget."""

    @abstractmethod
    def requested(self, model: str, now_s: float) -> None:
        """Record a request for a model, resident or not. Called before the decision about it."""

    @abstractmethod
    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """Record that a model is resident, with its measured costs."""

    @abstractmethod
    def evicted(self, model: str, now_s: float) -> None:
        """Record that a model is no longer resident."""

    @abstractmethod
    def victims(self, evictable: Evictable, needed_bytes: int, now_s: float) -> Sequence[Victim]:
        """Choose the models to evict.

        Parameters
        ----------
        evictable : Evictable
            Their total size is at least ``needed_bytes``.
        needed_bytes : int
            Bytes to free; positive.
        now_s : float

        Returns
        -------
        sequence of Victim
            In order of eviction; their total size is at least ``needed_bytes``.
        """


def until_enough(victims: Iterable[Victim], evictable: Evictable, needed_bytes: int) -> list[Victim]:
    """The first of these models whose sizes reach the needed bytes."""
    chosen = []
    for victim in victims:
        chosen.append(victim)
        needed_bytes -= evictable[victim.model].size_bytes
        if needed_bytes <= 0:
            break
    return chosen
