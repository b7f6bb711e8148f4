"""Networks in memory: tiny real networks whose measured sizes a test sets."""

import math
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from nearsight.common.background.futures import completed
from nearsight.common.clock import ManualClock
from nearsight.common.errors import DeadlineExceeded, NearsightError, Overloaded, Unavailable
from nearsight.common.inference import model_memory
from nearsight.common.inference.leases import Absent, Lease
from nearsight.common.inference.repository import ModelRepository
from nearsight.common.inference.runtime import Network
from support.manual_background import ManualBackground
from support.network_memory import MB, ONES, Place, use
from support.networks import add_network, colour_network, lease_of, runtime_version
from support.waiting import LONG_S, wait_until


def test_a_network_is_loaded_with_its_first_request_and_stays(place: Place) -> None:
    place.add("one")
    memory = place.memory()
    assert isinstance(memory.request("one"), Absent)
    assert use(memory, "one") == 2.0
    found = memory.request("one")
    assert isinstance(found, Lease)
    found.release()
    assert (memory.state.counts.loads, memory.state.used_bytes) == (1, 10 * MB)


def test_hindsight_reports_requests_and_waits(place: Place) -> None:
    place.add("one")
    memory = place.memory()
    assert memory.look_back() is None
    for _ in range(4):
        use(memory, "one")
    found = memory.look_back()
    assert found is not None
    assert (found.requests, found.fixed_set_ms, found.clairvoyant_ms) == (4, 0, 0)
    assert found.waited_ms > 0


def test_hindsight_is_computed_again_only_after_a_request_or_a_new_budget(
    place: Place,
) -> None:
    place.add("one")
    memory = place.memory()
    use(memory, "one")
    first = memory.look_back()
    assert memory.look_back() is first
    use(memory, "one")
    second = memory.look_back()
    assert second is not first
    memory.limit(20 * MB)
    assert memory.look_back() is not second


def test_many_requests_for_an_absent_network_load_it_once(place: Place, gate: threading.Event) -> None:
    place.add("one")
    memory = place.memory()
    gate.clear()
    with ThreadPoolExecutor(8) as pool:
        leases = [pool.submit(lease_of, memory, "one") for _ in range(8)]
        futures = [one.result(LONG_S) for one in leases]
        gate.set()
        for future in futures:
            future.result(LONG_S).release()
    assert memory.state.counts.loads == 1


def test_a_load_does_not_delay_requests_of_resident_networks(place: Place, gate: threading.Event) -> None:
    place.add("here")
    place.add("slow")
    memory = place.memory()
    assert use(memory, "here") == 2.0
    gate.clear()
    absent = memory.request("slow")
    assert isinstance(absent, Absent)
    for _ in range(5):
        found = memory.request("here")
        assert isinstance(found, Lease)
        with found:
            found.run({"": ONES}, LONG_S)
    assert not absent.lease.done()
    gate.set()
    absent.lease.result(LONG_S).release()


def test_a_network_in_use_is_not_evicted_and_requests_wait_for_its_memory(place: Place) -> None:
    for name in ("one", "two", "three", "four"):
        place.add(name)
    memory = place.memory(30)
    held = [lease_of(memory, name).result(LONG_S) for name in ("one", "two", "three")]
    waiting = [lease_of(memory, "four") for _ in range(2)]
    assert not any(one.done() for one in waiting)
    held[1].release()
    for one in waiting:
        with one.result(LONG_S) as lease:
            assert lease.run({"": ONES}, LONG_S)["y"][0, 0] == 2.0
    assert set(memory.state.resident) == {"one", "three", "four"}
    assert (memory.state.counts.loads, memory.state.counts.waited) == (4, 5)
    for lease in (held[0], held[2]):
        lease.run({"": ONES}, LONG_S)
        lease.release()


