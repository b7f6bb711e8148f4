"""`nearsight bench robustness`: effect of a hostile client on other clients and on the daemon.

For each attack a daemon is started as a process. Honest clients send photos before, during and after the
attack; the photos before it are the baseline. Some clients stay connected, others connect anew for every
photo. A photo without an answer counts with the timeout of a client. Attacker, honest clients and daemon are
separate processes. A daemon with more than `KILL_MIB` of memory is killed, to protect the machine.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from nearsight.common.errors import NotFound
from nearsight.common.rpc.allow_list import allow_client
from nearsight.common.rpc.security import generate_keys
from nearsight.common.rpc.settings import ServerSettings
from nearsight.common.text import percent
from nearsight.experiments.bench import attacks
from nearsight.experiments.bench import raw_attacks as raw
from nearsight.experiments.bench.attacks import (
    ALLOWED,
    HONEST,
    HOSTILE,
    SERVER,
    TIMEOUT_S,
    Attack,
    Outcome,
    Victim,
)
from nearsight.experiments.bench.benchmark import Benchmark, ReportStep
from nearsight.experiments.bench.clients import (
    CLIENTS,
    PhotoResult,
    answer_of,
    child,
    repeated,
    run_attacker,
    run_honest_clients,
)
from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.museum.settings import MuseumSettings
from nearsight.experiments.rig.peer_group import free_udp_port
from nearsight.experiments.rig.processes import ManagedProcess, ProcessGroup
from nearsight.experiments.rig.tiers import CATALOGUE, endpoint_of, start_daemon
from nearsight.experiments.studies.museums import TaughtMuseum

MUSEUM = MuseumSettings(objects=32, photos_per_object=2, unknown_photos=0)
MAX_ADDED_MIB = (ServerSettings().memory_limit_bytes + ServerSettings().max_message_bytes) / 2**20
"""Limit of the memory that clients occupy in a daemon: the configured limit and one message that the
daemon is assembling."""
KILL_MIB = 3584
MAX_ADDED_THREADS = 64
"""Maximum number of threads that an attack may add."""
MAX_SLOWDOWN = 3.0
MAX_RECOVERY_S = 2.0
_WARM_S, _QUIET_S, _PATIENCE_S, _WELL_S = 1.5, 5.0, 40.0, 1.0
"""Warm-up; duration before the attack; timeout of recovery; duration without slow photos that is recovery."""
_LEAST_S = 2.0
"""A photo sent so soon after the start of the attack counts as during it, even if the attack is over."""
_SAMPLE_S = 0.02

_WAITS = {
    "p95 ms": "{quiet_p95_ms:.0f} → {p95_ms:.0f}",
    "slowdown": "{slower:.1f}",
    "answered": "{answered_share}",
    "recovery s": "{recovery_s:.1f}",
}
"""Columns of the table with the latency of honest clients."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """An attack and the daemon that is attacked."""

    name: str
    run: Attack
    tier: str = "cloud"
    curve: bool = False
    seconds: float = 6.0
    descriptors: int = 0
    """RLIMIT_NOFILE of the daemon, if it differs from that of this process."""
    honest: bool = True
    """Whether honest clients are measured; without them only the attack's own requirement counts."""
    overload: bool = False
    """The clients of the attack are honest, too; the latency of the others may increase."""


SCENARIOS = (
    Scenario("frame-bomb", raw.frame_bomb),
    Scenario("frame-bomb-edge", raw.frame_bomb, tier="edge"),
    Scenario("frame-bomb-curve", raw.encrypted_frame_bomb, curve=True),
    Scenario("endless-message", raw.endless_message),
    Scenario("unfinished-messages", raw.unfinished_messages),
    Scenario("unread-answers", raw.unread_answers),
    Scenario("idle-connections", raw.idle_connections, descriptors=1024, seconds=10.0),
    Scenario("idle-connections-curve", raw.idle_connections, curve=True, descriptors=1024, seconds=12.0),
    Scenario("vanished-connections", raw.vanished_connections, seconds=20.0),
    Scenario("metrics-flood", raw.metrics_flood),
    Scenario("beacon-flood", attacks.beacon_flood, tier="device"),
    Scenario("greedy-client", attacks.greedy_client, seconds=8.0),
    Scenario("greedy-client-edge", attacks.greedy_client, tier="edge", seconds=8.0),
    Scenario("costly-images", attacks.costly_images, seconds=8.0),
    Scenario("new-catalogues", attacks.new_catalogues, curve=True),
    Scenario("revoked-key", attacks.revoked_key, curve=True, honest=False, seconds=20.0),
    Scenario("burst", attacks.burst, seconds=30.0, overload=True),
)


