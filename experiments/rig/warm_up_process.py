"""Warming an edge as a process on its own node: ``python -m nearsight.experiments.rig.warm_up_process``.

The machine that commands a testbed may not reach the edge at all, as one in a namespace; its own node can.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nearsight.common.errors import NearsightError
from nearsight.common.rpc.security import ClientSecurity
from nearsight.experiments.rig.warming import admit, report_requests, wait_settled
from nearsight.experiments.traces.visits import read_visits_csv


def main(
    *,
    edge: Annotated[str, typer.Option(help="endpoint of the edge")],
    visits: Annotated[Path, typer.Option(help="earlier visitors; their exhibits are object ids")],
    catalogue: Annotated[str, typer.Option(help="of the objects")] = "museum",
    key: Annotated[Path | None, typer.Option(help="secret key, if the edge uses encryption")] = None,
    server_key: Annotated[str, typer.Option(help="the edge's public key")] = "",
) -> None:
    """Tell an edge what earlier visitors looked at, and wait until its cache has settled."""
    security = ClientSecurity(key, server_key) if key else None
    try:
        admit(edge, catalogue=catalogue, security=security)
        looks = ((visit.visitor, visit.exhibit) for visit in read_visits_csv(visits))
        count = report_requests(edge, looks, catalogue=catalogue, security=security)
        objects = wait_settled(edge, security=security)
    except NearsightError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the entry point of a command
        raise typer.Exit(error.exit_code) from error
    print(f"{count} earlier looks, {objects} objects in the cache")  # noqa: T201 - for its log


if __name__ == "__main__":
    typer.run(main)
