"""Pings of strangers, a few at a time."""

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
    """A pinger whose calls the test answers."""

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

    def begin(self, number: int, *, urgent: bool = False) -> None:
        self.pinger.begin(Ping(NodeId(number), str(number), number, urgent))

    def _ask(self, node_id: NodeId | None, endpoint: str) -> Future[PingReply]:
        if endpoint in self.refused:
            raise Unauthenticated("no key")
        self.open[endpoint] = Future()
        return self.open[endpoint]


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def test_an_answer_is_told_with_the_time_that_it_took(recorded: Recorded) -> None:
    recorded.begin(1)
    recorded.clock.advance(0.25)
    recorded.open["1"].set_result(PingReply(NodeId(1), 5))
    assert recorded.answered == [("1", 0.25)]


def test_strangers_are_asked_a_few_at_a_time(recorded: Recorded) -> None:
    for number in range(10):
        recorded.begin(number)
    assert list(recorded.open) == [str(number) for number in range(STRANGERS_AT_A_TIME)]
    recorded.open["0"].set_result(PingReply(NodeId(9), 5))
    recorded.open["1"].set_exception(Unavailable("gone"))
    recorded.pinger.pump()
    assert len(recorded.open) == STRANGERS_AT_A_TIME + 2
    assert recorded.failed == ["1"]


def test_a_newcomer_has_its_turn_in_a_flood_of_strangers_that_never_answer(recorded: Recorded) -> None:
    begun = 0
    for number in range(100_000, 100_000 + 20 * WAITING_STRANGERS):
        recorded.begin(number)
        if number % 50 == 0:
            recorded.begin(7)
        if number % 10 == 0:  # pings time out at a tenth of the rate at which beacons come
            one, waits = next((one, waits) for one, waits in recorded.open.items() if not waits.done())
            begun += one == "7"
            waits.set_exception(Unavailable("silent"))
            recorded.pinger.pump()
    assert begun >= 3
    assert len(recorded.dropped) > 15 * WAITING_STRANGERS


def test_peers_that_may_be_gone_do_not_wait_behind_strangers(recorded: Recorded) -> None:
    for number in range(10):
        recorded.begin(number)
    for number in range(20, 40):
        recorded.begin(number, urgent=True)
    assert {str(number) for number in range(20, 40)} <= recorded.open.keys()


def test_one_that_cannot_be_asked_has_failed_and_takes_no_place(recorded: Recorded) -> None:
    recorded.refused = {str(number) for number in range(10)}
    for number in range(12):
        recorded.begin(number)
    assert recorded.failed == [str(number) for number in range(10)]
    assert list(recorded.open) == ["10", "11"]


def test_a_refusal_is_said_once_for_each_address(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.refused = {"1", "2"}
    for number in (1, 1, 2):
        recorded.begin(number, urgent=True)
    assert recorded.failed == ["1", "1", "2"]
    assert capsys.readouterr().err.count("does not share with this one") == 2