def select_scenarios(names: Sequence[str]) -> tuple[Scenario, ...]:
    """Scenarios by name; all without names.

    Raises
    ------
    NotFound
        If there is no attack of this name.
    """
    known = {one.name: one for one in SCENARIOS}
    if unknown := [name for name in names if name not in known]:
        raise NotFound(f"there is no attack {unknown[0]!r}", advice=f"choose among {', '.join(known)}")
    return tuple(known[name] for name in names) or SCENARIOS


def bench_robustness(
    scenarios: Sequence[Scenario], rounds: int, museums: Path, folder: Path, report_step: ReportStep
) -> Benchmark:
    """Run attacks; results are the medians of the rounds, but the maximum of memory.

    Parameters
    ----------
    scenarios : sequence of Scenario
        Attacks to run.
    rounds : int
        Repetitions of each, with a new daemon.
    museums : Path
        Folder of generated museums.
    folder : Path
        Folder of logs and keys.
    report_step : callable
        Called with the current step.
    """
    report_step("painting and training a museum")
    museum = TaughtMuseum(RunOptions(museums=museums), MUSEUM)
    rows = []
    for scenario in scenarios:
        tried = []
        for number in range(1, rounds + 1):
            report_step(f"{scenario.name}: round {number} of {rounds}")
            place = (folder / f"{scenario.name}-{number}").resolve()
            tried.append(_run_round(scenario, museum, place))
        rows.append(summary(scenario, tried))
    columns = {
        "attack": "{attack}",
        "sent": "{sent}",
        "MiB": "{quiet_mib:.0f} → {most_mib:.0f}",
        **{name: f"{{{name}}}" for name in _WAITS},
        "refused": "{refused}",
        "verdict": "{verdict}",
    }
    title = "Effect of one hostile client on the others"
    return Benchmark("robustness", title, columns, [*map(for_table, rows)], {"rows": rows})


