"""Devices that wait for object models: who waits for what, and when an answer is good enough to send.

A device gets what is here at once when everything is. Otherwise it waits until the rest came or failed, but
not longer than ``patience_s`` once there is anything to send: one model that never comes must not keep back
the others. What is left out is named, stays wanted for a while, and is here when the device asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from nearsight.common.clock import Clock
from nearsight.common.recognition.models import ObjectModel

WANTED_FOR_S = 30.0
"""How long an object stays wanted after a device asked for it."""

MOST_WANTED = 4096
"""Objects that are wanted for devices at the same time; the oldest wishes go."""

_SHARE_OF_DEADLINE = 0.8


@dataclass(frozen=True, slots=True)
class ModelsAnswer:
    """What a device gets: models in the order asked for, unknown objects, and what it must ask for again."""

    models: tuple[ObjectModel, ...]
    missing: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(slots=True)
class _Waiting:
    """One device's request."""

    object_ids: tuple[str, ...]
    patient_until_s: float
    answer_by_s: float
    answer: Future[ModelsAnswer]
    came: dict[str, ObjectModel] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)


class ModelRequests:
    """The requests of devices for models of one catalogue. Used by the background thread alone.

    Parameters
    ----------
    versions : callable
        The catalogue as of now: id → version.
    held : callable
        The current model of an object, None if it is not here.
    held_back : callable
        Whether an object could not be fetched just now.
    clock : Clock
        The time.
    patience_s : float
        How long models that are here wait for others.
    """

    def __init__(
        self,
        versions: Callable[[], Mapping[str, int]],
        held: Callable[[str], ObjectModel | None],
        held_back: Callable[[str], bool],
        clock: Clock,
        patience_s: float,
    ) -> None:
        self._versions = versions
        self._held = held
        self._held_back = held_back
        self._clock = clock
        self._patience_s = patience_s
        self._waiting: list[_Waiting] = []
        self._wanted_until_s: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def ready(self, object_ids: Sequence[str]) -> ModelsAnswer | None:
        """The answer to a request that needs nothing from the cloud, else None; for any thread."""
        versions = self._versions()
        models = {name: model for name in object_ids if (model := self._held(name)) is not None}
        missing = tuple(name for name in object_ids if name not in versions)
        if len(models) + len(missing) < len(object_ids):
            return None
        return ModelsAnswer(tuple(models.values()), missing, ())

    def enter(
        self, object_ids: Sequence[str], remaining_s: float, answer: Future[ModelsAnswer]
    ) -> tuple[float, float]:
        """Let a request wait; returns after how many seconds to `settle` again, at the latest."""
        now_s = self._clock.monotonic()
        by_s = remaining_s * _SHARE_OF_DEADLINE
        self._waiting.append(
            _Waiting(tuple(object_ids), now_s + min(self._patience_s, by_s), now_s + by_s, answer)
        )
        versions = self._versions()
        for name in object_ids:
            if name in versions and self._held(name) is None:
                self._wanted_until_s.pop(name, None)
                self._wanted_until_s[name] = now_s + WANTED_FOR_S
        while len(self._wanted_until_s) > MOST_WANTED:
            del self._wanted_until_s[next(iter(self._wanted_until_s))]
        return min(self._patience_s, by_s), by_s

    def wanted(self) -> tuple[str, ...]:
        """Objects to fetch for devices, the one asked for first first."""
        now_s = self._clock.monotonic()
        versions = self._versions()
        self._wanted_until_s = {
            name: until_s
            for name, until_s in self._wanted_until_s.items()
            if until_s > now_s and name in versions and self._held(name) is None
        }
        return tuple(self._wanted_until_s)

    def arrived(self, models: Iterable[ObjectModel]) -> None:
        """Models came; they stay with who waits for them even if nothing else keeps them."""
        for model in models:
            for waiting in self._waiting:
                if model.object_id in waiting.object_ids:
                    waiting.came[model.object_id] = model

    def failed(self, object_ids: Iterable[str]) -> None:
        """These did not come, and will not soon."""
        gone = set(object_ids)
        for waiting in self._waiting:
            waiting.failed |= gone.intersection(waiting.object_ids)

    def settle(self) -> None:
        """Answer whoever has waited enough."""
        now_s = self._clock.monotonic()
        versions = self._versions()
        still: list[_Waiting] = []
        for waiting in self._waiting:
            answer = self._answer(waiting, versions)
            open_ids = [
                name for name in answer.left_out if name not in waiting.failed and not self._held_back(name)
            ]
            enough = bool(answer.models) and now_s >= waiting.patient_until_s
            if open_ids and not enough and now_s < waiting.answer_by_s:
                still.append(waiting)
            else:
                waiting.answer.set_result(answer)
        self._waiting = still

    def fail(self, error: Exception) -> None:
        """The catalogue is given up: nobody gets anything."""
        for waiting in self._waiting:
            waiting.answer.set_exception(error)
        self._waiting = []

    def _answer(self, waiting: _Waiting, versions: Mapping[str, int]) -> ModelsAnswer:
        models: list[ObjectModel] = []
        left_out: list[str] = []
        for name in waiting.object_ids:
            if name not in versions:
                continue
            model = waiting.came.get(name)
            if model is None or model.version != versions[name]:
                model = self._held(name)
            if model is None:
                left_out.append(name)
            else:
                models.append(model)
        missing = tuple(name for name in waiting.object_ids if name not in versions)
        return ModelsAnswer(tuple(models), missing, tuple(left_out))
