"""The state of an edge's cache, and waiting in virtual time until it no longer changes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, repeat
from types import SimpleNamespace

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import SetupError
from nearsight.common.operation.status import HealthService
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.experiments.rig import warming
from nearsight.experiments.rig.warming import CacheState, WarmUp


class Edge:
    """Reports these numbers of cached objects, one per status request; the last one repeatedly."""

    def __init__(self, *held: int, fetching: int = 0, chosen: int = 0) -> None:
        self._held = chain(held, repeat(held[-1])) if held else repeat(None)
        self._fetching = fetching
        self._chosen = chosen
        service = HealthService("edge", lambda: True, self._details)
        self.server = RpcServer([service], tier="edge", settings=ServerSettings())

    def _details(self) -> list[tuple[str, str]]:
        held = next(self._held)
        if held is None:
            return [("cloud", "reached")]
        return [
            ("museum: cached objects", f"{held} of 400, 40 requested"),
            ("museum: fetching", f"{self._fetching} objects"),
            ("museum: decision", f"k={self._chosen}: 7.00 ms = 3.00 ms lookup + ..."),
        ]


@pytest.fixture(autouse=True)
def _virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr(warming, "time", SimpleNamespace(monotonic=clock.monotonic, sleep=clock.advance))
    monkeypatch.setattr(warming, "CALL_TIMEOUT_S", 100.0)


@pytest.fixture
def serve() -> Iterator[list[RpcServer]]:
    servers: list[RpcServer] = []
    yield servers
    for server in servers:
        server.stop()


def started(edge: Edge, servers: list[RpcServer]) -> str:
    edge.server.start()
    servers.append(edge.server)
    return edge.server.endpoint


def test_the_state_of_a_cache_is_read_from_the_status_of_the_edge(serve: list[RpcServer]) -> None:
    assert WarmUp(started(Edge(), serve)).state() == CacheState(0, 0), "the edge has no catalogue"
    assert WarmUp(started(Edge(30, fetching=2, chosen=40), serve)).state() == CacheState(30, 2, 40)


def test_a_cache_is_settled_after_a_time_without_changes(serve: list[RpcServer]) -> None:
    endpoint = started(Edge(0, 20, 25, 30), serve)
    assert WarmUp(endpoint).wait_settled() == 30


def test_a_cache_below_its_chosen_size_settles_later_and_one_that_fetches_does_not() -> None:
    assert CacheState(30, 0, 30).settles_in_s() == 1.0
    assert CacheState(30, 0, 40).settles_in_s() > 4 * 1.2, "four times the longest build that was seen"
    assert CacheState(30, 2, 30).settles_in_s() == math.inf


def test_waiting_for_the_chosen_size_ends_after_the_timeout(serve: list[RpcServer]) -> None:
    endpoint = started(Edge(30, chosen=40), serve)
    assert WarmUp(endpoint).wait_settled(timeout_s=5.0) == 30


def test_a_required_size_that_is_not_reached_is_an_error(serve: list[RpcServer]) -> None:
    endpoint = started(Edge(30, fetching=2), serve)
    with pytest.raises(SetupError, match="holds 30 objects"):
        WarmUp(endpoint).wait_settled(objects=50, timeout_s=0.0)
    assert WarmUp(endpoint).wait_settled(timeout_s=0.0) == 30


def test_an_edge_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "CALL_TIMEOUT_S", 0.1)
    with pytest.raises(SetupError, match="does not answer"):
        WarmUp("tcp://127.0.0.1:9").state()
