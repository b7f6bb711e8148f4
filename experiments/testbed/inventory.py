"""What a testbed is made of, as one TOML file: nodes, the daemons on them, the links between them.

Nodes with a ``count`` become as many hosts; `Inventory.hosts` and
the other methods are about hosts.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.testbed.limits import NodeProfile, find_profile

Kind = Literal["process", "namespace", "ssh"]
NETWORK = ipaddress.IPv4Network("10.78.0.0/16")
"""Of the nodes in namespaces; it is only seen inside of them."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name: use small letters, digits and dashes")
    return name


Name = Annotated[str, AfterValidator(_checked_name)]
Positive = Annotated[int, Field(ge=1)]
Value = str | int | float | bool


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class NodeSpec(_Table):
    """One ``[nodes.NAME]``."""

    kind: Kind
    count: int = Field(default=1, ge=1, le=1000)
    """Hosts of this kind: NAME-1, NAME-2, … if there are several."""
    profile: str = ""
    """How much of the machine it gets; empty: all."""
    address: str = ""
    """Where other nodes reach it. Default: 127.0.0.1, one of the network of namespaces, or the SSH host."""
    host: str = ""
    """ssh: name or address, as for the command ssh, which also reads its own configuration."""
    user: str = ""
    port: int = Field(default=0, ge=0, le=65535)
    key: Path | None = None
    """ssh: file with the private key. Default: what ssh would use."""
    options: tuple[str, ...] = ()
    """ssh: further options, as after ``-o``, such as ``UserKnownHostsFile=hosts``."""
    folder: str = ".nearsight-testbed"
    """ssh: where files go on the node; a relative path starts from the home folder there."""
    python: str = "python3"
    """ssh: the Python that makes the virtual environment there."""
    system_packages: bool = False
    """ssh: let that environment see the node's own packages, as Termux needs it for OpenCV."""
    pip: tuple[str, ...] = ()
    """ssh: further options of ``pip install``, such as ``--no-index``, ``--find-links=wheels``."""
    serve_port: int = Field(default=0, ge=0, le=65535)
    """Port on which a server of this node listens; 0: any. Give one where a firewall must know it."""


class ServerSpec(_Table):
    """``[cloud]``."""

    node: Name
    settings: Mapping[str, Value] = {}
    """As after ``--set``."""
    files: Mapping[str, Path] = {}
    """Settings that are files: each is copied to the node."""


class EdgeSpec(ServerSpec):
    """One ``[edges.NAME]``."""


class DeviceSpec(ServerSpec):
    """One ``[devices.NAME]``: one device on each host of its node."""

    edge: str = ""
    """Name of the edge that it asks first. Default: the only one, if there is one."""

    @property
    def shares(self) -> bool:
        """Whether it shares with devices nearby."""
        return self.settings.get("recognizer.peers.enabled") is True


class NetworkSpec(_Table):
    """One ``[networks.NAME]``: what all links to the cloud are like in a part of a replay."""

    rtt_ms: float = 0.0
    jitter_ms: float = 0.0
    up_mbps: float = 0.0
    down_mbps: float = 0.0
    loss_per_minute: float = 0.0

    @property
    def shape(self) -> LinkShape:
        """The link itself."""
        return LinkShape(self.rtt_ms, self.jitter_ms, self.up_mbps, self.down_mbps, self.loss_per_minute)


class LinkSpec(NetworkSpec):
    """One ``[[links]]``: what the way from a client's node to a server's is like."""

    source: Name = Field(alias="from")
    target: Name = Field(alias="to")
    via: str = ""
    """Node through whose own link to the target this one goes on: all that do so share its rate."""


class ConfigurationSpec(_Table):
    """One ``[configurations.NAME]``: a set-up to compare with others."""

    edges: bool = True
    """Whether there are edges; else devices ask the cloud."""
    edge: Mapping[str, Value] = {}
    device: Mapping[str, Value] = {}
    """Settings beside those of the tables ``edges`` and ``devices``."""


