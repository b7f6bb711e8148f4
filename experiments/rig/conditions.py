"""Conditions of a measurement: whether the machine is as fast as before, and alone with its work.

The pace is the time of a reference computation, features out of one photo, on all cores at once. It is taken
before and after a measurement; the rest is what other processes computed meanwhile. Processes that yield to
ours (idle class, or far nicer) do not count: what they cost shows in the pace. With Linux's automatic groups
nobody yields, as then a process is only nice to those of its own session.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import psutil

from nearsight.common.errors import Unavailable
from nearsight.common.logging import get_logger
from nearsight.common.recognition.extraction import OrbExtractor
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.museum.art.exhibit import render_reference

T = TypeVar("T")

MOST_SLOWER = 1.25
"""Largest pace that is accepted, as a multiple of the best one."""
MOST_OTHERS = 0.1
"""Largest share of all cores' time that is accepted."""
_TIMES = 80
_FEATURES = 800
_YIELDS = 10
"""So much nicer than we are: it gets about a tenth of what we get."""
_NAMED, _WORTH_NAMING = 3, 0.01
_LEAST_S = 1.0
_AUTOGROUPS = Path("/proc/sys/kernel/sched_autogroup_enabled")


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under which something was measured."""

    before_ms: float
    after_ms: float
    """Pace."""
    others: float
    """Share of all cores' time that other processes took, or the host of a virtual machine."""
    names: tuple[str, ...] = ()
    """Names of those that took most."""

    @property
    def pace_ms(self) -> float:
        """Mean pace of the measurement [ms]."""
        return (self.before_ms + self.after_ms) / 2

    def disturbance(self, best_ms: float) -> str:
        """The disturbance in words; empty if there was none. ``best_ms``: the best pace that was seen."""
        slowest_ms = max(self.before_ms, self.after_ms)
        if self.others > MOST_OTHERS:
            who = f" ({', '.join(self.names)})" if self.names else ""
            return f"other processes took {100 * self.others:.0f} % of the cores{who}"
        if slowest_ms > MOST_SLOWER * best_ms:
            return f"the cores were {100 * (slowest_ms / best_ms - 1):.0f} % slower than at their best"
        return ""


class Watch:
    """Measures again what was disturbed, and gives up in the end.

    Parameters
    ----------
    tries : int
        For each measurement.
    pace : callable
        Takes the pace [ms].
    """

    def __init__(self, tries: int = 3, pace: Callable[[], float] | None = None) -> None:
        self._tries = tries
        self._pace = pace or pace_ms
        self.best_ms = self._pace()
        """Best pace so far."""
        self._log = get_logger("experiments.conditions")

    def undisturbed(
        self, what: str, measure: Callable[[], T], objection: Callable[[T], str] = lambda _result: ""
    ) -> tuple[T, Conditions]:
        """Measure something under good conditions.

        Parameters
        ----------
        what : str
            For a person.
        measure : callable
            May be called several times.
        objection : callable, optional
            What speaks against a result, such as work that was not begun in time; empty: nothing.

        Raises
        ------
        Unavailable
            If it was disturbed each time.
        """
        reason = ""
        for number in range(1, self._tries + 1):
            result, conditions = observed(measure, self._pace)
            self.best_ms = min(self.best_ms, conditions.before_ms, conditions.after_ms)
            reason = conditions.disturbance(self.best_ms) or objection(result)
            if not reason:
                return result, conditions
            self._log.warning("disturbed", what=what, time=number, reason=reason)
        raise Unavailable(
            f"{what} was disturbed {self._tries} times, the last time: {reason}",
            advice="let the machine do nothing else and run this again: what is finished is kept",
        )


def observed(measure: Callable[[], T], pace: Callable[[], float]) -> tuple[T, Conditions]:
    """Measure something, and watch the machine."""
    before_ms = pace()
    others = _Others()
    result = measure()
    share, names = others.share()
    return result, Conditions(before_ms, pace(), share, names)


def pace_ms(times: int = _TIMES) -> float:
    """Time of the reference computation, typically, on all cores at once [ms]."""
    image = load_image(render_reference(1, 0))
    extractor = OrbExtractor(RecognitionSettings().fast_threshold)
    found: list[float] = []

    def work() -> None:
        for number in range(times + 2):
            started_s = time.perf_counter()
            extractor.extract(image, _FEATURES)
            if number > 1:  # the first ones warm up
                found.append((time.perf_counter() - started_s) * 1e3)

    threads = [threading.Thread(target=work) for _ in range(os.cpu_count() or 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statistics.median(found)


class _Others:
    """CPU time that was neither ours, nor our children's, nor that of those who yield to us; from now on."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._before = _processes()
        self._busy_s = _busy_s()

    def share(self) -> tuple[float, tuple[str, ...]]:
        """Of all cores' time, and the names of who took most, of those who are still there.

        In less than a second nobody's share can be told.
        """
        lasted_s = time.monotonic() - self._started_s
        if lasted_s < _LEAST_S:
            return 0.0, ()
        passed_s = lasted_s * (os.cpu_count() or 1)
        used = [
            replace(one, spent_s=one.spent_s - (self._before[who].spent_s if who in self._before else 0.0))
            for who, one in _processes().items()
        ]
        yielding_s = sum(one.spent_s for one in used if one.yields)
        total_s = _busy_s() - self._busy_s - yielding_s
        most = sorted((one for one in used if not one.yields), key=lambda one: -one.spent_s)[:_NAMED]
        names = tuple(one.name for one in most if one.spent_s > _WORTH_NAMING * passed_s)
        return min(1.0, max(0.0, total_s / passed_s)), names


@dataclass(frozen=True, slots=True)
class _Process:
    """Another process."""

    name: str
    spent_s: float
    yields: bool


def _processes() -> dict[tuple[int, float], _Process]:
    """All others, by id and birth."""
    me = psutil.Process()
    own, most_nice = me.pid, me.nice() + _YIELDS
    nobody_yields = _has_autogroups()
    found = {}
    for process in psutil.process_iter():
        try:
            if process.pid == own:
                continue
            yields = process.nice() >= most_nice or _is_idle_class(process.pid)
            times = process.cpu_times()
            found[process.pid, process.create_time()] = _Process(
                f"{process.name()} {process.pid}", times.user + times.system, yields and not nobody_yields
            )
        except psutil.Error:
            continue  # it has ended
    return found


def machine_busy_s() -> float:
    """Busy time of all cores, since the machine began [s]."""
    cores = psutil.cpu_times()
    idle_s = cores.idle + getattr(cores, "iowait", 0.0)
    # Guests of this machine are part of its users' time.
    guests_s = getattr(cores, "guest", 0.0) + getattr(cores, "guest_nice", 0.0)
    return float(sum(cores) - idle_s - guests_s)


def _busy_s() -> float:
    """Busy time of all cores, without ours and that of our ended children [s]."""
    return machine_busy_s() - sum(os.times()[:4])


def _is_idle_class(pid: int) -> bool:
    try:
        return os.sched_getscheduler(pid) == os.SCHED_IDLE
    except (AttributeError, OSError):
        return False  # not Linux, or it has ended


def _has_autogroups() -> bool:
    try:
        return _AUTOGROUPS.read_text().strip() == "1"
    except OSError:
        return False
