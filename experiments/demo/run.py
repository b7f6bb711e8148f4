"""The demo from start to end: material, both configurations, files, table, verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nearsight.common.errors import NearsightError, NotFound
from nearsight.experiments.demo.live import LiveView
from nearsight.experiments.demo.material import prepare
from nearsight.experiments.demo.picture import plot
from nearsight.experiments.demo.report import ConfigurationResult, check_account, check_answers, summary
from nearsight.experiments.demo.scenario import CONFIGURATIONS, Scenario
from nearsight.experiments.demo.session import play
from nearsight.experiments.framework.environment import describe_environment
from nearsight.experiments.rig.processes import termination_as_interrupt
from nearsight.experiments.rig.rows import write_rows


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What a demo gave, and where it is.

    Attributes
    ----------
    results : tuple of ConfigurationResult
        One per configuration, in the order of playing.
    folder, figure : Path
        The files.
    museum : Path
        The generated museum.
    seconds : float
        How long it all took [s].
    """

    results: tuple[ConfigurationResult, ...]
    folder: Path
    figure: Path
    museum: Path
    seconds: float


def run_demo(scenario: Scenario, folder: Path, configurations: Sequence[str] = CONFIGURATIONS) -> DemoResult:
    """Play the demo; leaves ``summary.json``, ``requests.csv``, ``demo.png`` and logs in ``folder``.

    Raises
    ------
    NearsightError
        If something could not be started, a process died, or a request got no answer. What is complete is
        written before.
    """
    folder = _made(folder)
    start_s = time.monotonic()
    view = LiveView()
    timings_s: dict[str, float] = {}
    results: list[ConfigurationResult] = []
    with termination_as_interrupt(), view.shown():
        material = prepare(scenario, folder, view.stage)
        timings_s["museum and catalogue"] = time.monotonic() - start_s
        try:
            for name in configurations:
                before_s = time.monotonic()
                on_stage, on_tally = view.configuration(name, material.photos)
                results.append(
                    play(name, scenario, material, folder / name, on_stage=on_stage, on_tally=on_tally)
                )
                timings_s[name] = time.monotonic() - before_s
        except NearsightError:
            if results:
                write_results(scenario, results, folder, timings_s)
            raise
    seconds = time.monotonic() - start_s
    figure = write_results(scenario, results, folder, {**timings_s, "all": seconds})
    for result in results:
        check_account(result, material.photos)
    check_answers(results)
    return DemoResult(tuple(results), folder, figure, material.museum, seconds)


def write_results(
    scenario: Scenario,
    results: Sequence[ConfigurationResult],
    folder: Path,
    timings_s: dict[str, float],
) -> Path:
    """Write the files of a demo; returns the figure's path."""
    write_rows(folder / "requests.csv", (row for result in results for row in result.rows))
    content = summary(scenario, results, describe_environment(), timings_s)
    (folder / "summary.json").write_text(json.dumps(content, indent=2) + "\n")
    return plot(folder)


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotFound(
            f"cannot use {folder} for results: {error.strerror}", advice="give --out a writable folder"
        ) from error
    return folder.resolve()