def test_a_network_serves_until_the_load_that_needs_its_memory_begins(
    place: Place, gate: threading.Event
) -> None:
    for name in ("one", "two", "three", "four"):
        place.add(name)
    clock = ManualClock()
    memory = place.memory(20, clock)
    for name in ("one", "two"):
        use(memory, name)
    gate.clear()
    waiting = [lease_of(memory, "three")]
    clock.advance(0.001)
    absent = memory.request("four")
    assert isinstance(absent, Absent)
    assert absent.expected_ms == pytest.approx(9.5)  # what remains of three's load; its own load, execution
    waiting += [absent.lease, lease_of(memory, "four")]
    assert set(memory.state.resident) == {"two"}
    assert use(memory, "two") == 2.0
    absent = memory.request("four")
    assert isinstance(absent, Absent)
    assert absent.expected_ms == pytest.approx(9.5), "as long for a request that waits for the same load"
    gate.set()
    for one in (*waiting, absent.lease):
        one.result(LONG_S).release()
    assert set(memory.state.resident) == {"three", "four"}
    assert memory.state.counts.loads == 4


def test_a_waiting_request_fails_if_its_network_does_not_fit_any_more(
    place: Place, gate: threading.Event
) -> None:
    for name in ("one", "two"):
        place.add(name)
    memory = place.memory(30, reserve_mb=100)
    gate.clear()
    first, second = lease_of(memory, "one"), lease_of(memory, "two")
    memory.fit(75 * MB)
    gate.set()
    with pytest.raises(Overloaded, match=r"two needs 10 MB of \d MB"):
        second.result(LONG_S)
    first.result(LONG_S).release()
    memory.fit(1000 * MB)
    found = memory.look_back()
    assert found is not None
    assert found.requests == 2, "the failed request has ended, too"


def test_a_network_whose_memory_is_pinned_by_others_is_refused_with_numbers(place: Place) -> None:
    place.add("one", 25)
    place.add("two")
    memory = place.memory(30, pinned=("one",))
    use(memory, "one")
    with pytest.raises(Overloaded, match=r"two needs 10 MB of 30 MB, of which 5 MB are free and 0 MB"):
        memory.request("two")


def test_requests_that_wait_for_memory_fail_when_the_daemon_stops(place: Place) -> None:
    place.add("one", 25)
    place.add("two")
    memory = place.memory(30)
    held = lease_of(memory, "one").result(LONG_S)
    waiting = lease_of(memory, "two")
    memory.close()
    with pytest.raises(Unavailable, match="stops"):
        waiting.result(LONG_S)
    held.release()


def test_a_lease_reports_how_long_its_request_waited(place: Place, gate: threading.Event) -> None:
    place.add("one")
    memory = place.memory()
    gate.clear()
    absent = memory.request("one")
    assert isinstance(absent, Absent)
    waited = memory.jobs.when_loaded(absent, lambda lease: lease.waited_ms, LONG_S)
    gate.set()
    assert waited.result(LONG_S) > 0
    found = memory.request("one")
    assert isinstance(found, Lease)
    with found:
        assert found.waited_ms == 0.0


def test_the_log_names_evicted_networks_and_the_network_that_needed_their_memory(place: Place) -> None:
    for name in ("one", "two", "three"):
        place.add(name, 12)
    memory = place.memory(30)
    for name in ("one", "two", "three"):
        use(memory, name)
    (eviction,) = memory.evictions()
    assert (eviction.model, eviction.made_room_for, eviction.size_bytes) == ("one", "three", 12 * MB)
    counts = memory.state.counts
    assert (counts.evictions, memory.state.used_bytes) == (1, 24 * MB)
    assert 0.0 < counts.unload_s < counts.load_s


def test_a_network_larger_than_the_budget_is_refused_with_numbers(place: Place) -> None:
    place.add("huge", 31)
    with pytest.raises(Unavailable, match="huge needs 31 MB of 30 MB") as caught:
        place.memory(30).request("huge")
    assert caught.value.advice == "raise models.memory_mb"


