"""CPU time: cores that jobs share, servers, and the background thread of daemons.

If several jobs want one core, each gets a time slice in turn. A short job therefore does not wait for the end
of a long one, and many concurrent jobs slow each other down, as under an operating system.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from nearsight.common.background.worker import BackgroundWorker, Job
from nearsight.common.errors import NearsightError
from nearsight.common.rpc.admission import AdmissionQueue, Refused
from nearsight.common.rpc.server import SWEEP_S
from nearsight.common.rpc.settings import ServerSettings
from nearsight.experiments.twin.events import Action, EventQueue

SLICE_S = 0.003
"""Time slice of a job when others wait for the core [s]; close to Linux's default."""
_DONE_S = 1e-9
_NEVER = math.inf


@dataclass(slots=True, eq=False)
class _Work:
    """A computation and its progress."""

    left_s: float
    done: Action
    tier: object
    since_s: float = 0.0
    until_s: float = _NEVER


class Cores:
    """Cores of one machine. Several tiers of the twin may share one machine.

    Parameters
    ----------
    events : EventQueue
        Virtual time.
    count : int
        Number of cores.
    """

    def __init__(self, events: EventQueue, count: int) -> None:
        self._events = events
        self._running: list[_Work] = []
        self._waiting: deque[_Work] = deque()
        self.count = count

    def run(self, work_s: float, done: Action, tier: object = None) -> None:
        """Compute for ``work_s`` as soon as a core is free, in time slices while others wait."""
        work = _Work(work_s, done, tier)
        if len(self._running) < self.count:
            self._begin(work)
            return
        self._waiting.append(work)
        now_s = self._events.now_s
        for other in self._running:
            self._stop_at(other, max(now_s, other.since_s + SLICE_S))

    @property
    def contention(self) -> float:
        """Factor on the duration of a computation that starts now, compared with an idle machine."""
        return max(1.0, (len(self._running) + len(self._waiting) + 1) / self.count)

    def left_s(self, tier: object) -> float:
        """Core seconds that the computations of a tier still need."""
        now_s = self._events.now_s
        running = (work.left_s - (now_s - work.since_s) for work in self._running if work.tier is tier)
        return sum(running) + sum(work.left_s for work in self._waiting if work.tier is tier)

    def _begin(self, work: _Work) -> None:
        work.since_s = self._events.now_s
        work.until_s = _NEVER
        self._running.append(work)
        self._stop_at(work, work.since_s + (min(SLICE_S, work.left_s) if self._waiting else work.left_s))

    def _stop_at(self, work: _Work, time_s: float) -> None:
        if time_s < work.until_s:
            work.until_s = time_s
            self._events.at(time_s, lambda: self._stop(work, time_s))

    def _stop(self, work: _Work, time_s: float) -> None:
        if work.until_s != time_s:
            return  # it was stopped earlier
        work.until_s = _NEVER
        work.left_s -= self._events.now_s - work.since_s
        self._running.remove(work)
        ended = work.left_s <= _DONE_S
        if not ended:
            self._waiting.append(work)
        if self._waiting:
            self._begin(self._waiting.popleft())
        if ended:
            work.done()


class Processor:
    """The computing resources of one tier.

    Parameters
    ----------
    events : EventQueue
        Virtual time.
    cores : int or Cores
        The number of its own cores, or the cores of a shared machine.
    slowness : float
        Factor on the computing times of the machine whose costs were measured.
    pace : float
        Further factor of this run, which the tier's own profile does not include.
    """

    def __init__(
        self, events: EventQueue, cores: int | Cores, slowness: float = 1.0, pace: float = 1.0
    ) -> None:
        self.events = events
        self._cores = cores if isinstance(cores, Cores) else Cores(events, cores)
        self.cores = self._cores.count
        self.profiled = slowness
        self.slowness = slowness * pace
        """Actual slowness, pace included, and (`profiled`) that of the tier's profile."""
        self._started_s = 0.0

    @property
    def busy_s(self) -> float:
        """Core seconds spent so far."""
        return self._started_s - self._cores.left_s(self)

    @property
    def contention(self) -> float:
        """Factor on the duration of a computation that starts now, compared with an idle machine."""
        return self._cores.contention

    def run(self, work_s: float, done: Action) -> None:
        """Compute something that takes ``work_s`` on the machine whose costs were measured."""
        work_s *= self.slowness
        self._started_s += work_s
        self._cores.run(work_s, done, self)


@dataclass(slots=True, eq=False)
class Call:
    """A request at a server."""

    deadline_s: float
    """Time after which the client no longer waits for the answer [s]."""
    begin: Callable[[Call], tuple[float, Action]]
    """Called when a worker starts the request; returns the work [s] and the action that follows it."""
    refuse: Callable[[NearsightError], None]
    """Called with the reason if the request is refused."""
    arrived_s: float = 0.0
    started_s: float = 0.0
    """Arrival time and start of execution [s]."""

    @property
    def queue_ms(self) -> float:
        """Time from arrival to the start of execution [ms]."""
        return (self.started_s - self.arrived_s) * 1e3


