"""The command ``nearsight device``, and the options that it shares with ``nearsight recognize``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearsight.common.command_line.options import (
    AnnounceOption,
    ConfigOption,
    KeyOption,
    SetOption,
    flag_overrides,
)

if TYPE_CHECKING:
    from nearsight.device.settings import DeviceSettings

app = typer.Typer(add_completion=False)

EdgeOption = Annotated[
    str | None, typer.Option("--edge", metavar="ENDPOINT", help="Called first, e.g. tcp://127.0.0.1:7100.")
]
CloudOption = Annotated[
    str | None, typer.Option("--cloud", metavar="ENDPOINT", help="Called if the edge cannot answer.")
]
CatalogueOption = Annotated[
    str | None, typer.Option("--catalogue", metavar="NAME", help="Catalogue to recognise. Default: museum.")
]
PrefetchOption = Annotated[
    bool | None,
    typer.Option(
        "--prefetch/--no-prefetch", help="Cache predicted objects and recognise them on the device."
    ),
]
EdgeKeyOption = Annotated[
    str | None,
    typer.Option("--edge-key", metavar="KEY", help="Public key of the edge, or a file that holds it."),
]
CloudKeyOption = Annotated[
    str | None,
    typer.Option("--cloud-key", metavar="KEY", help="Public key of the cloud, or a file that holds it."),
]


@app.command()
def device(  # noqa: PLR0917  typer calls it by name
    edge: EdgeOption = None,
    cloud: CloudOption = None,
    catalogue: CatalogueOption = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="ENDPOINT", help="Local endpoint. Default: tcp://127.0.0.1:7200."),
    ] = None,
    config: ConfigOption = None,
    prefetch: PrefetchOption = None,
    profile: Annotated[
        Path | None,
        typer.Option("--profile", metavar="FILE", help="Profile of `nearsight profile --device`."),
    ] = None,
    key: KeyOption = None,
    edge_key: EdgeKeyOption = None,
    cloud_key: CloudKeyOption = None,
    assignments: SetOption = None,
    announce: AnnounceOption = None,
) -> None:
    """Run the SDK as a daemon, for applications in other languages (see docs/sdk.md)."""
    from nearsight.common.operation.daemon import run_daemon
    from nearsight.device.daemon import DeviceDaemon

    others = {
        **key_flags(key, edge_key, cloud_key),
        "server.listen": listen,
        "recognizer.prefetch.enabled": prefetch,
        "recognizer.prefetch.profile": profile,
    }
    settings = device_settings(config, assignments, edge, cloud, catalogue, others)
    run_daemon("device", settings, lambda metrics: DeviceDaemon(settings, metrics), announce=announce)


def key_flags(key: Path | None, edge_key: str | None, cloud_key: str | None) -> Mapping[str, object]:
    """The key options as settings."""
    return {
        "security.secret_key_file": key,
        "edge.public_key": edge_key,
        "cloud.public_key": cloud_key,
    }


def device_settings(
    config: Path | None,
    assignments: Sequence[str] | None,
    edge: str | None,
    cloud: str | None,
    catalogue: str | None,
    others: Mapping[str, object],
) -> DeviceSettings:
    """The settings of the device, with the flags of its commands."""
    from nearsight.common.config.base import load_settings
    from nearsight.device.settings import DeviceSettings

    named = {"edge.endpoint": edge, "cloud.endpoint": cloud, "catalogue": catalogue, **others}
    return load_settings(DeviceSettings, "device", config, flag_overrides(assignments, named)).settings
