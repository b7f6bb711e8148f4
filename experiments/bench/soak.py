"""`nearsight bench soak`: runs cloud, edge and applications for many minutes with many faults.

Daemons are killed and restarted, applications are killed, bursts of photos are sent, and objects are removed
from the catalogue and added again. In the second half daemons are not disturbed, so that their memory and
descriptors can be compared. The photos are those of a generated museum, so that the correct answers are
known.
"""

from __future__ import annotations

import math
import random
import re
import signal
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from nearsight.cloud.access import RemoteCatalogue
from nearsight.common.catalogue.training import NewObject
from nearsight.common.rpc.client import Channel
from nearsight.experiments.bench.benchmark import Benchmark, ReportStep
from nearsight.experiments.bench.clients import repeated
from nearsight.experiments.bench.robustness import MUSEUM
from nearsight.experiments.bench.soak_application import Application, Tally
from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.rig.processes import ManagedProcess, ProcessGroup
from nearsight.experiments.rig.tiers import CATALOGUE, endpoint_of, start_daemon
from nearsight.experiments.studies.museums import TaughtMuseum

APPLICATIONS, BURST = 3, 40
"""Processes with the SDK, the last of which is killed at times; photos of each in a burst."""
MAX_GROWTH = {"MiB": 32.0, "descriptors": 16.0, "threads": 8.0}
"""Maximum growth in the second half, or a quarter of the earlier value if that is more."""
_STEADY_S = 30.0
"""Memory is not judged in shorter windows: it is higher for 20 s after a change of the catalogue."""
_FAULT_SHARE = 0.4
"""Share of the time in which daemons are killed and restarted."""
_EVENTS, _LONGEST_PAUSE_S = 15, 20.0
"""The pause between two events is a fifteenth of the duration, but at most this."""
_METER_PERIOD_S, _STOP_S = 1.0, 15.0
_LEAST_HALF_S = 9.0 * _METER_PERIOD_S
"""Shortest second half: each of its thirds has samples of every process."""
_ERROR = re.compile(r"\[(error|critical)\s*\]|Traceback|Assertion failed")

Usage = dict[tuple[str, int], list[tuple[float, ...]]]


def bench_soak(seconds: float, seed: int, museums: Path, folder: Path, report_step: ReportStep) -> Benchmark:
    """Run all processes for a duration; the result has a row for each law.

    Parameters
    ----------
    seconds : float
        Duration.
    seed : int
        Seed of the order of events and photos.
    museums : Path
        Folder of generated museums.
    folder : Path
        Folder of logs and databases.
    report_step : callable
        Called with the current step.
    """
    report_step("painting and training a museum")
    museum = TaughtMuseum(RunOptions(museums=museums), replace(MUSEUM, unknown_photos=8))
    with ExitStack() as stack:
        soak = _Soak(museum, seed, folder.resolve(), stack)
        soak.run(seconds, report_step)
    outcomes, rows = soak.outcomes(), soak.laws()
    events = Counter(name for _, name, _ in soak.events)
    title = f"{seconds:.0f} s: {_in_words(events)}; {_in_words(outcomes)}"
    columns = {"law": "{law}", "found": "{found}", "verdict": "{verdict}"}
    figures = {"seconds": seconds, "seed": seed, "events": soak.events, "outcomes": outcomes}
    return Benchmark("soak", title, columns, rows, {**figures, "rows": rows, "usage": soak.usage()})


