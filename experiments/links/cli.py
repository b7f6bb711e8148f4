"""The command ``nearsight link``."""

from __future__ import annotations

from typing import Annotated

import typer

from nearsight.common.command_line.options import AnnounceOption
from nearsight.common.command_line.terminal import print_line
from nearsight.common.rpc.endpoints import DEFAULT_ENDPOINTS

app = typer.Typer()

LISTEN = "tcp://127.0.0.1:7001"


@app.command()
def link(
    server: Annotated[
        str, typer.Argument(metavar="ENDPOINT", help="Daemon behind the link.")
    ] = DEFAULT_ENDPOINTS["cloud"],
    listen: Annotated[str, typer.Option(metavar="ENDPOINT", help="Address for clients.")] = LISTEN,
    rtt_ms: Annotated[float, typer.Option("--rtt", metavar="MS", help="Round trip in ms.")] = 30.0,
    mbps: Annotated[
        float, typer.Option("--mbps", metavar="MBPS", help="Mbit/s each way; 0: unlimited.")
    ] = 15.0,
    announce: AnnounceOption = None,
) -> None:
    """Simulate a slow network in front of a daemon on this machine, like one between a building and a cloud.

    The command runs a proxy that delays the bytes it copies. The proxy itself adds about a millisecond.
    """
    from nearsight.experiments.links.link import LinkShape
    from nearsight.experiments.links.shaper import ShaperSettings, run_shaper

    shape = LinkShape(rtt_ms=rtt_ms, up_mbps=mbps, down_mbps=mbps)
    settings = ShaperSettings(server, shape, listen=listen, calibrated=False)

    def say(endpoint: str) -> None:
        rate = f" and {mbps:g} Mbit/s" if mbps else ""
        print_line(f"{endpoint} leads to {server} over {rtt_ms:g} ms{rate}", err=True)

    run_shaper(settings, announce, say)
