"""The shaper as a daemon: ``python -m nearsight.experiments.links.shaper --upstream tcp://127.0.0.1:5555``.

It calibrates itself, listens, announces its endpoint together with its measured error, and writes its byte
counters to a file, once a second and at the end. SIGUSR1 breaks all connections: a link that fails for long
enough to be noticed. SIGHUP makes it read another shape from the file of ``--control``.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Annotated

import numpy as np
import typer

from nearsight.common.errors import ConfigurationError, NearsightError
from nearsight.experiments.links.calibration import Calibration, KernelPart, calibrate
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.links.proxy import ShapingProxy

STATS_PERIOD_S = 1.0
_STOPPING = (signal.SIGTERM, signal.SIGINT)
_HANDLED = (*_STOPPING, signal.SIGUSR1, signal.SIGHUP)


def parse_endpoint(endpoint: str) -> tuple[str, int]:
    """Host and port of ``tcp://host:port``.

    Raises
    ------
    ConfigurationError
        If it has another form.
    """
    scheme, _, address = endpoint.partition("://")
    host, _, port = address.rpartition(":")
    if scheme != "tcp" or not host or not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(f"no endpoint: {endpoint!r}", advice="write it as tcp://127.0.0.1:5555")
    return host, int(port)


def write_json(path: Path, value: object) -> None:
    """Write a JSON file in one step: a reader sees the old or the new one, never a part."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(value, indent=1))
    partial.replace(path)


def read_shape(path: Path) -> LinkShape:
    """The shape in a control file: a JSON object with any of the attributes of `LinkShape`.

    Raises
    ------
    ConfigurationError
        If the file is missing or says something else.
    """
    try:
        return LinkShape(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"{path} is no shape of a link: {error}", advice='write {"rtt_ms": 30, "up_mbps": 5, ...}'
        ) from error


def shaper_arguments(
    upstream: str, shape: LinkShape, *, seed: int, stats: object, **more: object
) -> list[str]:
    """What to start with `sys.executable` for a link; ``more`` are further options, such as ``listen``."""
    options = {"upstream": upstream, **asdict(shape), "seed": seed, "stats": stats, **more}
    return [
        *("-m", "nearsight.experiments.links.shaper"),
        *(part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))),
    ]


@contextmanager
def _signals() -> Iterator[Callable[[float], signal.Signals | None]]:
    """Hand out a function that waits for the next signal; None if none comes in time.

    The handlers only write to a pipe: locks and events are not safe to use inside a handler.
    """
    reading, writing = os.pipe()

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        os.write(writing, bytes([number]))

    def wait(timeout_s: float) -> signal.Signals | None:
        ready, _, _ = select.select([reading], [], [], timeout_s)
        return signal.Signals(os.read(reading, 1)[0]) if ready else None

    previous = {number: signal.signal(number, handle) for number in _HANDLED}
    try:
        yield wait
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


def _announcement(proxy: ShapingProxy, calibration: Calibration | None) -> dict[str, object]:
    host, port = proxy.address
    return {
        "daemon": "shaper",
        "endpoint": f"tcp://{host}:{port}",
        "metrics": "",
        "pid": os.getpid(),
        "calibration": calibration.as_dict() if calibration else None,
    }


def main(  # noqa: PLR0913 - one option per property of a link
    *,
    upstream: Annotated[str, typer.Option(help="server that the link leads to, tcp://host:port")],
    listen: Annotated[str, typer.Option(help="where clients connect")] = "tcp://127.0.0.1:0",
    rtt_ms: Annotated[float, typer.Option(help="round trip in ms")] = 30.0,
    jitter_ms: Annotated[float, typer.Option(help="standard deviation of each one-way delay in ms")] = 0.0,
    up_mbps: Annotated[float, typer.Option(help="rate to the server in Mbit/s, 0 = unlimited")] = 15.0,
    down_mbps: Annotated[float, typer.Option(help="rate from the server in Mbit/s, 0 = unlimited")] = 15.0,
    loss_per_minute: Annotated[float, typer.Option(help="broken connections per minute each")] = 0.0,
    seed: Annotated[int, typer.Option(help="of jitter and losses")] = 1,
    calibrated: Annotated[bool, typer.Option("--calibrate/--no-calibrate", help="measure first")] = True,
    announce: Annotated[Path | None, typer.Option(help="write endpoint and error here when ready")] = None,
    stats: Annotated[Path | None, typer.Option(help="write byte counters here")] = None,
    kernel: Annotated[str, typer.Option(help="what the kernel does of it already, as JSON")] = "",
    probe: Annotated[str, typer.Option(help="with --kernel: a probe at the other end")] = "",
    control: Annotated[Path | None, typer.Option(help="on SIGHUP, read another shape from here")] = None,
) -> None:
    """Shape one link in user space, until SIGTERM or SIGINT."""
    try:
        whole = LinkShape(rtt_ms, jitter_ms, up_mbps, down_mbps, loss_per_minute)
        part = KernelPart(LinkShape(**json.loads(kernel)), parse_endpoint(probe)) if kernel else None
        rng = np.random.default_rng(seed)
        server, address = parse_endpoint(upstream), parse_endpoint(listen)
        calibration = calibrate(whole, rng, kernel=part) if calibrated else None
        proxy = ShapingProxy(
            server,
            whole.without(part.shape) if part else whole,
            rng=rng,
            listen=address,
            compensation_s=calibration.compensation_ms / 1000 if calibration else 0.0,
        )
        with proxy, _signals() as next_signal:
            _serve(proxy, next_signal, stats, control, lambda: _announce(announce, proxy, calibration))
    except NearsightError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the entry point of a command
        raise typer.Exit(error.exit_code) from error


def _announce(path: Path | None, proxy: ShapingProxy, calibration: Calibration | None) -> None:
    if path is None:
        return
    host, port = proxy.address
    announcement = {
        "daemon": "shaper",
        "endpoint": f"tcp://{host}:{port}",
        "metrics": "",
        "pid": os.getpid(),
        "calibration": calibration.as_dict() if calibration else None,
    }
    write_json(path, announcement)


def _serve(
    proxy: ShapingProxy,
    next_signal: Callable[[float], signal.Signals | None],
    stats: Path | None,
    control: Path | None,
    announce: Callable[[], None],
) -> None:
    def count() -> None:
        if stats:
            write_json(stats, proxy.as_dict())

    count()
    announce()
    while (received := next_signal(STATS_PERIOD_S)) not in _STOPPING:
        if received is signal.SIGUSR1:
            proxy.cut()
        if received is signal.SIGHUP and control:
            proxy.reshape(read_shape(control))
        count()
    proxy.stop()
    count()


if __name__ == "__main__":
    typer.run(main)
