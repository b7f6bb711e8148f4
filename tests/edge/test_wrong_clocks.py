"""Devices with wrong clocks: no message depends on the time of a device."""

import itertools
import time
from dataclasses import dataclass

import pytest
import zmq
from google.protobuf.descriptor import FieldDescriptor

from nearsight import DeadlineExceeded, Recognizer, RecognizerSettings
from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import NearsightError
from nearsight.common.recognition.models import ObjectModel
from nearsight.device.recognizer_settings import PrefetchSettings
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.settings import CacheSettings
from nearsight.protos import (
    catalogue_pb2,
    echo_pb2,
    explanation_pb2,
    health_pb2,
    prediction_pb2,
    recognition_pb2,
    rpc_pb2,
)
from nearsight.protos.rpc_pb2 import RequestHeader
from support.edge import CATALOGUE, EdgeClient, ScriptedCloud, cache_of, photo, running_edge
from support.waiting import LONG_S

PLAIN = RecognizerSettings(timeout_s=LONG_S, prefetch=PrefetchSettings(enabled=False))


class WrongClock:
    """A clock with a wrong start, whose date changes between any two readings."""

    def __init__(self, uptime_offset_s: float, *dates_s: float) -> None:
        self._offset_s = uptime_offset_s
        self._dates_s = itertools.cycle(dates_s)

    def monotonic(self) -> float:
        """Runs at the right rate from a wrong start."""
        return time.monotonic() + self._offset_s

    def wall(self) -> float:
        """Some date."""
        return next(self._dates_s)


CLOCKS: dict[str, Clock] = {
    "right": SYSTEM_CLOCK,
    "1970": WrongClock(-1e6, 0.0),
    "2100": WrongClock(1e9, 4.1e9),
    "jumping": WrongClock(12_345.6, 4.1e9, 0.0, -1e9, 1.7e9),
}


@dataclass
class Message:
    """The message of a device."""

    header: RequestHeader
    blobs: list[bytes]
    time_left_ms: int


def message_of(clock: Clock) -> Message:
    """The message that a device sends to a server."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as listener:
        listener.linger = 0
        endpoint = f"tcp://127.0.0.1:{listener.bind_to_random_port('tcp://127.0.0.1')}"
        with Recognizer(endpoint, None, CATALOGUE, device_id="phone", settings=PLAIN, clock=clock) as device:
            device.recognize(photo(0), lambda _outcome: None)
            assert listener.poll(1000 * LONG_S), "a request"
            _, header_frame, *blobs = listener.recv_multipart()
    header = RequestHeader.FromString(header_frame)
    time_left_ms = header.time_left_ms
    header.ClearField("time_left_ms")
    header.ClearField("trace_id")  # random
    return Message(header, blobs, time_left_ms)


@pytest.mark.parametrize("name", ["1970", "2100", "jumping"])
def test_messages_do_not_depend_on_the_clock_of_the_device(name: str) -> None:
    right, wrong = message_of(CLOCKS["right"]), message_of(CLOCKS[name])
    assert wrong.header == right.header
    assert wrong.blobs == right.blobs
    assert 500 * LONG_S < wrong.time_left_ms <= 1000 * LONG_S, "a duration, not a point in time"


def fields_about_time() -> set[str]:
    files = (
        catalogue_pb2,
        echo_pb2,
        explanation_pb2,
        health_pb2,
        prediction_pb2,
        recognition_pb2,
        rpc_pb2,
    )
    fields: list[FieldDescriptor] = [
        field
        for file in files
        for message in file.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
    ]
    words = {"time", "date", "clock", "epoch", "timestamp", "at", "since", "when", "age", "uptime", "until"}
    return {field.full_name for field in fields if words.intersection(field.name.split("_"))}


def test_messages_between_tiers_have_no_points_in_time() -> None:
    """New fields about time must be durations as well."""
    assert fields_about_time() == {
        "nearsight.v1.RequestHeader.time_left_ms",
        "nearsight.v1.ExplainedDecision.age_s",
        "nearsight.v1.HealthResponse.uptime_s",
    }


def test_devices_with_wrong_clocks_are_served_like_others(
    models: list[ObjectModel], cache_settings: CacheSettings
) -> None:
    learnt = {}
    for name, clock in CLOCKS.items():
        cloud = ScriptedCloud(models)
        try:
            with running_edge(cloud.endpoint, cache=cache_settings) as edge:
                learnt[name] = _visit(edge, clock)
            assert all(0.5 * LONG_S < left_s <= LONG_S for left_s in cloud.seconds_left[1:])
        finally:
            cloud.stop()
    answers, counts, following = learnt["right"]
    assert answers == ["00", "03", "01", "00", "03", "01", None]
    assert counts == pytest.approx({"00": 2.0, "03": 2.0, "01": 2.0}, abs=0.1)
    assert following == "03"
    for name in CLOCKS:
        assert learnt[name][0] == answers
        assert learnt[name][1] == pytest.approx(counts, abs=0.1), name
        assert learnt[name][2] == following


def _visit(edge: EdgeDaemon, clock: Clock) -> tuple[list[str | None], dict[str, float], str]:
    """Answers to a visit, the counts of the edge, and its prediction after the first object."""
    with EdgeClient(edge.endpoint, device_id="guide") as guide:
        guide.ask(photo(5))
        cache = cache_of(edge)
        before = cache.estimator.counts()
    with Recognizer(edge.endpoint, None, CATALOGUE, device_id="phone", settings=PLAIN, clock=clock) as device:
        answers = [device.recognize_blocking(photo(number)).object_id for number in (0, 3, 1, 0, 3, 1, 77)]
    counts = {
        name: count - before.get(name, 0.0)
        for name, count in cache.estimator.counts().items()
        if name != "05"
    }
    with EdgeClient(edge.endpoint, device_id="another") as another:
        return answers, counts, another.report("00").object_ids[0]


@pytest.mark.parametrize("name", sorted(CLOCKS))
def test_deadlines_hold_on_a_device_with_a_wrong_clock(name: str, cloud: ScriptedCloud) -> None:
    cloud.gate.clear()
    with Recognizer(None, cloud.endpoint, CATALOGUE, settings=PLAIN, clock=CLOCKS[name]) as device:
        started_s = time.monotonic()
        with pytest.raises(NearsightError) as raised:
            device.recognize_blocking(photo(0), timeout_s=0.4)
        assert isinstance(raised.value, DeadlineExceeded)
        assert time.monotonic() - started_s > 0.3
        cloud.gate.set()
        assert device.recognize_blocking(photo(0)).object_id == "00"
