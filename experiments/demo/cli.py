"""The command ``nearsight demo``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from nearsight.common.command_line.terminal import print_line, print_table
from nearsight.experiments.framework.extra import require_experiments

if TYPE_CHECKING:
    from nearsight.experiments.demo.run import DemoResult
    from nearsight.experiments.demo.scenario import Scenario

app = typer.Typer()


@app.command()
def demo(  # noqa: PLR0917  typer calls it by name
    quick: Annotated[bool, typer.Option("--quick", help="A small museum and a short replay.")] = False,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            file_okay=False,
            help="Folder for results; an existing museum there is reused.",
        ),
    ] = Path("results/demo"),
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=1.0, help="Length of each replay.")
    ] = None,
    objects: Annotated[int | None, typer.Option("--objects", min=1, help="Size of the catalogue.")] = None,
    visitors: Annotated[
        int | None, typer.Option("--visitors", min=1, help="Number of devices, one process each.")
    ] = None,
    rtt_ms: Annotated[float | None, typer.Option("--rtt", help="Round trip to the cloud in ms.")] = None,
    mbps: Annotated[
        float | None, typer.Option("--mbps", help="Rate to and from the cloud in Mbit/s.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of museum, visitors and link.")] = 1,
    edge: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="One setting of the edge, e.g. result_cache.enabled=true; may be repeated.",
        ),
    ] = None,
    compared: Annotated[
        list[str] | None,
        typer.Option(
            "--compare",
            metavar="KEY=VALUE",
            help="Also run an edge with this setting, e.g. result_cache.enabled=true; may be repeated.",
        ),
    ] = None,
) -> None:
    """Generate a museum, run cloud, edge and devices, and replay visitors without and with the edge cache.

    At the end the cloud is killed, and the edge continues without it. Takes 3 to 4 minutes, with --quick
    about one minute.
    """
    require_experiments("demo")
    from nearsight.experiments.demo.picture import SUMMARY
    from nearsight.experiments.demo.run import run_demo
    from nearsight.experiments.demo.scenario import FULL, QUICK

    scenario = QUICK if quick else FULL
    link = scenario.link
    scenario = replace(
        scenario,
        seconds=seconds or scenario.seconds,
        objects=objects or scenario.objects,
        visitors=visitors or scenario.visitors,
        seed=seed,
        edge=tuple(edge or ()),
        compared=tuple(compared or ()),
        link=replace(
            link,
            rtt_ms=link.rtt_ms if rtt_ms is None else rtt_ms,
            up_mbps=link.up_mbps if mbps is None else mbps,
            down_mbps=link.down_mbps if mbps is None else mbps,
        ),
    )
    _announce_demo(scenario)
    try:
        result = run_demo(scenario, out)
    except KeyboardInterrupt:
        kept = f"; results of the completed configurations are in {out}" if (out / SUMMARY).exists() else ""
        print_line(f"interrupted; all processes have been stopped{kept}", err=True)
        raise
    _print_demo(scenario, result)


def _announce_demo(scenario: Scenario) -> None:
    link = scenario.link
    print_line(
        f"A museum of {scenario.objects} exhibits, {scenario.on_show} on show; {scenario.visitors} visitors "
        "take one photo per second each;",
        err=True,
    )
    print_line(
        f"the link to the cloud has a round trip of {link.rtt_ms:g} ms and {link.up_mbps:g} Mbit/s.",
        err=True,
    )
    if scenario.compared:
        from nearsight.experiments.demo.scenario import COMPARED

        print_line(f"{COMPARED} is edge-cache with {', '.join(scenario.compared)}.", err=True)


def _print_demo(scenario: Scenario, result: DemoResult) -> None:
    from nearsight.experiments.demo.report import (
        describe_answers,
        describe_link,
        describe_target,
        table,
        targets,
        warnings,
    )

    columns, rows = table(result.results)
    print_table(columns, rows, title="Latency, accuracy and cost", right=columns[1:])
    for one in result.results:
        if one.link:
            print_line(describe_link(one), hang=2)
    for target in targets(scenario, result.results):
        print_line(describe_target(target), hang=12)
    if not scenario.judged:
        print_line("Targets are not judged: they apply to a demo of at least the default size.")
    for warning in warnings(result.results):
        print_line(f"warning  {warning}", hang=9)
    print_line("")
    print_line(f"{describe_answers(result.results)} Took {result.seconds:.0f} s.", hang=2)
    print_line(
        f"Results: {result.folder}/summary.json, requests.csv, {result.figure.name}; logs in its sub-folders",
        hang=9,
    )
    print_line("Next:    nearsight demo --rtt 60 --mbps 5    a cloud further away")
    print_line("         recall and precision of the whole catalogue:")
    print_line(f"         nearsight evaluate {quote(str(result.museum))}")
