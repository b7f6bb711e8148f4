"""A law of the request flow: events of a recorded session give the same effects when they are replayed.

So a flow depends only on its events and their times, and not on clocks, threads or sockets.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nearsight import Recognizer, RecognizerSettings
from nearsight.common.errors import NearsightError
from nearsight.common.request.effects import Effect, Finish, Look, Work
from nearsight.common.request.flow import RequestFlow
from nearsight.common.request.forms import Payload
from nearsight.common.request.next_tiers import AskRules, NextTiers
from nearsight.device.local_recognition import DeviceObjectCache
from nearsight.device.query import DeviceQuery
from nearsight.device.recognizer import COMPUTING_MS
from nearsight.edge import service as edge_service
from nearsight.edge.catalogue_cache import CatalogueCache
from nearsight.edge.query import EdgeQuery
from nearsight.edge.services import next_tiers
from nearsight.edge.settings import CacheSettings
from support.edge import CATALOGUE, EXHIBITS, RECOGNITION, ScriptedCloud, exhibit, photo, running_edge
from support.waiting import wait_until

EVENTS = ("begin", "made", "not_made", "looked", "replied", "failed", "end", "expired")


@dataclass
class Event:
    """One event of one flow, the answers of its query and stages, and the effect."""

    flow: int
    name: str
    arguments: tuple[Any, ...]
    options: dict[str, bool]
    answers: list[object]
    effect: Effect[Any] | None


@dataclass
class Recording:
    """All events of the flows of one tier, in their order."""

    events: list[Event] = field(default_factory=list)
    flows: list[tuple[int, float, float]] = field(default_factory=list)
    answers: threading.local = field(default_factory=threading.local)

    def flow_class(self) -> type[RequestFlow[Any]]:
        """A `RequestFlow` that records itself."""
        recording = self

        class Recorded(RequestFlow[Any]):
            def __init__(
                self,
                stages: Sequence[Any],
                tiers: NextTiers,
                tier: str,
                started_at_s: float,
                deadline_s: float,
                **options: bool,
            ) -> None:
                super().__init__(stages, tiers, tier, started_at_s, deadline_s, **options)
                self.number = len(recording.flows)
                recording.flows.append((len(stages), started_at_s, deadline_s))

        def recorded(name: str) -> Callable[..., Effect[Any] | None]:
            event = getattr(RequestFlow, name)

            def call(flow: Recorded, *arguments: Any, **options: bool) -> Effect[Any] | None:
                recording.answers.now = answers = []
                effect: Effect[Any] | None = event(flow, *arguments, **options)
                recording.events.append(Event(flow.number, name, arguments, options, answers, effect))
                return effect

            return call

        for name in EVENTS:
            setattr(Recorded, name, recorded(name))
        return Recorded

    def watch(self, patch: pytest.MonkeyPatch, owner: type, *names: str) -> None:
        """Record the results of these methods during events."""
        for name in names:
            method = getattr(owner, name)

            def answer(this: object, *arguments: object, method: Callable[..., object] = method) -> object:
                found = method(this, *arguments)
                if hasattr(self.answers, "now"):
                    self.answers.now.append(found)
                return found

            patch.setattr(owner, name, answer)


class Replayed:
    """A query and all its stages, with the recorded answers."""

    grain = "object"

    def __init__(self, query: DeviceQuery | EdgeQuery | None) -> None:
        self.answers: deque[Any] = deque()
        self.has_image = query is not None and query.has_image
        self.asked_again = query is not None and query.asked_again
        self.one_look = query is not None and query.one_look

    def payloads(self, features_bytes: int) -> Sequence[Payload]:
        found: Sequence[Payload] = self.answers.popleft()
        return found

    def missing(self, form: str) -> Work | None:
        found: Work | None = self.answers.popleft()
        return found

    def missing_features(self, count: int) -> Work | None:
        found: Work | None = self.answers.popleft()
        return found

    def features_wanted(self, query: Replayed) -> int | None:
        found: int | None = self.answers.popleft()
        return found

    def look(self, query: Replayed) -> None:
        raise AssertionError("a replayed event contains the result")

    def learn(self, *_: object) -> None:
        raise AssertionError("effects are compared, not performed")


def comparable(effect: Effect[Any] | None) -> object:
    """An effect without the identity of stages and errors."""
    if isinstance(effect, Look):
        return "look"
    if isinstance(effect, Finish):
        outcome = effect.outcome
        shown = (type(outcome), str(outcome)) if isinstance(outcome, NearsightError) else outcome
        return shown, effect.lesson, len(effect.learners)
    return effect


def replayed(recording: Recording, tiers: NextTiers, tier: str) -> list[object]:
    """The effects of the recorded events on new flows."""
    begun = {event.flow: event.arguments[0] for event in recording.events if event.name == "begin"}
    stages, flows = [], []
    for number, (count, started_s, deadline_s) in enumerate(recording.flows):
        stage = Replayed(begun.get(number))
        stages.append(stage)
        flows.append(RequestFlow([stage] * count, tiers, tier, started_s, deadline_s))
    effects = []
    for event in recording.events:
        stage, arguments = stages[event.flow], event.arguments
        stage.answers.extend(event.answers)
        if event.name in {"begin", "looked"}:
            arguments = (stage, *arguments[1:])
        effects.append(comparable(getattr(flows[event.flow], event.name)(*arguments, **event.options)))
        assert not stage.answers, f"{event.name} used fewer answers than before"
    return effects


@pytest.fixture
def cloud() -> Iterator[ScriptedCloud]:
    served = ScriptedCloud([exhibit(number) for number in range(EXHIBITS)])
    yield served
    served.stop()


def test_recorded_events_give_the_same_effects(
    cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_device, on_edge = Recording(), Recording()
    monkeypatch.setattr("nearsight.device.engine.RequestFlow", on_device.flow_class())
    monkeypatch.setattr(edge_service, "RequestFlow", on_edge.flow_class())
    questions = ("payloads", "missing", "missing_features")
    on_device.watch(monkeypatch, DeviceQuery, *questions)
    on_device.watch(monkeypatch, DeviceObjectCache, "features_wanted")
    on_edge.watch(monkeypatch, EdgeQuery, *questions)
    on_edge.watch(monkeypatch, CatalogueCache, "features_wanted")
    settings = RecognizerSettings(timeout_s=60.0)
    settings = settings.model_copy(
        update={"prefetch": settings.prefetch.model_copy(update={"recognition": RECOGNITION})}
    )
    missing = tmp_path / "no such photo.jpg"
    with (
        running_edge(cloud.endpoint, cache=CacheSettings(miss_prior_ms=1000.0), forward="features") as edge,
        Recognizer(edge.endpoint, cloud.endpoint, CATALOGUE, settings=settings) as device,
    ):
        for number in [0, 1, 0, 0, 77, 1, 0, 77]:
            device.recognize_blocking(photo(number))

        def hit() -> bool:
            return device.recognize_blocking(photo(0)).answered_by != "cloud"

        wait_until(hit, what="a hit in a cache")
        with pytest.raises(NearsightError):
            device.recognize_blocking(missing)
        edge.stop(0.0)
        device.recognize_blocking(photo(2))
    assert {event.name for event in on_device.events} >= {"begin", "replied", "failed", "not_made"}
    both = [*on_device.events, *on_edge.events]
    assert any(event.name == "looked" and isinstance(event.effect, Finish) for event in both), "a hit"
    assert any(getattr(event.effect, "again", False) for event in both), "a photo was sent twice"
    rules = AskRules(settings.tier_share, settings.breaker)
    device_tiers = NextTiers(("edge", "cloud"), rules, COMPUTING_MS, RECOGNITION.query_features)
    assert replayed(on_device, device_tiers, "device") == [
        comparable(event.effect) for event in on_device.events
    ]
    edge_tiers = next_tiers(RECOGNITION.query_features)
    assert replayed(on_edge, edge_tiers, "edge") == [comparable(event.effect) for event in on_edge.events]