class Server:
    """Workers behind the daemons' own bounded queue (`AdmissionQueue`).

    Parameters
    ----------
    processor : Processor
        Computes for the workers.
    settings : ServerSettings
        Workers and limits of the queue.
    together : float
        Factor on the duration of a request that starts while another one is executed, because the workers are
        threads of one process.
    """

    def __init__(self, processor: Processor, settings: ServerSettings, together: float = 1.0) -> None:
        self._events = processor.events
        self._processor = processor
        self._workers = self._idle = settings.workers
        self._together = together
        self._sweeps = False
        self._queue: AdmissionQueue[Call] = AdmissionQueue(settings, settings.workers)

    def offer(self, call: Call) -> None:
        """Receive a request."""
        now_s = call.arrived_s = self._events.now_s
        self._refuse(self._queue.offer(call, now_s=now_s, deadline_s=call.deadline_s, idle=self._idle))
        self._serve()
        if self._queue.size and not self._sweeps:
            self._sweeps = True
            self._events.after(SWEEP_S, self._sweep)

    def serve(
        self,
        deadline_s: float,
        work_s: float,
        end: Callable[[Call], object],
        refuse: Callable[[NearsightError], None],
    ) -> None:
        """Receive a request that takes ``work_s``, whatever the state of the server."""
        self.offer(Call(deadline_s, lambda call: (work_s, lambda: end(call)), refuse))

    def _serve(self) -> None:
        while self._idle and self._queue.size:
            call, refused = self._queue.take(self._events.now_s)
            self._refuse(refused)
            if call is None:
                return
            others = self._workers - self._idle
            self._idle -= 1
            call.started_s = self._events.now_s
            work_s, done = call.begin(call)
            work_s *= self._together if others else 1.0
            self._processor.run(work_s, partial(self._finished, call, done))

    def _finished(self, call: Call, done: Action) -> None:
        self._idle += 1
        self._queue.served(self._events.now_s - call.started_s)
        done()
        self._serve()

    def _sweep(self) -> None:
        self._refuse(self._queue.sweep(self._events.now_s))
        self._sweeps = self._queue.size > 0
        if self._sweeps:
            self._events.after(SWEEP_S, self._sweep)

    def _refuse(self, refused: list[Refused[Call]]) -> None:
        for one in refused:
            one.item.refuse(one.error)


class VirtualWorker(BackgroundWorker):
    """The daemons' background thread in virtual time: runs jobs in the order of time, and is their clock.

    A job that builds a snapshot calls `spend` with its duration. The clock then advances within the job, by
    more if other computations want the cores, so that the daemon's own measurements of builds include it.
    After the job, a core is busy for that time. The next job and the results of the job wait until the core
    has finished.

    Parameters
    ----------
    processor : Processor
        Computes for the jobs.
    """

    def __init__(self, processor: Processor) -> None:  # no thread, so no super().__init__
        self._events = processor.events
        self._processor = processor
        self._due: list[tuple[float, int, str, Job]] = []
        self._named: dict[str, float] = {}
        self._count = 0
        self._wakes_s = math.inf
        self._busy = False
        self._spent_s = self._work_s = 0.0
        self._results: list[Callable[[], object]] = []
        self.stretch = 1.0
        """Current factor on the duration of jobs while other threads of the daemon are busy."""

    def monotonic(self) -> float:
        """Time as seen by the running job [s]."""
        return self._events.now_s + self._spent_s

    wall = monotonic

    def start(self) -> None:
        """Nothing to start."""

    def submit(self, job: Job, *, name: str = "", after_s: float = 0.0) -> None:
        """Run a job after ``after_s``. Of jobs with the same name, only the earliest one is queued."""
        due_s = self.monotonic() + after_s
        if name and self._named.get(name, math.inf) <= due_s:
            return
        if name:
            self._named[name] = due_s
        self._count += 1
        heapq.heappush(self._due, (due_s, self._count, name, job))
        self._wake(due_s)

    def spend(self, work_s: float) -> None:
        """Let the running job compute for ``work_s``."""
        self._work_s += work_s * self.stretch
        self._spent_s += work_s * self.stretch * self._processor.slowness * self._processor.contention

    def when_finished(self, action: Callable[[], object]) -> None:
        """Run an action when the time that the job spends has passed."""
        if self._spent_s:
            self._results.append(action)
        else:
            action()

    def _wake(self, due_s: float) -> None:
        if due_s < self._wakes_s and not self._busy:
            self._wakes_s = due_s
            self._events.at(due_s, lambda: self._work(due_s))

    def _work(self, wake_s: float) -> None:
        if wake_s != self._wakes_s:
            return  # an earlier wake-up was scheduled meanwhile
        self._wakes_s = math.inf
        now_s = self._events.now_s
        while self._due and self._due[0][0] <= now_s and not self._busy:
            due_s, _, name, job = heapq.heappop(self._due)
            if name:
                if self._named.get(name) != due_s:
                    continue
                del self._named[name]
            job()
            if self._spent_s:
                self._busy = True
                work_s, self._work_s, self._spent_s = self._work_s, 0.0, 0.0
                self._processor.run(work_s, self._done)
        self._wake_for_next()

    def _done(self) -> None:
        self._busy = False
        results, self._results = self._results, []
        for action in results:
            action()
        self._wake_for_next()

    def _wake_for_next(self) -> None:
        if self._due:
            self._wake(self._due[0][0])