def test_a_load_that_would_evict_too_many_is_refused(place: Place) -> None:
    for name in ("one", "two", "three"):
        place.add(name)
    place.add("large", 25)
    memory = place.memory(30, most_evictions=2)
    for name in ("one", "two", "three"):
        use(memory, name)
    with pytest.raises(Overloaded, match="too many evictions"):
        memory.request("large")
    assert len(memory.state.resident) == 3


def test_pinned_networks_are_loaded_at_the_start_and_not_evicted(place: Place) -> None:
    for name in ("pinned", "one", "two", "three"):
        place.add(name)
    memory = place.memory(30, pinned=("pinned",))
    memory.refresh()
    wait_until(lambda: memory.is_resident("pinned"), what="the pinned network")
    for name in ("one", "two", "three", "one"):
        use(memory, name)
    assert memory.is_resident("pinned")


def test_a_smaller_budget_evicts_idle_networks_now_and_others_after_their_requests(place: Place) -> None:
    for name in ("one", "two", "three"):
        place.add(name)
    memory = place.memory(30, reserve_mb=100)
    for name in ("one", "two", "three"):
        use(memory, name)
    held = lease_of(memory, "one").result(LONG_S)
    memory.fit(75 * MB)
    assert set(memory.state.resident) == {"one"}
    assert held.run({"": ONES}, LONG_S)["y"][0, 0] == 2.0
    held.release()
    assert memory.state.resident == {}
    with pytest.raises(Overloaded, match=r"of 5 MB.*as other processes use the memory"):
        memory.request("one")
    memory.fit(200 * MB)
    assert use(memory, "one") == 2.0


