"""The command ``nearsight plan``."""

# ruff: noqa: PLR0917  heavy imports are in the command's body; its parameters are its options

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearsight.common.command_line.terminal import print_json, print_line, print_table, progress_bar
from nearsight.common.errors import InvalidArgument
from nearsight.common.text import percent
from nearsight.experiments.framework.extra import require_experiments

if TYPE_CHECKING:
    from nearsight.common.model_cache.policy import ModelCosts
    from nearsight.experiments.model_serving.planning import Plan

app = typer.Typer()

_MB = 1e6
MeasuredFolderOption = Annotated[
    Path | None,
    typer.Option("--folder", metavar="DIR", help="Folder of `nearsight models` with measured networks."),
]
CostsOption = Annotated[
    Path | None,
    typer.Option(
        "--costs",
        metavar="FILE.csv",
        help="Table instead of --folder: columns model,memory_mb,load_ms,execution_ms.",
    ),
]


@app.command()
def plan(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG", help="Text file with a line `id time model` per request; time in seconds."
        ),
    ],
    folder: MeasuredFolderOption = None,
    costs: CostsOption = None,
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="NAME", help="Eviction policy; may be repeated; default: all."),
    ] = None,
    memory_mb: Annotated[
        str, typer.Option(metavar="MB,MB,…", help="Budgets; default: from the largest model to all models.")
    ] = "",
    steps: Annotated[int, typer.Option(min=2, max=100, help="Number of default budgets.")] = 8,
    p95_ms: Annotated[
        float | None, typer.Option(metavar="MS", help="Target of the 95th percentile of the latency.")
    ] = None,
    figure: Annotated[Path, typer.Option(metavar="FILE.png", help="Picture.")] = Path("plan.png"),
    as_json: Annotated[bool, typer.Option("--json", help="Print all policies and budgets as JSON.")] = False,
) -> None:
    """Plan the memory and the eviction policy of an edge for its networks, from a log of requests.

    The log is replayed on a virtual clock: one loader, executions that do not slow each other down. The first
    tenth of the requests is warm-up and not counted. "Fixed set" is the best set of models that are always
    resident, while the others are loaded for each request, in separate memory and without a queue; a policy
    may do better. "Clairvoyant" is the best known result: the least of all policies, the fixed set and two
    policies that know the future requests.
    """
    require_experiments("plan", ("matplotlib",))
    from nearsight.experiments.framework.drawing import check_picture, picture_path
    from nearsight.experiments.model_serving import planning
    from nearsight.experiments.traces.model_requests import read_events

    if p95_ms is not None and not 0 < p95_ms < math.inf:
        raise InvalidArgument(
            f"--p95-ms {p95_ms:g} is not a positive number", advice="for example --p95-ms 900"
        )
    figure = picture_path(figure)
    check_picture(figure)
    requests = read_events(log)
    known = costs_from(folder, costs)
    asked = {name: known[name] for name in requests.names if name in known}
    budgets = _budgets(memory_mb) or planning.default_budgets(asked.values() or known.values(), steps)
    names = tuple(policies or planning.default_policies())
    with progress_bar("replaying the log", len(budgets) * (len(names) + 1)) as advance:
        found = planning.plan(requests, known, names, budgets, advance)
    if as_json:
        print_json([asdict(one) for one in found.outcomes])
    else:
        _print(found, p95_ms)
    planning.draw_plan(
        found, figure, f"{log.name}: {len(requests):,} requests for {len(requests.names)} models"
    )
    print_line(f"picture: {figure}", err=True)


def costs_from(folder: Path | None, costs: Path | None) -> dict[str, ModelCosts]:
    """Costs of networks, from the options ``--folder`` or ``--costs``.

    Raises
    ------
    InvalidArgument
        If both or none are given, or if there is no measured network.
    """
    from nearsight.experiments.model_serving.planning import costs_of_repository, read_costs

    if (folder is None) == (costs is None):
        raise InvalidArgument(
            "the costs of models come from exactly one source", advice="give --folder or --costs"
        )
    known = read_costs(costs) if costs is not None else costs_of_repository(folder or Path())
    if not known:
        raise InvalidArgument(
            f"{costs or folder} has no measured network",
            advice="measure with `nearsight models profile`, or give a table with --costs",
        )
    return known


def _budgets(text: str) -> tuple[int, ...]:
    from nearsight.experiments.model_serving.planning import MOST_MB

    try:
        budgets_mb = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        budgets_mb = [math.nan]
    if not all(0 < mb <= MOST_MB for mb in budgets_mb):
        raise InvalidArgument(
            f"--memory-mb {text!r} is not a list of positive numbers up to {MOST_MB:g}",
            advice="for example --memory-mb 500,1000,2000",
        )
    return tuple(sorted({round(mb * _MB) for mb in budgets_mb}))


def _print(found: Plan, p95_ms: float | None) -> None:
    from nearsight.experiments.model_serving.planning import CLAIRVOYANT, FIXED_SET

    columns = ("memory MB", "best policy", "p95 ms", "mean ms", "hits", "fixed set p95", "clairvoyant p95")
    rows = []
    for budget in found.budgets_bytes:
        best, all_ = found.best(budget), found.at(budget)
        times_ms = (best.p95_ms, best.mean_ms, all_[FIXED_SET].p95_ms, all_[CLAIRVOYANT].p95_ms)
        p95, mean, *bounds = (f"{ms:,.0f}" for ms in times_ms)
        rows.append((f"{budget / _MB:,.0f}", best.policy, p95, mean, percent(best.hit_ratio, 1), *bounds))
    print_table(columns, rows, right=(columns[0], *columns[2:]))
    if p95_ms is None:
        return
    least = found.least_memory(p95_ms)
    if least is None:
        print_line(f"no budget in the table reaches a p95 of {p95_ms:g} ms")
    else:
        print_line(
            f"smallest budget for a p95 of {p95_ms:g} ms: {least.budget_bytes / _MB:,.0f} MB with "
            f"{least.policy} (p95 {least.p95_ms:,.0f} ms)"
        )
