"""``nearsight models requests``: makes a log of requests from a trace; one of the commands of `models`."""

# ruff: noqa: PLR0917  heavy imports are in the command's body; its parameters are its options

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from nearsight.cloud.models_cli import app
from nearsight.common.command_line.terminal import print_line, progress_bar
from nearsight.common.errors import InvalidArgument
from nearsight.experiments.model_serving.cli import CostsOption, MeasuredFolderOption, costs_from
from nearsight.experiments.traces.functions import MINUTES
from nearsight.experiments.traces.model_requests import Association

__all__ = ["app"]


@app.command("requests")
def make_requests(
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="CALLS.csv",
            help="Calls per minute of a day, of the Azure Functions trace of 2019: "
            "invocations_per_function_md.anon.d01.csv",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="LOG", help="File to write.")] = Path("requests.txt"),
    folder: MeasuredFolderOption = None,
    costs: CostsOption = None,
    association: Annotated[
        Association, typer.Option("--association", help="Which function requests which network.")
    ] = Association.UNIFORM,
    requests: Annotated[
        int, typer.Option("--requests", metavar="N", min=0, help="Keep about N, at random; 0: all.")
    ] = 0,
    first: Annotated[int, typer.Option("--minute", min=1, max=MINUTES, help="First minute.")] = 1,
    minutes: Annotated[int, typer.Option("--minutes", min=1, max=MINUTES, help="Length.")] = MINUTES,
    quantile: Annotated[
        float,
        typer.Option(
            "--quantile",
            min=0.0,
            max=1.0,
            help="Leave out functions with more calls than this quantile.",
        ),
    ] = 0.9,
    trigger: Annotated[
        str, typer.Option("--trigger", metavar="KIND", help='Trigger of the functions; "" for all.')
    ] = "http",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of all random choices.")] = 1,
) -> None:
    """Make a log of requests for networks from the Azure Functions trace, for `nearsight plan`.

    As in CremeBrulee (VI-A): functions that are called once a day or among the
    most often are left out, the calls of a minute are spaced evenly in random
    order, each function requests one network, and requests are dropped at random.
    mCache (6.1) keeps the functions that are called once.
    """
    import numpy as np

    from nearsight.common.files import check_writable
    from nearsight.experiments.framework.numbers import counted
    from nearsight.experiments.traces.functions import events, rarely_called, read_invocations
    from nearsight.experiments.traces.model_requests import ModelRequests, associate, write_events

    known = costs_from(folder, costs)
    check_writable(out)  # a log that cannot be written fails before a day is read
    size_bytes = trace.stat().st_size if trace.is_file() else None
    with progress_bar(f"reading {trace.name} [bytes]", size_bytes) as advance:
        counts = read_invocations(trace, trigger, advance).counts
    counts = counts[rarely_called(counts, quantile)]
    rng = np.random.default_rng(seed)
    times_s, functions = events(counts[:, first - 1 : first - 1 + minutes], rng)
    if not len(times_s):
        raise InvalidArgument(
            f"{trace} has no calls of such functions in these minutes",
            advice="choose other minutes, another --trigger or a higher --quantile",
        )
    load_s = np.array([one.load_ms / 1e3 for one in known.values()])
    chosen = associate(counts.sum(axis=1), load_s, association, rng)
    made = ModelRequests(times_s, chosen[functions], tuple(known))
    if 0 < requests < len(made):
        made = made.downsampled(requests / len(made), rng)
    write_events(out, made)
    source = ("--folder", str(folder)) if costs is None else ("--costs", str(costs))
    networks = counted(int(np.count_nonzero(made.counts())), "network")
    called = counted(len(np.unique(functions)), "function")
    print_line(f"{out}: {len(made):,} requests, from the calls of {called}, for {networks}")
    print_line(f"next: {shlex.join(('nearsight', 'plan', str(out), *source))}")
