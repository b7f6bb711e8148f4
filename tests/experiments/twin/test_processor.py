"""Virtual time, and processors with a limited number of cores."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import NearsightError, Overloaded
from nearsight.common.rpc.settings import ServerSettings
from nearsight.experiments.twin.events import EventQueue
from nearsight.experiments.twin.processor import SLICE_S, Call, Cores, Processor, Server, VirtualWorker


def test_actions_run_by_time_and_then_in_the_order_of_entry() -> None:
    events, seen = EventQueue(), list[str]()
    for at_s, name in ((2.0, "late"), (1.0, "first"), (1.0, "second")):
        events.at(at_s, lambda name=name: seen.append(f"{name} {events.monotonic():g}"))  # type: ignore[misc]
    events.run()
    assert seen == ["first 1", "second 1", "late 2"]


def test_a_run_stops_at_its_end_and_can_continue() -> None:
    events, seen = EventQueue(), list[float]()
    events.at(5.0, lambda: seen.append(events.now_s))
    events.run(3.0)
    assert not seen
    assert events.now_s == 3.0
    events.run(6.0)
    assert seen == [5.0]


def test_cores_are_shared_equally() -> None:
    events, ends = EventQueue(), list[float]()
    processor = Processor(events, 2)
    for _ in range(3):
        processor.run(1.0, lambda: ends.append(events.now_s))
    events.run()
    assert ends == pytest.approx([1.5] * 3, abs=2 * SLICE_S)
    assert processor.busy_s == 3.0


def test_a_short_job_does_not_wait_for_the_end_of_a_long_one() -> None:
    events, ends = EventQueue(), list[tuple[str, float]]()
    processor = Processor(events, 1)
    processor.run(1.0, lambda: ends.append(("long", events.now_s)))
    events.at(0.5, lambda: processor.run(0.001, lambda: ends.append(("short", events.now_s))))
    events.run()
    assert ends == [("short", pytest.approx(0.501)), ("long", pytest.approx(1.001))]


def test_a_job_that_has_just_begun_keeps_its_core_for_a_slice() -> None:
    events, ends = EventQueue(), list[float]()
    processor = Processor(events, 1)
    processor.run(0.01, lambda: None)
    processor.run(0.001, lambda: ends.append(events.now_s))
    events.run()
    assert ends == [pytest.approx(SLICE_S + 0.001)]


@given(
    jobs=st.lists(st.tuples(st.floats(0, 0.1), st.floats(0, 0.05)), min_size=1, max_size=12),
    cores=st.integers(1, 4),
)
def test_all_work_is_done_and_no_core_idles_while_a_job_waits(
    jobs: list[tuple[float, float]], cores: int
) -> None:
    events, ends = EventQueue(), dict[int, float]()
    processor = Processor(events, cores)
    for number, (at_s, work_s) in enumerate(jobs):

        def begin(number: int = number, work_s: float = work_s) -> None:
            processor.run(work_s, lambda: ends.setdefault(number, events.now_s))

        events.at(at_s, begin)
    events.run()
    assert all(ends[number] >= at_s + work_s - 1e-9 for number, (at_s, work_s) in enumerate(jobs))
    longest_s = max(at_s for at_s, _ in jobs) + sum(work_s for _, work_s in jobs)
    assert max(ends.values()) <= longest_s + 1e-9


def test_the_same_work_takes_longer_on_a_slow_machine() -> None:
    events, ends = EventQueue(), list[float]()
    processor = Processor(events, 1, slowness=8.0)
    processor.run(0.5, lambda: ends.append(events.now_s))
    events.run()
    assert ends == [4.0]
    assert processor.busy_s == 4.0


def test_tiers_on_one_machine_share_its_cores_and_have_separate_cpu_times() -> None:
    events, ends = EventQueue(), list[float]()
    machine = Cores(events, 1)
    tiers = [Processor(events, machine) for _ in range(2)]
    for tier in tiers:
        tier.run(1.0, lambda: ends.append(events.now_s))
    events.run()
    assert max(ends) == pytest.approx(2.0)
    assert [tier.busy_s for tier in tiers] == [1.0, 1.0]


def test_a_request_is_refused_after_the_queue_timeout() -> None:
    events = EventQueue()
    server = Server(Processor(events, 1), ServerSettings(workers=1, queue_timeout_s=2.0))
    served, refused = list[float](), list[NearsightError]()
    for _ in range(3):
        server.offer(Call(100.0, lambda call: (3.0, lambda: served.append(call.queue_ms)), refused.append))
    events.run()
    assert served == [0.0]
    assert [type(error) for error in refused] == [Overloaded, Overloaded]


def _submit_build(events: EventQueue, worker: VirtualWorker) -> list[float]:
    """Submit a job of half a second; returns the worker's time and the virtual time at its end."""
    seen: list[float] = []

    def build() -> None:
        worker.spend(0.5)
        seen.append(worker.monotonic())
        worker.when_finished(lambda: seen.append(events.now_s))

    worker.submit(build)
    return seen


def test_a_job_advances_the_clock_of_the_worker_and_delays_the_next_job() -> None:
    events = EventQueue()
    worker = VirtualWorker(Processor(events, 1))
    seen = _submit_build(events, worker)
    worker.submit(lambda: seen.append(worker.monotonic()), after_s=0.1)
    events.run()
    assert seen == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("cores", "others_s", "seen_s", "done_s"), [(1, [0.5], 1.0, 1.0), (2, [2.0, 2.0, 2.0], 1.0, 1.0)]
)
def test_a_job_takes_longer_on_busy_cores(
    cores: int, others_s: list[float], seen_s: float, done_s: float
) -> None:
    events = EventQueue()
    processor = Processor(events, cores)
    for work_s in others_s:
        processor.run(work_s, lambda: None)
    seen = _submit_build(events, VirtualWorker(processor))
    events.run()
    assert seen == [pytest.approx(seen_s), pytest.approx(done_s, abs=2 * SLICE_S)]


def test_of_queued_jobs_with_one_name_only_the_first_due_runs() -> None:
    events = EventQueue()
    worker = VirtualWorker(Processor(events, 1))
    seen: list[str] = []
    worker.submit(lambda: seen.append("late"), name="look", after_s=2.0)
    worker.submit(lambda: seen.append("early"), name="look", after_s=1.0)
    worker.submit(lambda: seen.append("third"), name="look", after_s=3.0)
    events.run()
    assert seen == ["early"]


def test_concurrent_requests_take_longer() -> None:
    events, ends = EventQueue(), list[float]()
    server = Server(Processor(events, 4), ServerSettings(workers=2), together=1.5)
    for _ in range(2):
        server.offer(Call(9.0, lambda _call: (1.0, lambda: ends.append(events.now_s)), lambda _error: None))
    events.run(5.0)
    assert ends == [1.0, 1.5]


def test_the_cpu_time_of_a_job_is_counted_as_it_is_spent() -> None:
    events = EventQueue()
    machine = Cores(events, 1)
    first, second = Processor(events, machine), Processor(events, machine)
    for tier in (first, second):
        tier.run(1.0, lambda: None)
    for until_s in (0.5, 1.5, 3.0):
        events.run(until_s)
        assert first.busy_s + second.busy_s == pytest.approx(min(until_s, 2.0))
    assert first.busy_s == pytest.approx(1.0)
