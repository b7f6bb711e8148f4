"""What every eviction policy is: it hears of requests, loads and evictions, and names the models to evict.

A policy sees all requests, also those for models that are not resident: rates and frequencies do not end with
an eviction. Scores are its reasons: the model with the lowest score is evicted first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, NamedTuple, Self

from nearsight.common.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """What a model takes in memory and in time: estimates before its first load, then measured.

    Raises
    ------
    InvalidArgument
        If the size is not positive or a time is negative.
    """

    size_bytes: int
    """In memory, not in its file."""
    load_ms: float
    """Until it can execute, the slow first execution included: the penalty of a miss."""
    execution_ms: float = 0.0
    """Of a warm request."""

    def __post_init__(self) -> None:
        if self.size_bytes <= 0 or not self.load_ms >= 0 or not self.execution_ms >= 0:
            raise InvalidArgument(
                f"a model of {self.size_bytes} bytes that loads in {self.load_ms:g} ms and executes in "
                f"{self.execution_ms:g} ms",
                advice="give a positive size, and times that are not negative",
            )


class Victim(NamedTuple):
    """A model to evict, and the policy's reason."""

    model: str
    score: float
    """Its worth to the policy when it was chosen; only scores of the same moment compare."""


@dataclass(frozen=True)
class Knowledge:
    """What a policy may be told when it is made. Clairvoyant policies need the future."""

    requests: Sequence[str] = ()
    """The models of all requests to come, in their order."""
    rates: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """True mean rates [1/s]."""
    seed: int = 1
    """Of policies that draw."""
    window_s: float = 600.0
    """IAM's window, and memory of its EWMA: an hour of traffic changes within it."""


class Policy(ABC):
    """Decides what to evict."""

    name: ClassVar[str]
    """As in settings. A class in a module of `policies` that has a name is in the registry."""
    clairvoyant: ClassVar[bool] = False
    """Whether it needs the future: for experiments only."""

    @classmethod
    def make(cls, knowledge: Knowledge) -> Self:
        """A new policy; those that need knowledge take it here."""
        del knowledge
        return cls()

    def resized(self, budget_bytes: int) -> None:  # noqa: B027  most policies need no budget
        """The budget is now this."""

    @abstractmethod
    def requested(self, model: str, now_s: float) -> None:
        """A request for a model, resident or not. Called before its decision."""

    @abstractmethod
    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """A model is resident from now on, with its measured costs."""

    @abstractmethod
    def evicted(self, model: str, now_s: float) -> None:
        """A model is not resident any more."""

    @abstractmethod
    def victims(
        self, evictable: Mapping[str, ModelCosts], needed_bytes: int, now_s: float
    ) -> Sequence[Victim]:
        """Choose what to evict.

        Parameters
        ----------
        evictable : mapping of str to ModelCosts
            Resident models that neither execute nor are pinned; together they have the needed bytes.
        needed_bytes : int
            To set free; positive.
        now_s : float

        Returns
        -------
        sequence of Victim
            In order of eviction; together at least the needed bytes.
        """
