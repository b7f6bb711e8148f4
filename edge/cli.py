"""The command ``nearsight edge``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearsight.common.command_line.options import AnnounceOption, ConfigOption, SetOption, flag_overrides

app = typer.Typer()


@app.command()
def edge(  # noqa: PLR0917  each is a flag
    cloud: Annotated[str | None, typer.Option(metavar="ENDPOINT", help="The cloud, tcp://HOST:PORT.")] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="ENDPOINT", help="Where to serve devices, tcp://HOST:PORT.")
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Profile of this machine, from `nearsight profile`."),
    ] = None,
    k_max: Annotated[
        int | None,
        typer.Option("--k-max", metavar="N", help="Maximum number of objects in a cache; 0: no cache."),
    ] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File for the learnt state, such as edge.db.")
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    announce: AnnounceOption = None,
) -> None:
    """Run the edge daemon: an adaptive recognition cache between devices and the cloud.

    It answers from its cache if possible and sends other requests to the cloud. The size and content of the
    cache depend on the popularity of objects, the cost of a lookup here and the cost of a miss.
    """
    from nearsight.common.config.base import load_settings
    from nearsight.common.operation.daemon import run_daemon
    from nearsight.edge.daemon import EdgeDaemon
    from nearsight.edge.settings import EdgeSettings

    named = {
        "cloud": cloud,
        "server.listen": listen,
        "cache.profile": profile,
        "cache.k_max": k_max,
        "state": state,
    }
    settings = load_settings(EdgeSettings, "edge", config, flag_overrides(assignments, named)).settings
    run_daemon("edge", settings, lambda metrics: EdgeDaemon(settings, metrics), announce=announce)
