"""``nearsight gateway``: the daemon, and the tokens of its clients."""

from __future__ import annotations

from typing import Annotated

import typer

from nearsight.common.command_line.options import AnnounceOption, ConfigOption, SetOption, flag_overrides
from nearsight.common.errors import MissingDependency

app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    help="Run the gateway, which lets browsers and HTTP clients ask an edge.",
)


@app.callback()
def gateway(
    ctx: typer.Context,
    edge: Annotated[
        str | None, typer.Option(metavar="ENDPOINT", help="The edge. Default: tcp://127.0.0.1:7100")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Where to serve. Default: 127.0.0.1:8080"),
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    announce: AnnounceOption = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM, unless a command follows."""
    if ctx.invoked_subcommand is not None:
        return
    from nearsight.common.config.base import load_settings
    from nearsight.common.operation.daemon import run_daemon
    from nearsight.edge.gateway.settings import GatewaySettings

    named = {"edge": edge, "listen": listen}
    settings = load_settings(GatewaySettings, "gateway", config, flag_overrides(assignments, named)).settings
    try:
        from nearsight.edge.gateway.daemon import GatewayDaemon
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"`nearsight gateway` needs the library {error.name!r}, which is not installed",
            advice="pip install 'nearsight[web]'",
        ) from error
    run_daemon("gateway", settings, lambda metrics: GatewayDaemon(settings, metrics), announce=announce)
