"""Pings of unknown nodes, a few at a time."""

from __future__ import annotations

import random
from concurrent.futures import Future

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import Unauthenticated, Unavailable
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.presence.peer import PingReply
from nearsight.device.peers.presence.pings import STRANGERS_AT_A_TIME, WAITING_STRANGERS, Ping, Pinger


class Recorded:
    """A pinger whose calls are answered by the test."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.open: dict[str, Future[PingReply]] = {}
        self.answered: list[tuple[str, float]] = []
        self.failed: list[str] = []
        self.dropped: list[str] = []
        self.refused: set[str] = set()
        self.pinger = Pinger(
            self._ask,
            lambda ping, _, took_s: self.answered.append((ping.endpoint, took_s)),
            lambda ping: self.failed.append(ping.endpoint),
            lambda ping: self.dropped.append(ping.endpoint),
            self.clock,
            random.Random(1),
        )

    def begin(self, number: int, endpoint: str = "", *, urgent: bool = False) -> None:
        self.pinger.begin(Ping(NodeId(number), endpoint or str(number), number, urgent))

    def _ask(self, node_id: NodeId | None, endpoint: str) -> Future[PingReply]:
        if endpoint in self.refused:
            raise Unauthenticated("no key")
        self.open[endpoint] = Future()
        return self.open[endpoint]


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def test_an_answer_is_reported_with_its_round_trip_time(recorded: Recorded) -> None:
    recorded.begin(1)
    recorded.clock.advance(0.25)
    recorded.open["1"].set_result(PingReply(NodeId(1), 5))
    assert recorded.answered == [("1", 0.25)]


def test_unknown_nodes_are_pinged_a_few_at_a_time(recorded: Recorded) -> None:
    for number in range(10):
        recorded.begin(number)
    assert list(recorded.open) == [str(number) for number in range(STRANGERS_AT_A_TIME)]
    recorded.open["0"].set_result(PingReply(NodeId(9), 5))
    recorded.open["1"].set_exception(Unavailable("gone"))
    recorded.pinger.pump()
    assert len(recorded.open) == STRANGERS_AT_A_TIME + 2
    assert recorded.failed == ["1"]


def test_a_new_node_is_pinged_during_a_flood_of_forged_beacons(recorded: Recorded) -> None:
    """A thousand forged beacons of 20 hosts arrive per ping timeout; the new node sends one."""
    newcomer = "tcp://10.0.0.99:7000"
    asked_after = None
    for timed_out in range(40):
        for number in range(1000):
            recorded.begin(number, f"tcp://10.0.0.{number % 20}:{1000 + number}")
        if timed_out == 10:
            recorded.begin(7, newcomer)
        if newcomer in recorded.open:
            asked_after = timed_out
            break
        next(waits for waits in recorded.open.values() if not waits.done()).set_exception(Unavailable(""))
        recorded.pinger.pump()
    assert asked_after is not None
    assert 10 <= asked_after <= 10 + 20, "at the latest after one failed ping of each flooding host"
    assert len(recorded.dropped) > 10 * WAITING_STRANGERS


def test_a_host_with_failed_pings_is_pinged_after_other_hosts(recorded: Recorded) -> None:
    for number in range(3 * STRANGERS_AT_A_TIME):
        recorded.begin(number, f"tcp://10.0.0.1:{1000 + number}")
    recorded.open["tcp://10.0.0.1:1000"].set_exception(Unavailable("silent"))
    recorded.begin(99, "tcp://10.0.0.2:1000")
    assert "tcp://10.0.0.2:1000" in recorded.open


def test_urgent_pings_do_not_wait_for_those_of_unknown_nodes(recorded: Recorded) -> None:
    for number in range(10):
        recorded.begin(number)
    for number in range(20, 40):
        recorded.begin(number, urgent=True)
    assert {str(number) for number in range(20, 40)} <= recorded.open.keys()


def test_a_ping_that_cannot_be_sent_fails_and_leaves_its_place_to_others(recorded: Recorded) -> None:
    recorded.refused = {str(number) for number in range(10)}
    for number in range(12):
        recorded.begin(number)
    assert recorded.failed == [str(number) for number in range(10)]
    assert list(recorded.open) == ["10", "11"]


def test_a_refusal_is_logged_once_per_address(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    recorded.refused = {"1", "2"}
    for number in (1, 1, 2):
        recorded.begin(number, urgent=True)
    assert recorded.failed == ["1", "1", "2"]
    assert capsys.readouterr().err.count("does not share with this one") == 2
