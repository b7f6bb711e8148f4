"""Links of the twin, and connections over them."""

import numpy as np
import pytest

from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.twin.cost_model import CostModel, Costs
from nearsight.experiments.twin.events import EventQueue
from nearsight.experiments.twin.link import (
    Connection,
    OnReply,
    TierRequest,
    TwinLink,
    call_over_link,
    tier_over_link,
)
from nearsight.experiments.twin.photos import TwinPhoto


def _link(events: EventQueue, rtt_ms: float) -> TwinLink:
    return TwinLink(events, LinkShape(rtt_ms=rtt_ms), np.random.default_rng(1))


def test_messages_are_serialised_on_a_narrow_link() -> None:
    events, arrived = EventQueue(), list[float]()
    link = TwinLink(events, LinkShape(rtt_ms=20.0, up_mbps=8.0), np.random.default_rng(1))
    for _ in range(2):
        link.up(10_000, lambda: arrived.append(events.now_s))
    events.run()
    assert arrived == [pytest.approx(0.020), pytest.approx(0.030)]
    assert link.up_bytes == 20_000


def test_a_saturated_link_carries_no_more_than_its_rate() -> None:
    events = EventQueue()
    link = TwinLink(events, LinkShape(up_mbps=8.0, down_mbps=16.0), np.random.default_rng(1))
    for _ in range(20):
        link.up(100_000, lambda: None)
        link.down(100_000, lambda: None)
    events.run(0.55)
    assert (link.up_bytes, link.down_bytes) == (500_000, 1_100_000)


def test_requests_wait_until_the_connection_is_established() -> None:
    events, there = EventQueue(), list[float]()
    connection = Connection(_link(events, 40.0))
    for at_s in (0.0, 0.05, 1.0):
        events.at(at_s, lambda: connection.when_connected(lambda: there.append(events.now_s)))
    events.run()
    assert there == pytest.approx([0.12, 0.12, 1.0])


def test_a_connection_without_delay_is_established_immediately() -> None:
    events, there = EventQueue(), list[float]()
    connection = Connection(_link(events, 0.0))
    events.at(1.0, lambda: connection.when_connected(lambda: there.append(events.now_s)))
    events.run()
    assert there == [1.0]


def test_a_tier_counts_the_time_left_from_the_arrival_of_a_request() -> None:
    events, left_s = EventQueue(), list[float]()
    link = TwinLink(events, LinkShape(up_mbps=8e-3), np.random.default_rng(1))  # 1 kB per second
    costs = Costs(CostModel.assumed(), 1, np.random.default_rng(1))

    def ask(_request: TierRequest, deadline_s: float, _answered: OnReply) -> None:
        left_s.append(deadline_s - events.now_s)

    tier = tier_over_link(link, 0.0, costs, ask)
    request = TierRequest(TwinPhoto("0001", 3_000, 200.0, at_second_look=True), True, 3_000)
    tier(request, 1.0, lambda _outcome: None)
    events.run()
    assert events.now_s > 3.0
    call_over_link(link, 0.0, lambda deadline_s, _answered: left_s.append(deadline_s - events.now_s), 2.0)
    events.run()
    handshake_s = 0.09
    assert left_s == pytest.approx([1.0 - handshake_s, 2.0])