def test_networks_that_are_evicted_during_a_load_return_their_memory_before_its_end(
    place: Place, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the machine's memory would stay short, and more networks would be evicted each second."""
    closed, close = threading.Event(), Network.close

    def noted(network: Network) -> None:
        close(network)
        closed.set()

    monkeypatch.setattr(Network, "close", noted)
    for name in ("one", "slow"):
        place.add(name)
    memory = place.memory(30, reserve_mb=100)
    use(memory, "one")
    gate.clear()
    waiting = lease_of(memory, "slow")
    memory.fit(90 * MB)
    assert closed.wait(LONG_S)
    assert not waiting.done()
    gate.set()
    waiting.result(LONG_S).release()


def test_an_unmeasured_network_is_measured_before_it_is_loaded(place: Place) -> None:
    place.add("new", None)
    memory = place.memory()
    absent = memory.request("new")
    assert isinstance(absent, Absent)
    assert absent.expected_ms == math.inf
    absent.lease.result(LONG_S).release()
    measured = ModelRepository(place.repository.folder).get("new").measured
    assert measured is not None
    assert measured.runtime == runtime_version()


def test_without_networks_the_budget_does_not_follow_the_available_memory(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_memory, "available_memory_bytes", lambda: 0)
    background = ManualBackground(ManualClock())
    memory = place.memory(30)
    memory.keep_fitting(background)
    background.advance(10)
    assert memory.state.budget_bytes == 30 * MB
    place.add("one")
    background.advance(1)
    assert memory.state.budget_bytes == 0


def test_measured_sizes_decide_which_networks_stay(place: Place) -> None:
    for name in ("first", "second"):
        source = colour_network(place.folder / f"{name}.onnx", weights_mb=6)
        add_network(place.repository, name, source)
    memory = place.memory(10)
    lease_of(memory, "first").result(LONG_S).release()
    lease_of(memory, "second").result(LONG_S).release()
    assert set(memory.state.resident) == {"second"}
    assert 6 * MB < memory.state.used_bytes < 10 * MB


def test_a_replaced_network_serves_new_requests_and_the_old_one_running_requests(
    place: Place,
) -> None:
    place.add("one")
    memory = place.memory()
    held = lease_of(memory, "one").result(LONG_S)
    place.add("one", addend=5.0)
    memory.refresh()
    assert use(memory, "one") == 6.0
    assert held.run({"": ONES}, LONG_S)["y"][0, 0] == 2.0
    held.release()
    assert memory.state.used_bytes == 10 * MB


def test_jobs_of_waiting_requests_run_with_the_network_and_return_their_errors(
    place: Place, gate: threading.Event
) -> None:
    place.add("one")
    memory = place.memory()
    gate.clear()
    jobs: list[Callable[[Lease], object]] = [
        lambda lease: float(lease.run({"": ONES}, LONG_S)["y"][0, 0]),
        lambda lease: lease.run({"": ONES[0]}, LONG_S),
    ]
    results = []
    for job in jobs:
        absent = memory.request("one")
        assert isinstance(absent, Absent)
        results.append(memory.jobs.when_loaded(absent, job, LONG_S))
    gate.set()
    assert results[0].result(LONG_S) == 2.0
    with pytest.raises(NearsightError, match="expected float32"):
        results[1].result(LONG_S)
    wait_until(lambda: memory.state.counts.loads == 1, what="the load")


def test_a_job_is_dropped_with_its_data_at_its_deadline_while_the_network_is_still_being_loaded(
    place: Place, gate: threading.Event
) -> None:
    class Photo:
        """Large data of a request."""

    def job_with(photo: Photo) -> Callable[[Lease], Photo]:
        def job(_: Lease) -> Photo:
            executed.append(True)
            return photo

        return job

    place.add("one")
    memory, executed, photo = place.memory(), list[bool](), Photo()
    gate.clear()
    absent = memory.request("one")
    assert isinstance(absent, Absent)
    late = memory.jobs.when_loaded(absent, job_with(photo), 0.0, otherwise=partial(completed, photo))
    with pytest.raises(DeadlineExceeded):
        late.result(LONG_S)
    left = weakref.ref(photo)
    del photo
    wait_until(lambda: left() is None, what="the end of the data")
    in_time = memory.jobs.when_loaded(absent, lambda _: True, LONG_S)
    gate.set()
    assert in_time.result(LONG_S)
    assert not executed


def test_a_job_whose_network_is_not_loaded_has_another_result(place: Place, gate: threading.Event) -> None:
    place.add("one")
    memory = place.memory(load_limit_s=0.05)
    gate.clear()
    absent = memory.request("one")
    assert isinstance(absent, Absent)
    found = memory.jobs.when_loaded(
        absent, lambda _: "here", LONG_S, otherwise=lambda: completed("elsewhere")
    )
    assert found.result(LONG_S) == "elsewhere"


def test_closing_fails_waiting_requests(place: Place, gate: threading.Event) -> None:
    place.add("one")
    memory = place.memory()
    gate.clear()
    lease = lease_of(memory, "one")
    closing = threading.Thread(target=memory.close)
    closing.start()
    with pytest.raises(Unavailable, match="the daemon stops"):
        lease.result(LONG_S)
    gate.set()
    closing.join()
    with pytest.raises(Unavailable, match="the daemon stops"):
        memory.request("one")


def test_jobs_that_wait_for_a_thread_fail_when_the_daemon_stops(place: Place, gate: threading.Event) -> None:
    place.add("one")
    memory, begun, ends = place.memory(), threading.Barrier(3), threading.Event()

    def job(_: Lease) -> bool:
        begun.wait(LONG_S)
        return ends.wait(LONG_S)

    gate.clear()
    absent = [memory.request("one") for _ in range(3)]
    jobs = [memory.jobs.when_loaded(one, job, LONG_S) for one in absent if isinstance(one, Absent)]
    gate.set()
    begun.wait(LONG_S)  # two jobs occupy the threads
    closing = threading.Thread(target=memory.close)
    closing.start()
    wait_until(lambda: memory._closed, what="the end")
    ends.set()
    closing.join(LONG_S)
    assert [one.result(LONG_S) for one in jobs[:2]] == [True, True]
    with pytest.raises(Unavailable, match="the daemon stops"):
        jobs[2].result(LONG_S)


def test_without_the_library_a_request_says_how_to_install_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.add("one")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(Unavailable, match="not installed") as caught:
        place.memory().request("one")
    assert caught.value.advice == "pip install 'nearsight[inference]'"
