"""Networks that are damaged, hang or crash: waiting requests fail, and other networks are served."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import CorruptStore, InternalError, NearsightError, NotFound, Unavailable
from nearsight.common.inference import measurement, measurement_queue
from nearsight.common.inference.leases import Absent, Lease
from nearsight.common.inference.measurement import Measurement
from nearsight.common.inference.runtime import Network, Runtime
from support.network_memory import MB, ONES, Place, use
from support.networks import add_network, adder_network, endless_network, lease_of, runtime_version
from support.waiting import LONG_S, wait_until


def _program(path: Path, commands: str) -> str:
    path.write_text(f"#!/bin/sh\n{commands}\n")
    path.chmod(0o755)
    return str(path)


def test_a_damaged_saved_graph_is_removed_and_the_file_itself_is_loaded(place: Place) -> None:
    manifest = place.add("one", None)
    graph = place.repository.path(manifest, "prepared") / "graph.onnx"
    assert use(place.memory(), "one") == 2.0
    other = place.memory()
    adder_network(graph, 5.0)
    assert use(other, "one") == 2.0
    assert not graph.parent.exists()


@pytest.mark.parametrize("mb", [10, None])
def test_a_damaged_file_fails_waiting_requests_and_is_quarantined(place: Place, mb: float | None) -> None:
    manifest = place.add("bad", mb)
    path = place.repository.path(manifest)
    path.write_bytes(b"x" * path.stat().st_size)
    memory = place.memory()
    lease = lease_of(memory, "bad")
    with pytest.raises(NotFound, match="checksum"):
        lease.result(LONG_S)
    wait_until(lambda: not place.repository.has("bad"), what="the quarantine")
    with pytest.raises(NotFound, match="checksum"):
        memory.request("bad")
    place.add("bad")
    assert use(memory, "bad") == 2.0


def test_an_undamaged_network_that_cannot_be_loaded_now_is_tried_again_later(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_files(*_: Any, **__: Any) -> None:
        raise CorruptStore("one cannot be loaded: too many open files")

    manifest, clock = place.add("one", None), ManualClock()
    assert use(place.memory(), "one") == 2.0
    memory = place.memory(clock=clock)
    with monkeypatch.context() as patch:
        patch.setattr(Runtime, "load", without_files)
        with pytest.raises(Unavailable, match="too many open files"):
            lease_of(memory, "one").result(LONG_S)
        wait_until(lambda: bool(memory.problem("one")), what="the problem")
    assert place.repository.has("one")
    assert place.repository.path(manifest, "prepared").exists()
    clock.advance(60.0)
    assert use(memory, "one") == 2.0


def test_a_file_that_is_not_a_network_is_quarantined(place: Place) -> None:
    source = place.folder / "text.onnx"
    source.write_text("no network")
    add_network(place.repository, "text", source)
    memory = place.memory()
    with pytest.raises(NotFound, match="text cannot be loaded"):
        lease_of(memory, "text").result(LONG_S)
    wait_until(lambda: not place.repository.has("text"), what="the quarantine")


def test_a_network_that_crashes_its_measurement_is_not_measured_again_at_once_and_others_are_served(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.add("evil", None)
    place.add("other")
    memory = place.memory()
    with monkeypatch.context() as patch:
        patch.setattr(measurement.sys, "executable", _program(place.folder / "aborts", "kill -ABRT $$"))
        with pytest.raises(Unavailable, match="evil crashed the process that measured it: SIGABRT"):
            lease_of(memory, "evil").result(LONG_S)
        assert use(memory, "other") == 2.0
    with pytest.raises(Unavailable, match="SIGABRT"):
        memory.request("evil")
    assert place.repository.has("evil")


def test_a_network_that_hangs_in_its_measurement_is_not_measured_again_at_once_and_others_are_served(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure_in_short_time(*network: Any, **options: Any) -> Any:
        return measurement.measure(*network, **{**options, "within_s": 0.3})

    monkeypatch.setattr(measurement_queue, "measure", measure_in_short_time)
    add_network(place.repository, "evil", endless_network(place.folder / "evil.onnx", rounds=10**12), ())
    place.add("other")
    memory = place.memory()
    with pytest.raises(Unavailable, match=r"measuring evil exceeded the time limit of 0\.3 s"):
        lease_of(memory, "evil").result(LONG_S)
    with pytest.raises(Unavailable, match="exceeded the time limit"):
        memory.request("evil")
    assert place.repository.has("evil")
    assert use(memory, "other") == 2.0


def test_a_network_that_is_removed_during_its_measurement_leaves_no_files_and_can_be_added_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = measurement.measure

    def remove_and_measure(path: Path, name: str, **options: Any) -> Any:
        found = real(path, name, **options)
        place.repository.remove(name)
        options["prepared"].mkdir()  # as if it was saved after the removal
        return found

    place.add("gone", None)
    memory = place.memory()
    with monkeypatch.context() as patch:
        patch.setattr(measurement_queue, "measure", remove_and_measure)
        with pytest.raises(Unavailable, match="'gone' has just been replaced or removed"):
            lease_of(memory, "gone").result(LONG_S)
    assert list(place.repository.folder.iterdir()) == []
    place.add("gone")
    assert use(memory, "gone") == 2.0


def test_a_file_that_disappears_during_its_measurement_fails_the_requests_and_can_be_added_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure_and_lose(path: Path, *_: Any, **__: Any) -> Any:
        path.unlink()
        return path.stat()

    place.add("lost", None)
    memory = place.memory()
    with monkeypatch.context() as patch:
        patch.setattr(measurement_queue, "measure", measure_and_lose)
        with pytest.raises(NearsightError):
            lease_of(memory, "lost").result(LONG_S)
    place.add("lost", addend=6.0)
    memory.refresh()
    assert use(memory, "lost") == 7.0


def test_a_network_that_is_replaced_while_it_is_loaded_answers_with_its_new_version(
    place: Place, gate: threading.Event
) -> None:
    place.add("one")
    memory = place.memory()
    gate.clear()
    waiting = lease_of(memory, "one")
    place.add("one", addend=5.0)
    gate.set()
    with waiting.result(LONG_S) as lease:
        assert float(lease.run({"": ONES}, LONG_S)["y"][0, 0]) == 6.0


@pytest.mark.parametrize("removed", [False, True])
def test_a_pinned_network_that_is_replaced_or_removed_while_it_is_loaded_is_loaded_again_or_dropped(
    place: Place, gate: threading.Event, monkeypatch: pytest.MonkeyPatch, *, removed: bool
) -> None:
    """The load of the former file succeeds, as the library has read it before."""
    place.add("one")
    memory, warm_up = place.memory(pinned=("one",)), Network.warm_up
    begun, ends = threading.Event(), threading.Event()

    def slow(network: Network, **limit: float) -> None:
        begun.set()
        assert ends.wait(LONG_S)
        warm_up(network, **limit)

    monkeypatch.setattr(Network, "warm_up", slow)
    memory.refresh()
    assert begun.wait(LONG_S)
    if removed:
        place.repository.remove("one")
    else:
        new = place.add("one", addend=5.0)
    memory.refresh()
    ends.set()
    if removed:
        wait_until(lambda: memory.state.counts.loads == 1 and not memory.state.resident, what="the end")
        return
    wait_until(lambda: memory.state.counts.loads == 2, what="the second load")
    with lease_of(memory, "one").result(LONG_S) as lease:
        assert lease.manifest == new


def test_an_unexpected_error_of_a_measurement_fails_the_waiting_requests(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("a bug")

    place.add("any", None)
    memory = place.memory()
    monkeypatch.setattr(measurement_queue, "measure", fail)
    with pytest.raises(InternalError, match="network any cannot be measured: a bug"):
        lease_of(memory, "any").result(LONG_S)
    wait_until(lambda: not memory.state.measuring, what="the end")


def test_a_load_that_hangs_fails_is_not_repeated_at_once_and_others_are_served(
    place: Place, gate: threading.Event
) -> None:
    place.add("hangs")
    place.add("other")
    memory = place.memory(load_limit_s=0.05)
    gate.clear()
    with pytest.raises(Unavailable, match=r"loading network hangs exceeded the time limit of 0\.05 s"):
        lease_of(memory, "hangs").result(LONG_S)
    wait_until(lambda: bool(memory.problem("hangs")), what="the problem")
    with pytest.raises(Unavailable, match="exceeded the time limit"):
        memory.request("hangs")
    assert (memory.state.counts.failed_loads, memory.state.used_bytes) == (1, 0)
    gate.set()
    assert memory._network_loader is not None
    memory._network_loader._limit_s = LONG_S
    assert use(memory, "other") == 2.0


def test_closing_does_not_wait_for_an_execution_until_its_deadline(place: Place) -> None:
    def job(lease: Lease) -> object:
        begun.set()
        return lease.run({"": np.full(3, 1e12, np.float32)}, 10 * LONG_S)

    manifest = add_network(place.repository, "endless", endless_network(place.folder / "endless.onnx"), ())
    place.repository.note_measured(manifest, Measurement(MB, 5.0, 0.5, 0.5, runtime_version()))
    memory, begun = place.memory(), threading.Event()
    absent = memory.request("endless")
    assert isinstance(absent, Absent)
    running = memory.jobs.when_loaded(absent, job, 10 * LONG_S)
    assert begun.wait(LONG_S)
    memory.close()
    with pytest.raises(Unavailable, match="execution of endless was stopped"):
        running.result(LONG_S)
