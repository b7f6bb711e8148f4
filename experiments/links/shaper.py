"""The shaper as a daemon: ``python -m nearsight.experiments.links.shaper SETTINGS --announce FILE``.

It calibrates itself, listens, announces its endpoint together with its measured error, and writes its byte
counters to a file, once a second and at the end. SIGUSR1 breaks all connections, like a link failure that is
long enough for clients to notice. SIGHUP makes it read a new shape from its control file; without one, SIGHUP
ends it, like any daemon whose terminal is closed, unless it was ignored before, as under ``nohup``.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

import numpy as np
from pydantic import TypeAdapter

from nearsight.common.errors import ConfigurationError, InternalError, NearsightError
from nearsight.common.files import write_json
from nearsight.common.operation.daemon import raise_descriptor_limit, write_announcement
from nearsight.common.rpc.endpoints import split_tcp
from nearsight.experiments.framework.signals import handled
from nearsight.experiments.links.calibration import calibrate
from nearsight.experiments.links.link import UNSHAPED, LinkShape
from nearsight.experiments.links.proxy import ShapingProxy

STATS_PERIOD_S = 1.0


@dataclass(frozen=True, slots=True)
class ShaperSettings:
    """The settings of a shaper, as JSON on its command line."""

    upstream: str
    """Server that the link leads to, tcp://host:port."""
    shape: LinkShape
    """Shape of the whole link."""
    stats: str = ""
    """File for its byte counters; empty: none."""
    seed: int = 1
    """Seed of jitter and losses."""
    listen: str = "tcp://127.0.0.1:0"
    """Address at which clients connect."""
    kernel: LinkShape = UNSHAPED
    """The kernel's part of the link."""
    probe: str = ""
    """Endpoint of a probe at the other end; only if the kernel has a part. Empty: none."""
    control: str = ""
    """File from which a new shape is read on SIGHUP; empty: none."""
    calibrated: bool = True
    """Whether to measure the shaper's own overhead first, which takes seconds, and subtract it."""

    def arguments(self) -> list[str]:
        """Arguments after `sys.executable`."""
        return ["-m", "nearsight.experiments.links.shaper", json.dumps(asdict(self))]


def parse_endpoint(endpoint: str) -> tuple[str, int]:
    """Host and port of ``tcp://host:port``.

    Raises
    ------
    ConfigurationError
        If it has another form, or the host has no IPv4 address.
    """
    host, port = split_tcp(endpoint)
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(f"not an endpoint: {endpoint!r}", advice="write it as tcp://127.0.0.1:5555")
    try:
        socket.getaddrinfo(host, port, socket.AF_INET)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(
            f"{endpoint}: no IPv4 address of {host!r} is known", advice="check the name; links use IPv4"
        ) from error
    return host, int(port)


def read_shape(path: Path) -> LinkShape:
    """The shape in a control file: a JSON object with any of the attributes of `LinkShape`.

    Raises
    ------
    ConfigurationError
        If the file is missing or malformed.
    """
    try:
        return LinkShape(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"{path} is not the shape of a link: {error}", advice='write {"rtt_ms": 30, "up_mbps": 5, ...}'
        ) from error


def run_shaper(
    settings: ShaperSettings, announce: Path | None, ready: Callable[[str], None] = lambda _endpoint: None
) -> None:
    """Serve until SIGTERM, SIGINT or, without a control file, SIGHUP; calls ``ready`` with the endpoint.

    Raises
    ------
    ConfigurationError, AddressInUse
        If the settings or the control file are wrong, or the address is taken.
    InternalError
        If the link ended because of an error.
    """
    raise_descriptor_limit()  # each connection takes two
    rng = np.random.default_rng(settings.seed)
    server, listen = parse_endpoint(settings.upstream), parse_endpoint(settings.listen)
    peer = parse_endpoint(settings.probe) if settings.probe else None
    if server == listen:
        raise ConfigurationError(
            f"a link at {settings.listen} cannot lead to itself", advice="name the daemon that is behind it"
        )
    calibration = (
        calibrate(settings.shape, rng, kernel=settings.kernel, peer=peer) if settings.calibrated else None
    )
    proxy = ShapingProxy(
        server,
        settings.shape.without(settings.kernel),
        rng=rng,
        listen=listen,
        compensation_s=calibration.compensation_ms / 1000 if calibration else 0.0,
    )

    def count() -> None:
        if settings.stats:
            write_json(Path(settings.stats), proxy.as_dict())

    arrived = SimpleQueue[int]()
    stopping, others = [signal.SIGTERM, signal.SIGINT], [signal.SIGUSR1]
    if settings.control:
        others.append(signal.SIGHUP)
    elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        stopping.append(signal.SIGHUP)
    # A handler may call `put`, which waits for no lock.
    with proxy, handled(lambda number, _frame: arrived.put(number), *stopping, *others):
        count()
        host, port = proxy.address
        endpoint = f"tcp://{host}:{port}"
        if announce:
            measured = calibration.as_dict() if calibration else None
            write_announcement(announce, "shaper", endpoint, calibration=measured)
        ready(endpoint)
        received = 0
        while received not in stopping:
            with suppress(Empty):
                received = arrived.get(timeout=STATS_PERIOD_S)
                if received == signal.SIGUSR1:
                    proxy.cut()
                if received == signal.SIGHUP and settings.control:
                    proxy.reshape(read_shape(Path(settings.control)))
            count()
            if not proxy.running:
                raise InternalError(f"the link at {endpoint} ended early", advice="its error is above")
    count()


def main() -> None:
    """Shape one link in user space."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "settings", type=TypeAdapter(ShaperSettings).validate_json, help="JSON: see ShaperSettings"
    )
    parser.add_argument("--announce", type=Path, help="file for endpoint and measured error")
    arguments = parser.parse_args()
    try:
        run_shaper(arguments.settings, arguments.announce)
    except NearsightError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the entry point of a command
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
