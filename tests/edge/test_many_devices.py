"""Thousands of devices with one request each: the memory of the edge is bounded."""

import gc
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.settings import CacheSettings, TransitionSettings
from nearsight.protos.prediction_pb2 import GetNextObjectsRequest
from support.edge import EdgeClient, ScriptedCloud, cache_of, photo, running_edge
from support.waiting import LONG_S, wait_until

REMEMBERED = 100
AT_ONCE = 16
REPORT = GetNextObjectsRequest(current_object_id="00")


@pytest.fixture
def small_memory(cloud: ScriptedCloud, cache_settings: CacheSettings, tmp_path: Path) -> Iterator[EdgeDaemon]:
    """An edge with the state of at most a hundred devices, which it stores."""
    few = cache_settings.model_copy(update={"markov": TransitionSettings(devices_max=REMEMBERED)})
    with running_edge(cloud.endpoint, cache=few, state=tmp_path / "edge.db", state_every_s=0.2) as edge:
        with EdgeClient(edge.endpoint) as client:
            client.ask(photo(0))
        cache_of(edge)
        yield edge


def report_as(client: EdgeClient, devices: range) -> None:
    """Send one report of each of these devices, as a gateway does."""
    ask = client.prediction.get_next_objects.future
    for first in devices[::AT_ONCE]:
        waiting = [
            ask(REPORT, timeout_s=LONG_S, catalogue=client.catalogue, client_id=f"device {device}")
            for device in range(first, min(first + AT_ONCE, devices.stop))
        ]
        for reply in waiting:
            assert reply.result(LONG_S).message.next_objects.revision == 1


@pytest.mark.system
def test_memory_does_not_grow_with_the_number_of_devices(small_memory: EdgeDaemon) -> None:
    cache = cache_of(small_memory)
    with EdgeClient(small_memory.endpoint) as client:
        report_as(client, range(2000))  # allocates once, and fills windows
        tracemalloc.start()
        try:
            report_as(client, range(2000, 3000))
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            report_as(client, range(3000, 7000))
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
    assert cache.markov.devices == REMEMBERED
    assert cache.estimator.counts()["00"] == pytest.approx(7001, rel=0.01)
    assert grown < 4000 * 50, f"{grown} bytes for 4000 devices: one name alone takes more than 50"


def test_disconnected_devices_leave_no_threads_and_descriptors(small_memory: EdgeDaemon) -> None:
    def visit(number: int) -> None:
        with EdgeClient(small_memory.endpoint, device_id=f"visitor {number}") as visitor:
            visitor.prediction.get_next_objects(REPORT, timeout_s=LONG_S, catalogue=visitor.catalogue)

    visit(0)
    threads, files = threading.active_count(), open_files()
    for number in range(1, 2 * REMEMBERED):
        visit(number)
    wait_until(lambda: threading.active_count() <= threads, what="all threads ended")
    wait_until(lambda: open_files() <= files + 3, what="all connections closed")
    assert cache_of(small_memory).markov.devices == REMEMBERED


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