def for_table(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose latencies of honest clients are formatted for the table; dashes without photos."""
    values = {**row, "answered_share": percent(row["answered"])}
    words = {name: text.format_map(values) if row["photos"] else "-" for name, text in _WAITS.items()}
    return {**row, **words}


def summary(scenario: Scenario, tried: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine the rounds of an attack: medians, maximum of memory, and the missed targets."""
    row: dict[str, Any] = {"attack": scenario.name, "tier": scenario.tier, "curve": scenario.curve}
    row |= {name: tried[0][name] for name in ("sent", "refused")}
    for name, value in tried[0].items():
        if isinstance(value, float):
            values = [one[name] for one in tried]
            row[name] = round(statistics.median(values) if "mib" not in name else max(values), 3)
    row["photos"] = min(one["photos"] for one in tried)
    row["slower_range"] = [round(pick(one["slower"] for one in tried), 2) for pick in (min, max)]
    stated = (one[name] for name in ("ended", "broken") for one in tried if one[name])
    reasons = [*dict.fromkeys(stated)][:2]
    if (more_mib := max(one["most_mib"] - one["quiet_mib"] for one in tried)) > MAX_ADDED_MIB:
        reasons.append(f"{more_mib:.0f} MiB of additional memory")
    if (more := max(one["more_threads"] for one in tried)) > MAX_ADDED_THREADS:
        reasons.append(f"{more} additional threads")
    if scenario.honest and not scenario.overload and row["slower"] > MAX_SLOWDOWN:
        reasons.append(f"others have {row['slower']:.1f} times the latency")
    if scenario.honest and not row["photos"]:
        reasons.append("no photos during the attack")
    if scenario.honest and row["recovery_s"] > MAX_RECOVERY_S:
        reasons.append(f"recovery takes {row['recovery_s']:.1f} s")
    row["reached"] = not reasons
    row["verdict"] = f"MISSED: {'; '.join(reasons)}" if reasons else "reached"
    row["rounds"] = [dict(one) for one in tried]
    return row


def _run_round(scenario: Scenario, museum: TaughtMuseum, folder: Path) -> dict[str, Any]:
    """Start a new daemon and attack it once; returns the figures of this round."""
    with ExitStack() as stack:
        group = stack.enter_context(ProcessGroup(folder))
        daemon, victim = _start_victim(scenario, museum, folder, group)
        meter = _Meter(daemon)
        stack.enter_context(repeated(_SAMPLE_S, meter.measure))
        honest = stack.enter_context(child(run_honest_clients, victim)) if scenario.honest else None
        hostile = stack.enter_context(child(run_attacker, scenario.run, victim))
        asked = _Samples(honest)
        time.sleep(_WARM_S)
        began_s = time.monotonic()
        time.sleep(_QUIET_S if scenario.honest else 0.0)
        quiet_mib, quiet_threads = meter.now_mib(), meter.most_threads
        quiet_descriptors = meter.most_descriptors
        attacked_s = time.monotonic()
        hostile.send("go")
        outcome: Outcome = answer_of(hostile, scenario.seconds + 120.0)
        ended_s = time.monotonic()
        quiet = [one for one in asked.between(began_s, attacked_s) if one.ended_s < attacked_s]
        well_ms = MAX_SLOWDOWN * max(_p95s_ms(quiet))
        recovery_s = asked.recovery_s(ended_s, well_ms) if scenario.honest else 0.0
        until_s = max(ended_s, attacked_s + _LEAST_S)
        time.sleep(max(0.0, until_s - time.monotonic()) if scenario.honest else 0.0)
        asked.finish()
    during = [one for one in asked.between(began_s, until_s) if one.ended_s >= attacked_s]
    pairs = zip(_p95s_ms(quiet), _p95s_ms(during), strict=True)
    quiet_p95_ms, p95_ms = max(pairs, key=lambda pair: pair[1] / max(pair[0], 1.0))
    return {
        "sent": outcome.sent,
        "refused": outcome.refused,
        "broken": outcome.broken,
        "ended": meter.ended,
        "quiet_mib": quiet_mib,
        "most_mib": meter.most_mib,
        "quiet_descriptors": quiet_descriptors,
        "most_descriptors": meter.most_descriptors,
        "more_threads": meter.most_threads - quiet_threads,
        "quiet_p95_ms": quiet_p95_ms,
        "p95_ms": p95_ms,
        "slower": p95_ms / max(quiet_p95_ms, 1.0),
        "answered": float(np.mean([not one.outcome for one in during])) if during else 1.0,
        "photos": len(during),
        "recovery_s": recovery_s,
        **outcome.figures,
    }


def _start_victim(
    scenario: Scenario, museum: TaughtMuseum, folder: Path, group: ProcessGroup
) -> tuple[ManagedProcess, Victim]:
    """Start the daemon, and a cloud behind it unless it is a cloud."""
    settings, beacon_port = dict[str, object](metrics_listen="127.0.0.1:0"), free_udp_port()
    keys = _make_keys(folder / "keys") if scenario.curve else None
    if keys is not None:
        settings["security.secret_key_file"] = keys / f"{SERVER}.key_secret"
        settings["security.allowed_clients"] = keys / ALLOWED
    folder.mkdir(parents=True, exist_ok=True)
    # A copy, because attackers may write to it.
    database = {"database": Path(shutil.copy(museum.database, folder / "cloud.db"))}
    if scenario.tier == "cloud":
        settings |= database
    else:
        cloud = endpoint_of(start_daemon(group, "cloud", "cloud-behind", database))
        if scenario.tier == "edge":
            settings["cloud"] = cloud
        else:  # a device that searches for peers
            settings["cloud.endpoint"] = cloud
            settings["recognizer.peers.enabled"] = True
            settings["recognizer.peers.beacon_port"] = beacon_port
    daemon = start_daemon(group, scenario.tier, scenario.tier, settings)
    # Takes effect before the daemon reads the limit, because its interpreter starts slowly.
    if scenario.descriptors:
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (scenario.descriptors,) * 2)
    announced = daemon.wait_ready()
    endpoint, metrics = str(announced["endpoint"]), str(announced["metrics"])
    objects, photos = tuple(museum.photos), tuple(paths[0] for paths in museum.photos.values())
    return daemon, Victim(endpoint, metrics, CATALOGUE, objects, photos, keys, scenario.seconds, beacon_port)


