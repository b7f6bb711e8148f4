"""What a testbed is made of: the tables of its TOML file, with the nodes, the daemons on them, and the links.

Each key is declared and documented here; `reading` checks what lies between tables. Nodes with a ``count``
become as many hosts. A node's profile says how much of a machine it gets: the machines of the dissertation
(table 6.1) as shares of today's cores, which are faster. Limits are held by the kernel's cgroups, which
`agent` sets.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, model_validator

from nearsight.common.errors import ConfigurationError
from nearsight.experiments.links.link import LinkShape

Kind = Literal["process", "namespace", "ssh"]
NETWORK = ipaddress.IPv4Network("10.78.0.0/16")
"""Network of the nodes in namespaces, seen only inside of them."""
MEBIBYTE = 2**20
_CPU_PERIOD_US = 50_000
_LEAST_QUOTA_US, _LEAST_PERIOD_US = 1_000, 2_000
"""The kernel takes no less than 1 ms of either."""


def _like(pattern: str, complaint: str) -> AfterValidator:
    """For text of some form; the complaint follows the text itself."""
    form = re.compile(pattern)

    def check(text: str) -> str:
        if not form.fullmatch(text):
            raise ValueError(f"{text!r} {complaint}")
        return text

    return AfterValidator(check)


Name = Annotated[str, _like(r"[a-z0-9][a-z0-9-]{0,30}", "is no name: use small letters, digits and dashes")]
# What begins with a dash is an option to ssh; other signs mean something to shells in its configuration.
Word = Annotated[str, _like(r"(?:[A-Za-z0-9_:][A-Za-z0-9_.:%@+\\-]{0,254})?", "is no host and no user")]
"""A host or a user, as for the command ssh; may be empty."""
DAEMON_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
DaemonName = Annotated[str, _like(DAEMON_NAME.pattern, "is no name of a daemon")]
"""Name of a daemon on its node: such as ``edge-main``, ``link-to-edge-main``. It names files, too."""
Positive = Annotated[int, Field(ge=1)]


def _beside_inventory(path: Path, info: ValidationInfo) -> Path:
    # What is stored with a testbed's state has no context: it is absolute.
    return path if info.context is None else info.context["folder"] / path.expanduser()


LocalPath = Annotated[Path, AfterValidator(_beside_inventory)]
"""A path on this machine; in the file it starts from the folder of the inventory."""
RemotePath = Annotated[str, Field(min_length=1), AfterValidator(lambda path: path.removeprefix("~/"))]
"""A path on a node over SSH; a relative one starts from the home folder there."""
Value = str | int | float | bool


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


class NodeSpec(_Table):
    """One ``[nodes.NAME]``."""

    kind: Kind
    count: int = Field(default=1, ge=1, le=1000)
    """Hosts of this kind: NAME-1, NAME-2, … if there are several."""
    profile: str = ""
    """How much of the machine it gets; empty: all."""
    address: Word = ""
    """Address for other nodes. Default: 127.0.0.1, one of the network of namespaces, or the SSH host."""
    host: Word = ""
    """ssh: name or address, as for the command ssh, which also reads its own configuration."""
    user: Word = ""
    port: int = Field(default=0, ge=0, le=65535)
    key: LocalPath | None = None
    """ssh: file with the private key. Default: what ssh would use."""
    options: tuple[str, ...] = ()
    """ssh: further options, as after ``-o``, such as ``UserKnownHostsFile=hosts``."""
    folder: RemotePath = ".nearsight-testbed"
    """ssh: where files go on the node."""
    python: RemotePath = "python3"
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
    files: Mapping[str, LocalPath] = {}
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

    photos: LocalPath
    """Data set: the photos that are sent."""
    trace: LocalPath | None = None
    """Visits, as CSV: ``visitor,exhibit,start_s,end_s``. Each device gets a visitor, each run others.
    Default: visits are generated, as `nearsight museum traces` does."""
    sections: int = Field(default=3, ge=1)
    """Rooms of generated visits, each with its own exhibits."""
    exhibits: int = Field(default=44, ge=1)
    """Exhibits in each section of generated visits."""
    population: int = Field(default=180, ge=1)
    """Visitors of generated visits."""
    visitors: int = Field(default=0, ge=0)
    """Devices that take part; 0: all."""
    classes: int = Field(default=0, ge=0)
    """Objects that the cloud knows, those on show among them; 0: all of its database."""
    configurations: tuple[Name, ...] = ()
    """Names of the inventory's own and of built-in ones. Default: see `campaign.chosen`."""
    catalogue: str = "museum"
    seconds: float = Field(default=60.0, gt=0)
    timeout_s: float = Field(default=5.0, ge=0.05, le=86_400)
    unknown_share: float = Field(default=0.0, ge=0, lt=1)
    runs: int = Field(default=1, ge=1, le=100)
    warm_up: int = Field(default=0, ge=0)
    """How many earlier visitors, the last of the trace, each edge hears of before a replay begins."""
    seed: int = Field(default=1, ge=0)
    """Draws the photos of the visits."""


