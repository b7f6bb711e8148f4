"""The network of a testbed's namespaces: it outlives the command that made it, unlike `namespaces`.

All names follow from the testbed's id, so that what is there can be removed by any later command.
"""

from __future__ import annotations

from collections.abc import Sequence

from nearsight.experiments.links.iproute import NAMESPACES, delete_namespaces, ip
from nearsight.experiments.testbed.inventory import NETWORK, Host

INTERFACE = "eth0"
"""Of every host."""
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
    hub = hub_of(testbed_id)
    ip([f"netns add {name}" for name in (hub, *(namespace_of(testbed_id, host) for host in hosts))])
    ip(
        [f"link add {_BRIDGE} type bridge forward_delay 0 mcast_snooping 0", f"link set {_BRIDGE} up"],
        inside=hub,
    )
    for index, host in enumerate(hosts):
        name = namespace_of(testbed_id, host)
        ip(
            [
                f"link add port{index} type veth peer name {INTERFACE} netns {name}",
                f"link set port{index} master {_BRIDGE} up",
            ],
            inside=hub,
        )
        ip(
            [
                f"addr add {host.address}/{NETWORK.prefixlen} broadcast {NETWORK.broadcast_address} "
                f"dev {INTERFACE}",
                f"link set {INTERFACE} up",
                "link set lo up",
            ],
            inside=name,
        )


def remove_network(testbed_id: str) -> None:
    """Delete the namespaces of a testbed and whatever runs in them; those that are gone do not matter."""
    if NAMESPACES.is_dir():
        found = [path.name for path in NAMESPACES.iterdir()]
        delete_namespaces(name for name in found if name.startswith(_prefix(testbed_id)))


def _prefix(testbed_id: str) -> str:
    return f"nstb-{testbed_id}-"


def hub_of(testbed_id: str) -> str:
    """Name of the namespace of the switch."""
    return f"{_prefix(testbed_id)}+hub"  # no host can have this name
