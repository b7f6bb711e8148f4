"""The demo from start to end: material, all configurations, result files.

The link to the cloud is the same in every configuration; the configurations differ in the edge.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from nearsight.common.command_line.options import flag_overrides
from nearsight.common.config.base import load_settings
from nearsight.common.errors import NearsightError
from nearsight.common.files import check_writable, write_json
from nearsight.common.folder_lock import locked
from nearsight.edge.settings import EdgeSettings
from nearsight.experiments.demo.material import Material, prepare
from nearsight.experiments.demo.picture import PICTURE, ROWS, SUMMARY, plot
from nearsight.experiments.demo.report import ConfigurationResult, check_answers, summary
from nearsight.experiments.demo.scenario import ALONE, COMPARED, EDGE_CACHE, ONLY_CLOUD, Scenario
from nearsight.experiments.framework.environment import describe_environment
from nearsight.experiments.framework.signals import termination_as_interrupt
from nearsight.experiments.rig.rows import RequestRow, write_rows
from nearsight.experiments.rig.sequence import Tally
from nearsight.experiments.rig.session import Session, Tiers
from nearsight.experiments.rig.tiers import NO_CONFIG

NO_PREFETCHING = {"recognizer.prefetch.enabled": "false"}
"""The demo shows the effect of the edge, so its devices do not prefetch."""
WEAK_PRIOR = 0.02
"""Requests that the edge assumes per object before it has seen any (the prior). A demo starts without earlier
visitors and ends after 200 requests. The default prior of 1 for each of 500 objects would outweigh them. (The
dissertation warms its caches instead: 6.2.7.)"""
_RECENT = 50


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Results of a demo, and their files."""

    results: tuple[ConfigurationResult, ...]
    """One per configuration, in the order of running."""
    folder: Path
    figure: Path
    """Folder of the result files, and path of the figure."""
    museum: Path
    """The generated museum."""
    seconds: float
    """Duration of the whole demo [s]."""


def run_demo(scenario: Scenario, folder: Path) -> DemoResult:
    """Run the demo; writes ``summary.json``, ``requests.csv``, ``demo.png`` and logs to ``folder``.

    Results of an earlier demo in this folder are removed at the start. After an error or an interruption, the
    files have the results of the configurations that were completed; without any, there are no files.

    Raises
    ------
    NearsightError
        If a setting is wrong (before anything is created), another demo runs in the folder, a process cannot
        be started or ends early, or a request got no answer.
    """
    _edge_settings((*scenario.edge, *scenario.compared))
    if not _edge_settings(scenario.edge).standby_mb:
        scenario = replace(scenario, alone=0.0)
    check_writable(folder / SUMMARY)
    folder = folder.resolve()
    with locked(folder, wait=False):
        return _run(scenario, folder)


def _edge_settings(given: Sequence[str]) -> EdgeSettings:
    """The settings of an edge that gets these assignments; like the edge, without the user's own settings."""
    overrides = flag_overrides(given)
    return load_settings(EdgeSettings, "edge", Path(NO_CONFIG), overrides, environment=False).settings


def _run(scenario: Scenario, folder: Path) -> DemoResult:
    """Run the demo in a folder in which no other demo runs."""
    for name in (ROWS, SUMMARY, PICTURE):
        (folder / name).unlink(missing_ok=True)
    start_s = time.monotonic()
    view = LiveView()
    timings_s: dict[str, float] = {}
    results: list[ConfigurationResult] = []
    with termination_as_interrupt(), view.progress:
        material = prepare(scenario, folder, view.stage)
        timings_s["museum and catalogue"] = time.monotonic() - start_s
        try:
            for name in scenario.configurations:
                before_s = time.monotonic()
                results.extend(_run_configuration(name, scenario, material, folder / name, view))
                timings_s[name] = time.monotonic() - before_s
        except (NearsightError, KeyboardInterrupt):
            if results:
                write_results(scenario, results, folder, timings_s)
            raise
    seconds = time.monotonic() - start_s
    figure = write_results(scenario, results, folder, {**timings_s, "all": seconds})
    check_answers(results)
    return DemoResult(tuple(results), folder, figure, material.museum, seconds)


def write_results(
    scenario: Scenario,
    results: Sequence[ConfigurationResult],
    folder: Path,
    timings_s: dict[str, float],
) -> Path:
    """Write the result files of a demo; returns the figure's path."""
    write_rows(folder / ROWS, (row for result in results for row in result.rows))
    content = summary(scenario, results, describe_environment(), timings_s)
    write_json(folder / SUMMARY, content)
    return plot(folder)