def _make_keys(keys: Path) -> Path:
    generate_keys(keys, SERVER, overwrite=True)
    for name in (HONEST, HOSTILE):
        public = generate_keys(keys, name, overwrite=True).public_file
        allow_client(public, keys / ALLOWED, overwrite=True)
    return keys


class _Meter:
    """Measures memory, descriptors and threads of a daemon; kills it if its memory exceeds `KILL_MIB`."""

    def __init__(self, daemon: ManagedProcess) -> None:
        self._daemon = daemon
        self._process = psutil.Process(daemon.pid)
        self.ended = ""
        self.most_mib = 0.0
        self.most_descriptors = self.most_threads = 0

    def now_mib(self) -> float:
        """Current resident memory, including child processes."""
        processes = [self._process, *self._process.children(recursive=True)]
        return sum(float(one.memory_info().rss) for one in processes) / 2**20

    def measure(self) -> None:
        """Measure once."""
        try:
            mib = self.now_mib()
            self.most_descriptors = max(self.most_descriptors, self._process.num_fds())
            self.most_threads = max(self.most_threads, self._process.num_threads())
        except psutil.Error:
            mib = 0.0
        self.most_mib = max(self.most_mib, mib)
        if mib > KILL_MIB:
            self.ended = f"killed at {mib:.0f} MiB"
            with suppress(psutil.Error):
                self._process.kill()
        elif self._daemon.exit_code is not None:
            self.ended = self.ended or f"the daemon ended with exit status {self._daemon.exit_code}"


class _Samples:
    """Receives the results of honest clients in a thread, because a full pipe would block them."""

    def __init__(self, honest: Connection | None) -> None:
        self._all: list[PhotoResult] = []
        self._honest = honest
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self) -> None:
        with suppress(EOFError, OSError):
            while self._honest is not None:
                self._all.append(self._honest.recv())

    def finish(self) -> None:
        """Stop the clients and wait for the outstanding photos, which count as well."""
        if self._honest is not None:
            self._honest.send(None)
        self._thread.join(2 * TIMEOUT_S)

    def between(self, start_s: float, end_s: float) -> list[PhotoResult]:
        """Completed photos that were sent in this time."""
        return [one for one in list(self._all) if start_s <= one.begun_s < end_s]

    def recovery_s(self, ended_s: float, well_ms: float) -> float:
        """Wait until all clients are well; time from the end of the attack to the start of that period.

        All clients are well if no photo fails or takes longer than ``well_ms`` for `_WELL_S`.
        """
        patience_s = ended_s + _PATIENCE_S
        while (now_s := time.monotonic()) < patience_s:
            after = self.between(ended_s, now_s)
            bad = [one.begun_s for one in after if one.outcome or one.ms > well_ms]
            well_since_s = max(bad, default=ended_s)
            well = [one for one in after if one.begun_s > well_since_s]
            if now_s > well_since_s + _WELL_S and len(well) >= CLIENTS:
                return max(0.0, min(one.begun_s for one in well) - ended_s) if bad else 0.0
            time.sleep(_SAMPLE_S)
        return _PATIENCE_S


def _p95s_ms(asked: Sequence[PhotoResult]) -> list[float]:
    """95th percentiles of clients that stay connected, and of clients that connect anew; 0 without photos."""
    kinds = ([one.ms for one in asked if one.newcomer is newcomer] for newcomer in (False, True))
    return [float(np.percentile(each_ms, 95)) if each_ms else 0.0 for each_ms in kinds]
