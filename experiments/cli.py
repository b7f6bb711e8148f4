"""The commands ``nearsight experiment list``, ``run``, ``plot`` and ``report``."""

# ruff: noqa: PLR0917  heavy imports are in the command's body; its parameters are its options

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nearsight.common.command_line.options import JsonOption
from nearsight.common.command_line.terminal import print_json, print_line, print_table
from nearsight.experiments.framework.extra import require_experiments

if TYPE_CHECKING:
    from nearsight.experiments.framework.experiment import Experiment, RunOptions, Target
    from nearsight.experiments.framework.running import Outcome

app = typer.Typer(no_args_is_help=True)

_RESULTS = Path("results/experiments")
_VERDICTS = MappingProxyType(
    {True: ("reached", "green"), False: ("MISSED ", "red"), None: ("       ", "")},
)
"""Whether a target was reached → its text and colour; None for targets that are not judged."""
_INDENT = len("reached  ")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="See `nearsight experiment list`.")]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", file_okay=False, help=f"Folder for results; default: {_RESULTS}/NAME."
    ),
]
OnOption = Annotated[
    Literal["twin", "testbed"] | None,
    typer.Option("--on", metavar="twin|testbed", help="Simulated or with real daemons; default: twin."),
]
CostsOption = Annotated[
    Literal["measured", "paper", "testbed"] | None,
    typer.Option(
        "--costs",
        metavar="measured|paper|testbed",
        help="Machines of the twin: those of table 6.1, with costs measured here or with those of the "
        "dissertation; or this machine, as on the testbed.",
    ),
]


@app.callback()
def experiment() -> None:
    """Tables and figures of the papers, measured again."""


@app.command("list")
def list_experiments() -> None:
    """List the experiments."""
    from nearsight.experiments.framework.registry import experiments

    rows = [(name, entry.shows, entry.source) for name, entry in experiments().items()]
    print_table(("name", "shows", "source"), rows)