def _run_configuration(
    configuration: str, scenario: Scenario, material: Material, folder: Path, view: LiveView
) -> Sequence[ConfigurationResult]:
    """Run one configuration from the start of its daemons to their end; logs go into ``folder``.

    Returns its results, and a second entry for the photos sent after the cloud was killed, if it was.
    """
    killed = configuration == EDGE_CACHE and scenario.alone > 0
    traces = material.extended_traces if killed else material.traces
    session = Session(
        folder,
        material.database,
        traces,
        transitions=(),
        network=scenario.link,
        seed=scenario.seed,
        photos=material.museum,
        timeout_s=scenario.timeout_s,
        opened=False,
        cloud_dies_after_s=scenario.seconds if killed else None,
    )
    on_stage, on_tally = view.configuration(configuration, sum(trace.photos for trace in traces))
    further = scenario.compared if configuration == COMPARED else ()
    settings = edge_settings(material.profile) | flag_overrides((*scenario.edge, *further))
    edge = settings if configuration != ONLY_CLOUD else None
    tiers = {configuration: Tiers(edge, NO_PREFETCHING, warmed_up=False)}
    played = session.play(tiers, on_stage=on_stage, on_tally=on_tally)[configuration]
    died_s = math.inf if played.cloud_died_s is None else played.cloud_died_s
    rows = tuple(row for row in played.rows if not _is_after(row, died_s))
    ways = {"to-cloud": {way: int(played.counters[way]["bytes"]) for way in ("up", "down")}}
    if configuration != ONLY_CLOUD:
        ways["devices-edge"] = _edge_bytes(rows)
    link = {"calibration": played.link, **played.counters}
    timeout_s = scenario.timeout_s
    results = [ConfigurationResult(configuration, rows, ways, dict(played.cpu_s), link, timeout_s)]
    if after := [row for row in played.rows if _is_after(row, died_s)]:
        alone = tuple(replace(row, configuration=ALONE) for row in after)
        results.append(ConfigurationResult(ALONE, alone, {}, {}, {}, timeout_s))
    return results


def _is_after(row: RequestRow, died_s: float) -> bool:
    """Whether a photo was sent after the end of the cloud, or was in transit then and failed.

    A busy machine sends photos and kills the cloud later than planned, so the planned times do not decide.
    """
    sent_s = row.time_s + row.late_ms / 1000
    return (sent_s if row.is_answered else sent_s + row.latency_ms / 1000) >= died_s


def edge_settings(profile: Path) -> dict[str, object]:
    """Settings of the edge; ``profile`` is the profile of this machine."""
    default_mb = EdgeSettings().standby_mb
    return {"cache.prior": str(WEAK_PRIOR), "cache.profile": str(profile), "standby_mb": default_mb}


def _edge_bytes(rows: Sequence[RequestRow]) -> dict[str, int]:
    """Bytes between devices and edge, as counted by the devices."""
    near = [row for row in rows if row.edge_compute_ms > 0 or row.answered_by == "edge"]
    return {"up": sum(row.sent_bytes for row in near), "down": sum(row.received_bytes for row in near)}


class LiveView:
    """The demo's progress on the terminal: one bar per stage, with time left and live counts of answers."""

    def __init__(self) -> None:
        self.progress = Progress(
            TextColumn("{task.description:<25}"),
            BarColumn(bar_width=14),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[facts]}"),
            console=Console(stderr=True),
        )
        """Shows the bars on standard error, within its ``with`` block."""

    def stage(self, description: str) -> Callable[[int, int], None]:
        """Add a bar; the returned function takes the steps done and their total."""
        task = self.progress.add_task(description, total=None, facts="")

        def update(done: int, of: int) -> None:
            self.progress.update(task, completed=done, total=of)

        return update

    def configuration(
        self, name: str, requests: int
    ) -> tuple[Callable[[str], None], Callable[[Tally], None]]:
        """Add a bar for the requests of a configuration; returns callbacks for stages and for counts."""
        task = self.progress.add_task(name, total=requests, facts="")

        def on_stage(stage: str) -> None:
            self.progress.update(task, description=f"{name}: {stage}")

        def on_tally(tally: Tally) -> None:
            self.progress.update(task, completed=tally.done, facts=describe(tally))

        return on_stage, on_tally


def describe(tally: Tally) -> str:
    """Live counts in a short text: answers by tier, failures, recent median latency."""
    parts = [f"{tier} {count}" for tier, count in sorted(tally.answered_by.items(), reverse=True)]
    if tally.failed:
        parts.append(f"failed {tally.failed}")
    if tally.latencies_ms:
        parts.append(f"median {statistics.median(tally.latencies_ms[-_RECENT:]):.0f} ms")
    return ", ".join(parts)
