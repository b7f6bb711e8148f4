"""The shared wireless channel: airtime, order, repetition and loss."""

import math
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import ConfigurationError, SetupError
from nearsight.experiments.links.radio import Delivery, RadioChannel, RadioSettings, airtime_s
from nearsight.experiments.links.radio_network import RadioNetwork

CLEAR = RadioSettings(error_rate=0.0)
FRAME = bytes(1000)


def carry(channel: RadioChannel) -> list[Delivery]:
    """All deliveries of the frames sent so far."""
    arrived: list[Delivery] = []
    while channel.next_s() < math.inf:
        arrived += channel.advance(channel.next_s())
    return arrived


def test_airtime_is_that_of_the_standard() -> None:
    # 1500 bytes with header and checksum at 54 Mbit/s: 57 symbols of 4 µs after 20 µs, and 6 µs of silence.
    assert airtime_s(1534, 54.0) == pytest.approx((20 + 57 * 4 + 6) * 1e-6)
    assert airtime_s(14, 6.0) == pytest.approx((20 + 6 * 4 + 6) * 1e-6)


def test_a_frame_occupies_the_channel_twice_with_waits_and_acknowledgements() -> None:
    channel = RadioChannel(CLEAR, 2, random.Random(1))
    channel.send(0, 1, FRAME, 0.0)
    (delivery,) = carry(channel)
    once_s = airtime_s(1022, 54.0) + airtime_s(14, 6.0) + 38e-6
    assert (delivery.stations, delivery.frame) == ((1,), FRAME)
    assert 2 * once_s <= delivery.at_s < 2 * once_s + 16 * 9e-6, (
        "the access point waits a random time as well"
    )
    assert channel.busy_s == pytest.approx(delivery.at_s)


def test_all_stations_share_the_airtime() -> None:
    alone = RadioChannel(CLEAR, 20, random.Random(1))
    alone.send(0, 1, FRAME, 0.0)
    (single,) = carry(alone)
    channel = RadioChannel(CLEAR, 20, random.Random(1))
    for station in range(0, 20, 2):
        channel.send(station, station + 1, FRAME, 0.0)
    arrived = carry(channel)
    assert {delivery.stations for delivery in arrived} == {(number,) for number in range(1, 20, 2)}
    assert arrived[-1].at_s > 9 * single.at_s


def test_frames_of_one_station_stay_in_order() -> None:
    channel = RadioChannel(RadioSettings(error_rate=0.3), 3, random.Random(2))
    frames = [bytes([number]) for number in range(50)]
    for frame in frames:
        channel.send(0, 1, frame, 0.0)
        channel.send(2, 1, b"other", 0.0)
    assert [each.frame for each in carry(channel) if each.frame != b"other"] == frames


def test_failed_attempts_are_repeated_and_take_airtime() -> None:
    clear, noisy = (
        RadioChannel(RadioSettings(error_rate=rate, queue_ms=1e6), 2, random.Random(3)) for rate in (0.0, 0.5)
    )
    for channel in (clear, noisy):
        for _ in range(200):
            channel.send(0, 1, FRAME, 0.0)
    assert len(carry(clear)) == 200
    assert len(carry(noisy)) + noisy.lost == 200
    assert noisy.lost <= 5, "of 200 that were each repeated up to seven times"
    assert noisy.busy_s > 1.9 * clear.busy_s


def test_the_share_of_lost_frames_is_that_of_both_hops_together() -> None:
    channel = RadioChannel(RadioSettings(queue_ms=1e9), 2, random.Random(4))
    channel.set_loss(0.2)
    for _ in range(5000):
        channel.send(0, 1, b"x", 0.0)
    assert len(carry(channel)) == pytest.approx(4000, rel=0.03)
    assert channel.lost == pytest.approx(1000, rel=0.1)


def test_each_receiver_of_a_broadcast_loses_it_independently() -> None:
    channel = RadioChannel(RadioSettings(error_rate=0.1, queue_ms=1e9), 11, random.Random(5))
    for _ in range(300):
        channel.send(3, None, b"beacon", 0.0)
    arrived = carry(channel)
    assert not any(3 in delivery.stations for delivery in arrived)
    assert sum(len(delivery.stations) for delivery in arrived) == pytest.approx(2700, rel=0.03)
    assert len({delivery.stations for delivery in arrived}) > 50


def test_frames_that_wait_too_long_are_lost() -> None:
    channel = RadioChannel(CLEAR, 2, random.Random(6))
    for _ in range(5000):
        channel.send(0, 1, FRAME, 0.0)
    arrived = carry(channel)
    assert arrived[-1].at_s < 0.42, "200 ms on each of two hops at most"
    assert len(arrived) + channel.lost == channel.sent == 5000


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.floats(0, 0.01)), max_size=40))
def test_every_frame_arrives_once_or_is_lost(offers: list[tuple[int, int, float]]) -> None:
    channel = RadioChannel(RadioSettings(loss=0.3), 4, random.Random(7))
    now_s, arrived = 0.0, []
    for number, (source, step, gap_s) in enumerate(offers):
        now_s += gap_s
        arrived += channel.advance(now_s)
        channel.send(source, (source + 1 + step % 3) % 4, bytes([number]), now_s)
    arrived += carry(channel)
    frames = [delivery.frame for delivery in arrived]
    assert len(set(frames)) == len(frames)
    assert len(frames) + channel.lost == len(offers)
    assert [delivery.at_s for delivery in arrived] == sorted(delivery.at_s for delivery in arrived)


@pytest.mark.parametrize(
    "wrong",
    [{"rate_mbps": 0.0}, {"basic_rate_mbps": 60.0}, {"error_rate": 1.0}, {"loss": -0.1}, {"retries": -1}],
)
def test_invalid_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        RadioSettings(**wrong)  # type: ignore[arg-type]


def test_a_message_to_an_access_point_that_has_ended_is_an_error_with_its_reason() -> None:
    network = RadioNetwork(2, RadioSettings())
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-S", "-c", "import sys; sys.exit('no such device')"]
    with subprocess.Popen(command, text=True, **pipes) as ended:
        ended.wait()
        network._access_point = ended
        with pytest.raises(SetupError, match="the access point has ended: no such device"):
            network.set_loss(0.5)
