"""Conditions of a measurement: the speed of the machine and the load from other processes.

The pace is the duration of a reference computation (feature extraction from one photo) that runs on all cores
at once. It is measured before and after each measurement. The CPU time of other processes is measured during
it. Processes that yield to ours (idle scheduling class, or a much higher nice value) are not counted, because
their cost is part of the pace. With Linux's autogroups no process counts as yielding, because nice values
then only apply within one session.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import psutil

from nearsight.common.errors import Unavailable
from nearsight.common.logging import get_logger
from nearsight.common.recognition.extraction import extract_features
from nearsight.common.recognition.images import load_image
from nearsight.experiments.museum.art.exhibit import render_reference
from nearsight.experiments.rig.agent import read_text

T = TypeVar("T")

MOST_SLOWER = 1.25
"""Largest accepted pace, as a multiple of the best pace."""
MOST_OTHERS = 0.1
"""Largest accepted share of all cores' time that other processes take."""
_TRIES = 3
"""Maximum number of tries per measurement."""
_TIMES = 80
_FEATURES = 800
_YIELDS = 10
"""Difference in nice value from which a process yields to ours: it then gets about a tenth of our share."""
_NAMED, _WORTH_NAMING = 3, 0.01
_LEAST_S = 1.0
_AUTOGROUPS = "/proc/sys/kernel/sched_autogroup_enabled"


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions under which something was measured."""

    before_ms: float
    after_ms: float
    """Pace before and after the measurement [ms]."""
    others: float
    """Share of all cores' time taken by other processes, or by the host of a virtual machine."""
    names: tuple[str, ...] = ()
    """Names of the processes that took most."""

    @property
    def pace_ms(self) -> float:
        """Mean pace of the measurement [ms]."""
        return (self.before_ms + self.after_ms) / 2

    def disturbance(self, best_ms: float) -> str:
        """Description of the disturbance; empty if there was none. ``best_ms`` is the best pace so far."""
        slowest_ms = max(self.before_ms, self.after_ms)
        if self.others > MOST_OTHERS:
            who = f" ({', '.join(self.names)})" if self.names else ""
            return f"other processes took {100 * self.others:.0f} % of the cores{who}"
        if slowest_ms > MOST_SLOWER * best_ms:
            return f"the cores were {100 * (slowest_ms / best_ms - 1):.0f} % slower than at their best"
        return ""


def pace_ms(times: int = _TIMES) -> float:
    """Median duration of the reference computation on all cores at once [ms]."""
    image = load_image(render_reference(1, 0))
    found: list[float] = []

    def work() -> None:
        for number in range(times + 2):
            started_s = time.perf_counter()
            extract_features(image, _FEATURES)
            if number > 1:  # the first two runs are warm-up
                found.append((time.perf_counter() - started_s) * 1e3)

    threads = [threading.Thread(target=work) for _ in range(os.cpu_count() or 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statistics.median(found)


class Watch:
    """Repeats disturbed measurements, up to a limit.

    Parameters
    ----------
    pace : callable
        Measures the pace [ms].
    """

    def __init__(self, pace: Callable[[], float] = pace_ms) -> None:
        self._pace = pace
        self.best_ms = self._pace()
        """Best pace so far [ms]."""
        self._log = get_logger("experiments.conditions")

    def undisturbed(
        self, what: str, measure: Callable[[], T], objection: Callable[[T], str] = lambda _result: ""
    ) -> tuple[T, Conditions]:
        """Measure something under good conditions.

        Parameters
        ----------
        what : str
            Description for log and error messages.
        measure : callable
            Takes the measurement. May be called several times.
        objection : callable, optional
            Returns why a result is not acceptable, for example late work; empty if it is acceptable.

        Raises
        ------
        Unavailable
            If every try was disturbed.
        """
        reason = ""
        for number in range(1, _TRIES + 1):
            result, conditions = observed(measure, self._pace)
            self.best_ms = min(self.best_ms, conditions.before_ms, conditions.after_ms)
            reason = conditions.disturbance(self.best_ms) or objection(result)
            if not reason:
                return result, conditions
            self._log.warning("disturbed", what=what, time=number, reason=reason)
        raise Unavailable(
            f"{what} was disturbed {_TRIES} times, the last time: {reason}",
            advice="stop other work on the machine and run this again; finished measurements are kept",
        )


def observed(measure: Callable[[], T], pace: Callable[[], float]) -> tuple[T, Conditions]:
    """Take a measurement and record the conditions of the machine."""
    before_ms = pace()
    started_s, processes, busy_s = time.monotonic(), _processes(), _busy_s()
    result = measure()
    share, names = _other_load(time.monotonic() - started_s, processes, busy_s)
    return result, Conditions(before_ms, pace(), share, names)


def _other_load(
    lasted_s: float, before: Mapping[tuple[int, float], _Process], busy_before_s: float
) -> tuple[float, tuple[str, ...]]:
    """Share of all cores' time, and the names of the running processes that took most.

    This process, its ended children and processes that yield to it are not counted. A share over less than a
    second would be unreliable; it is reported as 0.
    """
    if lasted_s < _LEAST_S:
        return 0.0, ()
    passed_s = lasted_s * (os.cpu_count() or 1)
    used = [
        replace(one, spent_s=one.spent_s - (before[who].spent_s if who in before else 0.0))
        for who, one in _processes().items()
    ]
    yielding_s = sum(one.spent_s for one in used if one.yields)
    total_s = _busy_s() - busy_before_s - yielding_s
    most = sorted((one for one in used if not one.yields), key=lambda one: -one.spent_s)[:_NAMED]
    names = tuple(one.name for one in most if one.spent_s > _WORTH_NAMING * passed_s)
    return min(1.0, max(0.0, total_s / passed_s)), names


@dataclass(frozen=True, slots=True)
class _Process:
    """CPU time of another process [s], and whether it yields to ours."""

    name: str
    spent_s: float
    yields: bool


def _processes() -> dict[tuple[int, float], _Process]:
    """All other processes, by id and creation time."""
    me = psutil.Process()
    most_nice = me.nice() + _YIELDS
    nobody_yields = read_text(_AUTOGROUPS).strip() == "1"
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # the process has ended
            if process.pid == me.pid:
                continue
            yields = process.nice() >= most_nice or _is_idle_class(process.pid)
            times = process.cpu_times()
            found[process.pid, process.create_time()] = _Process(
                name=f"{process.name()} {process.pid}",
                spent_s=times.user + times.system,
                yields=yields and not nobody_yields,
            )
    return found


def machine_busy_s() -> float:
    """Busy time of all cores since the machine started [s]."""
    cores = psutil.cpu_times()
    idle_s = cores.idle + getattr(cores, "iowait", 0.0)
    # The kernel counts the time of virtual machines as user time as well.
    guests_s = getattr(cores, "guest", 0.0) + getattr(cores, "guest_nice", 0.0)
    return float(sum(cores) - idle_s - guests_s)


def _busy_s() -> float:
    """Busy time of all cores, without ours and that of our ended children [s]."""
    return machine_busy_s() - sum(os.times()[:4])


def _is_idle_class(pid: int) -> bool:
    try:
        return os.sched_getscheduler(pid) == os.SCHED_IDLE
    except (AttributeError, OSError):
        return False  # not Linux, or the process has ended