class ReplaySpec(_Table):
    """``[replay]``: what the devices do."""

    photos: Path
    """Data set: the photos that are sent."""
    trace: Path | None = None
    """Visits, as CSV: ``visitor,exhibit,start_s,end_s``. Each device gets a visitor, each run others.
    Default: visits are generated, as `nearsight museum traces` does."""
    sections: int = Field(default=3, ge=1)
    """Of generated visits: rooms, each with its own exhibits."""
    exhibits: int = Field(default=44, ge=1)
    """Of generated visits: in each section."""
    population: int = Field(default=180, ge=1)
    """Of generated visits: visitors."""
    visitors: int = Field(default=0, ge=0)
    """Devices that take part; 0: all."""
    classes: int = Field(default=0, ge=0)
    """Objects that the cloud knows, those on show among them; 0: all of its database."""
    configurations: tuple[Name, ...] = ()
    """Which, of the inventory's own and of those that are built in. Default: see `configurations.chosen`."""
    catalogue: str = "museum"
    seconds: float = Field(default=60.0, gt=0)
    timeout_s: float = Field(default=5.0, ge=0.05)
    unknown_share: float = Field(default=0.0, ge=0, lt=1)
    runs: int = Field(default=1, ge=1, le=100)
    warm_up: int = Field(default=0, ge=0)
    """How many earlier visitors, the last of the trace, each edge hears of before a replay begins."""
    seed: int = 1
    """Draws the photos of the visits."""


class SweepSpec(_Table):
    """``[sweep]``: values of one variable after the other; the others stay as ``[replay]`` says."""

    visitors: tuple[Positive, ...] = ()
    sections: tuple[Positive, ...] = ()
    classes: tuple[Positive, ...] = ()


class ProfileSpec(_Table):
    """One ``[profiles.NAME]``."""

    cpus: float = 0.0
    memory_mb: int = 0


class Host(BaseModel):
    """One host of a node."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    node: str
    spec: NodeSpec
    address: str
    cpus: float = 0.0
    memory_mb: int = 0

    @property
    def profile(self) -> NodeProfile:
        """Its limits."""
        return NodeProfile(self.cpus, self.memory_mb)


class Inventory(_Table):
    """A whole testbed."""

    nodes: Mapping[Name, NodeSpec]
    cloud: ServerSpec
    edges: Mapping[Name, EdgeSpec] = {}
    devices: Mapping[Name, DeviceSpec] = {}
    links: tuple[LinkSpec, ...] = ()
    profiles: Mapping[Name, ProfileSpec] = {}
    replay: ReplaySpec | None = None
    configurations: Mapping[Name, ConfigurationSpec] = {}
    networks: Mapping[Name, NetworkSpec] = {}
    sweep: SweepSpec = SweepSpec()
    wheel: Path | None = None
    """What SSH nodes install. Default: built from this working tree."""
    seed: int = 1
    """Of jitter and losses."""

    def hosts(self) -> tuple[Host, ...]:
        """All hosts, in the order of the file."""
        addresses = NETWORK.hosts()
        own = {name: NodeProfile(spec.cpus, spec.memory_mb) for name, spec in self.profiles.items()}
        found = []
        for node, spec in self.nodes.items():
            profile = find_profile(spec.profile, own) if spec.profile else NodeProfile()
            for index in range(spec.count):
                address = str(next(addresses)) if spec.kind == "namespace" else _address(spec)
                name = f"{node}-{index + 1}" if spec.count > 1 else node
                found.append(
                    Host(
                        name=name,
                        node=node,
                        spec=spec,
                        address=address,
                        cpus=profile.cpus,
                        memory_mb=profile.memory_mb,
                    )
                )
        return tuple(found)

    def hosts_of(self, node: str) -> tuple[Host, ...]:
        """The hosts of one node."""
        return tuple(host for host in self.hosts() if host.node == node)

    def edge_of(self, device: DeviceSpec) -> str:
        """Name of the edge that a device asks first; empty if there is no edge at all."""
        return device.edge or next(iter(self.edges), "")

    def link(self, source: str, target: str) -> LinkSpec | None:
        """The link from a client's node to a server's; None: as it is."""
        found = (link for link in self.links if (link.source, link.target) == (source, target))
        return next(found, None)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Nodes that talk: (client's, server's), those on the way among them."""
        for source, target in self._ends():
            link = self.link(source, target)
            if link is not None and link.via:
                yield source, link.via
                yield link.via, target
            yield source, target

    def _ends(self) -> Iterator[tuple[str, str]]:
        for edge in self.edges.values():
            yield edge.node, self.cloud.node
        for device in self.devices.values():
            yield device.node, self.cloud.node
            if edge_name := self.edge_of(device):
                yield device.node, self.edges[edge_name].node

    @property
    def needs_keys(self) -> bool:
        """Whether daemons listen beyond loopback, and so need keys."""
        return any(a != b and self.nodes[b].kind != "process" for a, b in self.pairs()) or any(
            self.nodes[a].kind == "ssh" for a, b in self.pairs() if a != b
        )


def _address(spec: NodeSpec) -> str:
    return spec.address or (spec.host if spec.kind == "ssh" else "127.0.0.1")
