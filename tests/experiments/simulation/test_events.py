"""Virtual time, and CPU time that runs out."""

from __future__ import annotations

from nearsight.common.errors import NearsightError, Overloaded
from nearsight.common.rpc.settings import ServerSettings
from nearsight.experiments.simulation.events import EventQueue
from nearsight.experiments.simulation.processor import Call, Processor, Server
from nearsight.experiments.simulation.worker import VirtualWorker


def test_actions_run_by_time_and_then_in_the_order_of_entry() -> None:
    events, seen = EventQueue(), list[str]()
    for at_s, name in ((2.0, "late"), (1.0, "first"), (1.0, "second")):
        events.at(at_s, lambda name=name: seen.append(f"{name} {events.clock.monotonic():g}"))  # type: ignore[misc]
    events.run()
    assert seen == ["first 1", "second 1", "late 2"]


def test_a_run_stops_at_its_end_and_goes_on_from_there() -> None:
    events, seen = EventQueue(), list[float]()
    events.at(5.0, lambda: seen.append(events.clock.now_s))
    events.run(3.0)
    assert not seen
    assert events.clock.now_s == 3.0
    events.run(6.0)
    assert seen == [5.0]


def test_work_waits_for_a_core() -> None:
    events, ends = EventQueue(), list[float]()
    processor = Processor(events, 2)
    for _ in range(3):
        processor.run(1.0, lambda: ends.append(events.clock.now_s))
    events.run()
    assert ends == [1.0, 1.0, 2.0]
    assert processor.busy_s == 3.0


def test_a_request_that_waits_longer_than_the_queue_allows_is_refused() -> None:
    events = EventQueue()
    server = Server(events, Processor(events, 1), ServerSettings(workers=1, queue_timeout_s=2.0))
    served, refused = list[float](), list[NearsightError]()
    for _ in range(3):
        server.offer(Call(100.0, lambda call: (3.0, lambda: served.append(call.queue_ms)), refused.append))
    events.run()
    assert served == [0.0]
    assert [type(error) for error in refused] == [Overloaded, Overloaded]
    assert server.refused == 2


def test_a_job_that_takes_time_sees_it_pass_and_delays_the_next() -> None:
    events = EventQueue()
    worker = VirtualWorker(events, Processor(events, 1))
    seen: list[float] = []

    def build() -> None:
        worker.spend(0.5)
        seen.append(worker.monotonic())
        worker.when_finished(lambda: seen.append(events.clock.now_s))

    worker.submit(build)
    worker.submit(lambda: seen.append(worker.monotonic()), after_s=0.1)
    events.run()
    assert seen == [0.5, 0.5, 0.5]


def test_of_jobs_with_one_name_one_waits_the_first_due() -> None:
    events = EventQueue()
    worker = VirtualWorker(events, Processor(events, 1))
    seen: list[str] = []
    worker.submit(lambda: seen.append("late"), name="look", after_s=2.0)
    worker.submit(lambda: seen.append("early"), name="look", after_s=1.0)
    worker.submit(lambda: seen.append("third"), name="look", after_s=3.0)
    events.run()
    assert seen == ["early"]