class _Soak:
    """Processes, events and results of a run."""

    def __init__(self, museum: TaughtMuseum, seed: int, folder: Path, stack: ExitStack) -> None:
        self._references = {one.object_id: one for one in museum.dataset.references}
        self._photos = [(str(one.path), one.object_id) for one in museum.dataset.queries]
        self._database = museum.database
        self._folder = folder
        self._seed, self._rng = seed, random.Random(seed)
        self._stack = stack
        self._group = stack.enter_context(ProcessGroup(folder))
        self._started: Counter[str] = Counter()
        self._listen = dict.fromkeys(("cloud", "edge"), "tcp://127.0.0.1:0")
        self._daemons: dict[str, ManagedProcess] = {}
        self._applications: dict[str, Application] = {}
        self._removed: list[str] = []
        self._usage: Usage = defaultdict(list)
        self._began_s = self._half_s = 0.0
        self._faults: list[str] = []
        self._tallies: list[Tally] = []
        self.events: list[tuple[float, str, float]] = []

    def run(self, seconds: float, report_step: ReportStep) -> None:
        """Run all processes and events."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for old in (*self._folder.glob("*.db*"), *self._folder.glob("*.log")):
            old.unlink()
        (self._folder / "cloud.db").write_bytes(self._database.read_bytes())
        self._start("cloud")
        self._start("edge")
        for number in range(1, APPLICATIONS + 1):
            self._start_application(f"application {number}")
        self._began_s = time.monotonic()
        self._half_s = self._began_s + seconds / 2
        with repeated(_METER_PERIOD_S, self._meter):
            self._run_events(seconds, report_step)
        self._tallies += [application.end() for application in self._applications.values()]
        for daemon in self._daemons.values():
            self._stop(daemon)
        for log in sorted(self._folder.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()
            self._faults += [f"{log.name}: {line.strip()[:200]}" for line in lines if _ERROR.search(line)]

    def laws(self) -> list[dict[str, Any]]:
        """One row per law, with the observation."""
        asked, twice = (sum(getattr(one, name) for one in self._tallies) for name in ("asked", "twice"))
        without = sum(len(one.open) for one in self._tallies)
        late_s = [by_s for one in self._tallies for by_s in one.late_s]
        wrong = [text for one in self._tallies for text in one.wrong]
        known, bugs = self.outcomes()["known"], self.outcomes()["INTERNAL"]
        late = f"{len(late_s)} late by up to {max(late_s)} s" if late_s else "0 late"
        stalled = f"stalled for {max(one.stalled_s for one in self._tallies):.0f} s"
        requests = f"{asked} requests, {without} without, {twice} with two, {late}; {stalled}"
        answers = "; ".join([f"{len(wrong)} of {known}", *wrong[:3]])
        faults = "; ".join(self._faults[:3]) or f"{bugs} INTERNAL"
        one_outcome = asked > 0 and without == twice == len(late_s) == 0
        return [
            _law("every request has one outcome", requests, one_outcome),
            _law("no answer is wrong", answers, known and not wrong),
            _law("no internal error", faults, not (self._faults or bugs)),
            *growth_laws(self._usage, self._half_s),
        ]

    def outcomes(self) -> Counter[str]:
        """Outcomes of all requests."""
        return sum((one.outcomes for one in self._tallies), Counter())

    def usage(self) -> dict[str, list[tuple[float, ...]]]:
        """About 40 samples of each process: second, MiB, descriptors, threads."""
        return {
            f"{name} {pid}": [
                (round(at_s - self._began_s, 1), *takes) for at_s, *takes in used[:: len(used) // 40 + 1]
            ]
            for (name, pid), used in self._usage.items()
        }

    # ---- events

    def _run_events(self, seconds: float, report_step: ReportStep) -> None:
        """Run events with pauses between them; every kind occurs once before any kind occurs again.

        Each fault occurs at least once, and the second half follows the last one. Therefore a run on a slow
        machine may be longer.
        """
        changes: dict[str, Callable[[], None]] = {
            "change catalogue": self._change_catalogue,
            "burst": self._burst,
            "kill application": self._kill_application,
        }
        faults: dict[str, Callable[[], None]] = {
            f"{verb} {tier}": partial(self._restart, tier, kill=verb == "kill")
            for verb in ("kill", "restart")
            for tier in self._listen
        }
        events, missing = changes | faults, set(faults)
        pause_s, end_s = min(_LONGEST_PAUSE_S, seconds / _EVENTS), self._began_s + seconds
        waiting: list[str] = []
        while (now_s := time.monotonic()) < end_s - pause_s or missing:
            if now_s > self._began_s + _FAULT_SHARE * seconds and faults and not missing:
                faults, waiting = {}, []
            if not waiting:
                waiting += self._rng.sample([*changes], len(changes))
                waiting += self._rng.sample([*faults], len(faults))
            name = waiting.pop()
            report_step(f"{now_s - self._began_s:.0f} of {seconds:.0f} s: {name}")
            events[name]()
            missing.discard(name)
            if faults:
                self._half_s = max(self._half_s, time.monotonic())
            self.events.append((round(now_s - self._began_s, 1), name, round(time.monotonic() - now_s, 2)))
            self._wait_and_check(pause_s)
        self._wait_and_check(max(end_s, self._half_s + _LEAST_HALF_S) - time.monotonic())

    def _restart(self, tier: str, *, kill: bool) -> None:
        """Kill or stop a daemon and restart it at the same address."""
        if kill:
            self._daemons[tier].send_signal(signal.SIGKILL)
            self._daemons[tier].stop()
        else:
            self._stop(self._daemons[tier])
        self._start(tier)

    def _change_catalogue(self) -> None:
        """Remove objects from the running cloud, or add the removed ones again."""
        with Channel(self._listen["cloud"], client_id="curator") as channel:
            catalogue = RemoteCatalogue(channel, CATALOGUE)
            if not self._removed:
                self._removed = self._rng.sample(sorted(self._references), 6)
                catalogue.remove(self._removed)
                return
            back = [
                NewObject(one.object_id, one.label, tuple(path.read_bytes() for path in one.paths))
                for one in map(self._references.__getitem__, self._removed)
            ]
            rejected = catalogue.put(back).rejected
            self._faults += [f"{one.object_id} was rejected: {one.reason}" for one in rejected]
            catalogue.finish()
            self._removed = []

    def _burst(self) -> None:
        for application in self._applications.values():
            application.send(BURST)

    def _kill_application(self) -> None:
        name = f"application {APPLICATIONS}"
        self._tallies.append(self._applications.pop(name).kill())
        self._start_application(name)

    # ---- processes

    def _start(self, tier: str) -> None:
        self._started[tier] += 1
        settings: dict[str, object] = {"server.listen": self._listen[tier]}
        if tier == "cloud":
            settings["database"] = self._folder / "cloud.db"
        else:
            settings |= {"cloud": self._listen["cloud"], "state": self._folder / "edge.db", "poll_s": 2}
        self._daemons[tier] = start_daemon(self._group, tier, f"{tier}-{self._started[tier]}", settings)
        self._listen[tier] = endpoint_of(self._daemons[tier])

    def _stop(self, daemon: ManagedProcess) -> None:
        if code := daemon.stop(_STOP_S):
            self._faults.append(f"{daemon.name} ended with exit status {code}")

    def _start_application(self, name: str) -> None:
        """Start an application."""
        self._started[name] += 1
        tiers = self._listen["edge"], self._listen["cloud"]
        seed = f"{name} {self._started[name]}, seed {self._seed}"
        log = self._folder / f"{name}.log"
        self._applications[name] = Application(self._stack, tiers, self._photos, seed, log)

    def _wait_and_check(self, seconds: float) -> None:
        """Wait, and check that no daemon ends."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            for daemon in self._daemons.values():
                daemon.check_alive()
            for application in self._applications.values():
                application.receive_results()
            time.sleep(0.1)

    # ---- resource usage

    def _meter(self) -> None:
        for name, one in (self._daemons | self._applications).items():
            with suppress(psutil.Error):
                process = psutil.Process(one.pid)
                mib = round(process.memory_info().rss / 2**20, 1)
                usage = (time.monotonic(), mib, process.num_fds(), process.num_threads())
                self._usage[name, one.pid].append(usage)


