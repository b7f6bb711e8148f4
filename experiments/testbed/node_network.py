"""The network of a testbed's namespaces: it outlives the command that made it, unlike `namespaces`.

All names follow from the testbed's id, so that what is there can be removed by any later command.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from nearsight.common.errors import SetupError
from nearsight.experiments.testbed.inventory import NETWORK, Host

_FOLDER = Path("/run/netns")
_INTERFACE = "eth0"
_BRIDGE = "switch"


def namespace_of(testbed_id: str, host: Host) -> str:
    """Name of a host's namespace."""
    return f"{_prefix(testbed_id)}{host.name}"


def prefix_of(testbed_id: str, host: Host) -> tuple[str, ...]:
    """The words before a command that is to run on a host; the process keeps its id."""
    return ("ip", "netns", "exec", namespace_of(testbed_id, host))


def make_network(testbed_id: str, hosts: Sequence[Host]) -> None:
    """Put hosts on one switch, in a namespace of its own; the machine's own network does not change.

    Raises
    ------
    SetupError
        If namespaces cannot be made here.
    """
    hub = _hub(testbed_id)
    _ip([f"netns add {name}" for name in (hub, *(namespace_of(testbed_id, host) for host in hosts))])
    _ip(
        [f"link add {_BRIDGE} type bridge forward_delay 0 mcast_snooping 0", f"link set {_BRIDGE} up"],
        inside=hub,
    )
    for index, host in enumerate(hosts):
        name = namespace_of(testbed_id, host)
        _ip(
            [
                f"link add port{index} type veth peer name {_INTERFACE} netns {name}",
                f"link set port{index} master {_BRIDGE} up",
            ],
            inside=hub,
        )
        _ip(
            [
                f"addr add {host.address}/{NETWORK.prefixlen} broadcast {NETWORK.broadcast_address} "
                f"dev {_INTERFACE}",
                f"link set {_INTERFACE} up",
                "link set lo up",
            ],
            inside=name,
        )


def remove_network(testbed_id: str) -> None:
    """Delete the namespaces of a testbed and whatever runs in them; those that are gone do not matter."""
    if not _FOLDER.is_dir():
        return
    for path in _FOLDER.iterdir():
        if not path.name.startswith(_prefix(testbed_id)):
            continue
        inside = subprocess.run(
            ["ip", "netns", "pids", path.name], capture_output=True, text=True, check=False
        ).stdout.split()
        for pid in inside:
            if int(pid) != os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        subprocess.run(["ip", "netns", "delete", path.name], capture_output=True, check=False)


def _prefix(testbed_id: str) -> str:
    return f"nstb-{testbed_id}-"


def _hub(testbed_id: str) -> str:
    return f"{_prefix(testbed_id)}+hub"  # no host can have this name


def _ip(commands: Sequence[str], *, inside: str = "") -> None:
    """Run commands of iproute2 in one process; the first that fails ends it."""
    where = ["-netns", inside] if inside else []
    try:
        done = subprocess.run(
            ["ip", *where, "-batch", "-"],
            input="\n".join(commands) + "\n",
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise SetupError(
            "network namespaces need the command 'ip'", advice="on Debian: apt-get install iproute2"
        ) from error
    if done.returncode != 0:
        reason = " ".join(done.stderr.split()[:30])
        raise SetupError(
            f"network namespaces cannot be made: {reason}",
            advice="run as root on Linux, or use nodes of kind 'process'",
        )