class SweepSpec(_Table):
    """``[sweep]``: values of one variable after the other; the others stay as ``[replay]`` says."""

    visitors: tuple[Positive, ...] = ()
    sections: tuple[Positive, ...] = ()
    classes: tuple[Positive, ...] = ()


class ProfileSpec(_Table):
    """One ``[profiles.NAME]``: what a node may use."""

    cpus: float = 0.0
    """Cores of the machine that it runs on; 0: all."""
    memory_mb: int = 0
    """MiB of memory; 0: all. A process beyond that is killed by the kernel."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not 0 <= self.cpus < float("inf") or 0 < self.cpus < 0.02:
            raise ValueError(f"a node cannot have {self.cpus:g} CPUs; give at least 0.02, or 0 for all")
        if self.memory_mb < 0 or 0 < self.memory_mb < 64:
            raise ValueError(
                f"a node cannot have {self.memory_mb} MiB of memory; give at least 64, or 0 for all"
            )
        return self


PROFILES = MappingProxyType(
    {
        "nexus7": ProfileSpec(cpus=0.5, memory_mb=2048),
        "edge-pc": ProfileSpec(cpus=4.0, memory_mb=8192),
        "cloud-server": ProfileSpec(cpus=12.0, memory_mb=32768),
    }
)
"""Table 6.1: memory as there; CPUs as cores of a current PC. Of server and PC the physical cores count; half
a core for the four slow ones of a Nexus 7 is an estimate. An inventory may say otherwise."""


def cpu_time(cpus: float) -> tuple[int, int]:
    """How much time so many cores have in a period, and how long that is, in µs; -1: all.

    A part of a core gets it in the shortest pieces that the kernel allows: with 25 of every 50 ms, half a
    core does 10 ms of work in 10 ms, and a slow phone recognises as fast as a whole core.
    """
    if not cpus:
        return -1, _CPU_PERIOD_US
    if cpus >= 1:
        return int(cpus * _CPU_PERIOD_US), _CPU_PERIOD_US
    period_us = max(_LEAST_PERIOD_US, round(_LEAST_QUOTA_US / cpus))
    return max(_LEAST_QUOTA_US, int(cpus * period_us)), period_us


class Host(BaseModel):
    """One host of a node, and its limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    node: str
    spec: NodeSpec
    address: str
    cpus: float = 0.0
    memory_mb: int = 0

    @property
    def limited(self) -> bool:
        """Whether anything is limited."""
        return bool(self.cpus or self.memory_mb)

    def limits(self, group: str) -> dict[str, object]:
        """The agent's order; ``group`` is the name of the host's group of limited processes."""
        return {"group": group, "cpu_us": cpu_time(self.cpus), "memory_bytes": self.memory_mb * MEBIBYTE}


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
    wheel: LocalPath | None = None
    """Wheel that SSH nodes install. Default: built from this working tree."""
    seed: int = Field(default=1, ge=0)
    """Seed of jitter and losses."""

    def hosts(self) -> tuple[Host, ...]:
        """All hosts, in the order of the file."""
        addresses = NETWORK.hosts()
        known = {**PROFILES, **self.profiles}
        found = []
        for node, spec in self.nodes.items():
            if spec.profile and spec.profile not in known:
                raise ConfigurationError(
                    f"there is no profile {spec.profile!r}", advice=f"use one of {', '.join(known)}"
                )
            limits = known.get(spec.profile, ProfileSpec()).model_dump()
            for index in range(spec.count):
                address = str(next(addresses)) if spec.kind == "namespace" else _address(spec)
                name = f"{node}-{index + 1}" if spec.count > 1 else node
                found.append(Host(name=name, node=node, spec=spec, address=address, **limits))
        return tuple(found)

    def hosts_of(self, node: str) -> tuple[Host, ...]:
        """The hosts of one node."""
        return tuple(host for host in self.hosts() if host.node == node)

    def edge_of(self, device: DeviceSpec) -> str:
        """Name of the edge that a device asks first; empty if there is no edge at all."""
        return device.edge or next(iter(self.edges), "")

    def link(self, source: str, target: str) -> LinkSpec | None:
        """The link from a client's node to a server's; None: as it is."""
        return next((link for link in self.links if (link.source, link.target) == (source, target)), None)

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
        return any(
            self.nodes[b].kind != "process" or self.nodes[a].kind == "ssh" for a, b in self.pairs() if a != b
        )


def _address(spec: NodeSpec) -> str:
    return spec.address or (spec.host if spec.kind == "ssh" else "127.0.0.1")