def growth_laws(usage: Usage, half_s: float) -> list[dict[str, Any]]:
    """Compare the first and the last third of the second half, for each process that runs throughout it.

    Parameters
    ----------
    usage : dict
        By name and id of a process: second, MiB, descriptors, threads.
    half_s : float
        Start of the second half.
    """
    rows = []
    end_s = max(used[-1][0] for used in usage.values())
    third_s = (end_s - half_s) / 3
    most_growth = MAX_GROWTH if third_s >= _STEADY_S else {**MAX_GROWTH, "MiB": math.inf}
    for (name, _), used in usage.items():
        first = [takes for at_s, *takes in used if 0 < at_s - half_s < third_s]
        last = [takes for at_s, *takes in used if at_s > end_s - third_s]
        if used[0][0] < half_s and first and last:
            before, after = (
                [statistics.median(column) for column in zip(*part, strict=True)] for part in (first, last)
            )
            pairs = list(zip(most_growth.items(), before, after, strict=True))
            found = ", ".join(f"{a:.0f} → {b:.0f} {unit}" for (unit, _), a, b in pairs)
            held = all(b - a <= max(most, a / 4) for (_, most), a, b in pairs)
            rows.append(_law(f"{name} is flat", found, held))
    return rows


def _law(law: str, found: str, held: object) -> dict[str, Any]:
    return {"law": law, "found": found, "reached": bool(held), "verdict": "reached" if held else "MISSED"}


def _in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
