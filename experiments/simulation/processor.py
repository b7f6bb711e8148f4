"""CPU time as something that runs out: cores, and servers whose requests wait for a worker, then for a core.

A core works on one thing to its end, first come first served. A system that divides its time gives
everybody the same share instead; means agree where cores are seldom all busy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from nearsight.common.errors import DeadlineExceeded, NearsightError
from nearsight.common.rpc.admission import AdmissionQueue, Refused
from nearsight.common.rpc.settings import ServerSettings
from nearsight.experiments.simulation.events import Action, EventQueue


class Processor:
    """Cores.

    Parameters
    ----------
    events : EventQueue
        Time.
    cores : int
        Things that are computed at the same time.

    Attributes
    ----------
    busy_s : float
        Core seconds that were worked, of what has begun.
    """

    def __init__(self, events: EventQueue, cores: int) -> None:
        self._events = events
        self._idle = cores
        self._waiting: deque[tuple[float, Action]] = deque()
        self.cores = cores
        self.busy_s = 0.0

    def run(self, work_s: float, done: Action) -> None:
        """Compute for so long, as soon as a core is free."""
        if not self._idle:
            self._waiting.append((work_s, done))
            return
        self._idle -= 1
        self._begin(work_s, done)

    def _begin(self, work_s: float, done: Action) -> None:
        self.busy_s += work_s
        self._events.after(work_s, lambda: self._end(done))

    def _end(self, done: Action) -> None:
        if self._waiting:
            self._begin(*self._waiting.popleft())
        else:
            self._idle += 1
        done()


@dataclass(slots=True, eq=False)
class Call:
    """A request in the hands of a server.

    Attributes
    ----------
    deadline_s : float
        When nobody waits for the answer any more.
    begin : callable
        Called when a worker takes it up; returns the work [s] and what to do after it.
    refuse : callable
        Told why it is not served.
    arrived_s, started_s : float
        When it came, and when a worker took it up.
    """

    deadline_s: float
    begin: Callable[[Call], tuple[float, Action]]
    refuse: Callable[[NearsightError], None]
    arrived_s: float = 0.0
    started_s: float = 0.0

    @property
    def queue_ms(self) -> float:
        """From arrival to the start of the work."""
        return (self.started_s - self.arrived_s) * 1e3


class Server:
    """Workers behind the daemons' own bounded queue (`AdmissionQueue`).

    Parameters
    ----------
    events : EventQueue
        Time.
    processor : Processor
        What workers compute on.
    settings : ServerSettings
        Workers and limits of the queue.
    """

    def __init__(self, events: EventQueue, processor: Processor, settings: ServerSettings) -> None:
        self._events = events
        self._clock = events.clock
        self._processor = processor
        self._idle = settings.workers
        self._timeout_s = settings.queue_timeout_s
        self._queue: AdmissionQueue[Call] = AdmissionQueue(
            limit=settings.queue_limit,
            timeout_s=settings.queue_timeout_s,
            newest_limit=settings.newest_wins_limit,
        )
        self.refused = 0

    def offer(self, call: Call) -> None:
        """A request arrives."""
        now_s = call.arrived_s = self._clock.now_s
        self._refuse(
            self._queue.offer(call, now_s=now_s, deadline_s=call.deadline_s, stream=None, idle=self._idle)
        )
        self._serve()
        if len(self._queue):
            self._events.after(self._timeout_s, self._sweep)

    def _serve(self) -> None:
        while self._idle and len(self._queue):
            call, refused = self._queue.take(self._clock.now_s)
            self._refuse(refused)
            if call is None:
                return
            self._idle -= 1
            call.started_s = self._clock.now_s
            work_s, done = call.begin(call)
            self._processor.run(work_s, lambda done=done: self._finished(done))  # type: ignore[misc]

    def _finished(self, done: Action) -> None:
        self._idle += 1
        done()
        self._serve()

    def _sweep(self) -> None:
        self._refuse(self._queue.sweep(self._clock.now_s))

    def _refuse(self, refused: list[Refused[Call]]) -> None:
        for one in refused:
            self.refused += 1
            one.item.refuse(one.error)


def too_late() -> DeadlineExceeded:
    """The error of a call whose answer does not come in time."""
    return DeadlineExceeded("no answer in time")