@app.command()
def run(
    name: NameArgument,
    smoke: Annotated[bool, typer.Option("--smoke", help="Run for seconds, to test that it works.")] = False,
    out: OutOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of all random choices.")] = 1,
    visits: Annotated[
        Path | None,
        typer.Option("--visits", metavar="FILE.csv", help="Visits of real visitors, to use as well."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Data set to measure on, instead of a generated museum."),
    ] = None,
    on: OnOption = None,
    costs: CostsOption = None,
    runs: Annotated[
        int, typer.Option("--runs", min=0, help="Repetitions with different traces; 0: the figure's default.")
    ] = 0,
    clients: Annotated[
        int,
        typer.Option("--clients", min=0, max=64, help="Clients of closed loops; 0: the figure's default."),
    ] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace earlier results in the folder.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure, compute the numbers and draw the figure: rows.csv, summary.json and a PNG.

    An interrupted run continues where it stopped when it is started again, without --fresh.
    """
    require_experiments("experiment")
    from nearsight.common.folder_lock import locked
    from nearsight.common.recognition.object_recognizer import pin_threads
    from nearsight.experiments.framework.experiment import RunOptions
    from nearsight.experiments.framework.registry import find_experiment
    from nearsight.experiments.framework.running import check, conclude, prepare
    from nearsight.experiments.traces.visits import read_visits_csv

    pin_threads()
    found = find_experiment(name)
    options = RunOptions(
        seed, smoke, visits, data, on=on or "", costs=costs or "", runs=runs, clients=clients
    )
    check(found, options)
    if visits is not None:
        read_visits_csv(visits)  # reports an unusable file before anything is measured or replaced
    options = found.completed(options, lambda text: print_line(text, err=True))
    variant = _variant(options.on, options.costs)
    folder = out or _default_folder(name, smoke, variant)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, wait=False):
        prepare(found, options, folder, fresh=fresh)
        if out is None and not fresh:
            _adopt(found, options, folder, variant)
        _measure(found, options, folder, fresh)
        outcome = conclude(found, folder)
    _show(found, outcome, folder, as_json)


@app.command()
def plot(
    name: NameArgument,
    out: OutOption = None,
    on: OnOption = None,
    costs: CostsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the numbers and draw the figure again, from the rows of an earlier run."""
    require_experiments("experiment")
    from nearsight.experiments.framework.registry import find_experiment
    from nearsight.experiments.framework.running import conclude

    found = find_experiment(name)
    variant = _variant(on or "", costs or "")
    folder = out or _default_folder(name, smoke=False, variant=variant)
    _show(found, conclude(found, folder), folder, as_json)


@app.command()
def report(
    results: Annotated[
        Path, typer.Option("--results", metavar="DIR", help="Folder that contains the folders of results.")
    ] = _RESULTS,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE.html", help="Default: report.html in the folder of results."),
    ] = None,
) -> None:
    """Write one HTML file with all results: pictures, tables, targets, rows, and the papers' values.

    It needs no network. Experiments without results are listed with the command that measures them.
    """
    require_experiments("experiment report")
    from nearsight.common.command_line.terminal import progress_bar
    from nearsight.experiments.framework.registry import experiments
    from nearsight.experiments.report.collecting import reached_in_words
    from nearsight.experiments.report.page import write_report

    entries, page = experiments(), out or results / "report.html"
    with progress_bar("report", len(entries)) as advance:
        collection = write_report(results, page, entries, begin=lambda _name: advance(1))
    counted = collection.counted
    for one in collection.unusable:
        print_line(f"{one.folder.name}: {one.why}" + (f": {one.command}" if one.command else ""), err=True)
    if counted:
        print_line(f"{reached_in_words(counted)} targets reached, by {len(counted)} results")
    if smoke := len(collection.results) - len(counted):
        print_line(f"{smoke} smoke runs are shown, not judged")
    measured = len({result.experiment for result in collection.results})
    print_line(f"{measured} of {len(entries)} experiments are measured; the others are listed at the end")
    print_line(f"Report: {page}, {page.stat().st_size / 1e6:.1f} MB")


def _adopt(found: Experiment, options: RunOptions, folder: Path, variant: str) -> None:
    """Copy rows that other experiments have already measured."""
    from nearsight.experiments.framework.running import adopt_cells, adopt_rows

    if found.same_rows_as:
        other = _default_folder(found.same_rows_as, options.smoke, variant)
        if adopt_rows(found, folder, other):
            print_line(f"{found.same_rows_as} has the same rows: using those in {other}", err=True)
    for sibling in found.shares_cells_with:
        other = _default_folder(sibling, options.smoke, variant)
        if adopted := adopt_cells(found, options, folder, other):
            print_line(f"{sibling} measured {adopted} parts of it: using its rows in {other}", err=True)


def _measure(found: Experiment, options: RunOptions, folder: Path, fresh: bool) -> None:
    """Run the missing cells and show progress."""
    from nearsight.experiments.framework.cell_progress import cell_progress
    from nearsight.experiments.framework.running import cells_of, missing_cells, run_cells

    cells, missing = cells_of(found, options), missing_cells(found, options, folder)
    with cell_progress(found.name, len(cells), len(cells) - len(missing), fresh=fresh) as progress:
        run_cells(found, options, folder, progress.finish, progress.begin)


def _variant(on: str, costs: str) -> str:
    """Suffix of the folder's name, so that runs on other machines do not replace each other."""
    if on == "testbed":
        return "-testbed"
    return {"paper": "-paper", "testbed": "-twin"}.get(costs, "")


def _default_folder(name: str, smoke: bool, variant: str) -> Path:
    return _RESULTS / f"{name}{variant}{'-smoke' if smoke else ''}"


def _show(found: Experiment, outcome: Outcome, folder: Path, as_json: bool) -> None:
    from nearsight.experiments.framework.running import table_of

    if as_json:
        print_json(outcome.summary)
        return
    columns, rows = table_of(found, outcome.summary["metrics"])
    keys = _keys(rows)
    print_table(columns, rows, title=found.name, right=columns[keys:], keys=keys)
    _show_targets(outcome.targets)
    for text in outcome.summary["mixed"]:
        print_line(f"Not all rows are of the environment in which the run began; {text}", hang=2)
    print_line(f"Results: {folder}/rows.csv, summary.json, {outcome.picture.name}")


def _keys(rows: Sequence[Sequence[object]]) -> int:
    """Number of leading columns that identify a row: the first, and text columns directly after it."""
    texts = [any(str(cell)[:1].isalpha() for cell in column) for column in zip(*rows, strict=True)]
    return next((place for place, text in enumerate(texts) if place and not text), 1)


def _show_targets(targets: Sequence[Target]) -> None:
    """Print one line per target; missed targets last, because a terminal shows the end."""
    for target in sorted(targets, key=lambda target: not target.reached):
        verdict, colour = _VERDICTS[target.reached]
        value = f"{target.value:.3f}" if math.isfinite(target.value) else "none"
        print_line(f"  {target.text}: {value}", lead=verdict, colour=colour, hang=_INDENT)
        if target.note:
            print_line(" " * _INDENT + target.note, hang=_INDENT)
    judged = [target for target in targets if target.reached is not None]
    if judged:
        print_line(f"Targets: {sum(bool(target.reached) for target in judged)} of {len(judged)} reached")
    elif targets:
        print_line(f"Targets: {len(targets)}, not judged (smoke run)")
