"""The inventory of a testbed: the tables of its TOML file, with nodes, daemons on them, and links.

Each key is declared and documented here; `reading` checks relations between tables. Nodes with a ``count``
become several hosts. A node's profile limits its share of the machine. The built-in profiles are the machines
of the dissertation (table 6.1) as shares of today's faster cores. The kernel's cgroups, which `agent` sets,
enforce the limits.
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
"""Network of the nodes in namespaces, visible only inside them."""
MEBIBYTE = 2**20
_CPU_PERIOD_US = 50_000
_LEAST_QUOTA_US, _LEAST_PERIOD_US = 1_000, 2_000
"""The kernel accepts no quota and no period below 1 ms."""


def _matching(pattern: str, complaint: str) -> AfterValidator:
    """Validator for text that must match a pattern; the complaint follows the text in the message."""
    form = re.compile(pattern)

    def check(text: str) -> str:
        if not form.fullmatch(text):
            raise ValueError(f"{text!r} {complaint}")
        return text

    return AfterValidator(check)


Name = Annotated[
    str, _matching(r"[a-z0-9][a-z0-9-]{0,30}", "is not a name: use small letters, digits and dashes")
]
# A leading dash would be an option of ssh; other characters have a meaning for shells in its configuration.
SshName = Annotated[
    str, _matching(r"(?:[A-Za-z0-9_:][A-Za-z0-9_.:%@+\\-]{0,254})?", "is neither a host nor a user")
]
"""A host or a user, as for the command ssh; may be empty."""
DAEMON_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
DaemonName = Annotated[str, _matching(DAEMON_NAME.pattern, "is not the name of a daemon")]
"""Name of a daemon on its node, such as ``edge-main`` or ``link-to-edge-main``. It is also used in file
names."""
Positive = Annotated[int, Field(ge=1)]


def _beside_inventory(path: Path, info: ValidationInfo) -> Path:
    # The stored state of a testbed is validated without context: its paths are absolute.
    return path if info.context is None else info.context["folder"] / path.expanduser()


LocalPath = Annotated[Path, AfterValidator(_beside_inventory)]
"""A path on this machine; in the file it is relative to the folder of the inventory."""
RemotePath = Annotated[
    str,
    Field(min_length=1),
    AfterValidator(lambda path: "." if path in {"~", "~/"} else path.removeprefix("~/")),
]
"""A path on a node over SSH; a relative path is relative to the home folder there."""
Value = str | int | float | bool


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


class NodeSpec(_Table):
    """One ``[nodes.NAME]``."""

    kind: Kind
    count: int = Field(default=1, ge=1, le=1000)
    """Number of hosts of this kind; several are named NAME-1, NAME-2, …"""
    profile: str = ""
    """Profile that limits its share of the machine; empty: no limit."""
    address: SshName = ""
    """Address for other nodes. Default: 127.0.0.1, an address in the network of namespaces, or the SSH host.
    """
    host: SshName = ""
    """ssh: name or address, as for the command ssh, which also reads its own configuration."""
    user: SshName = ""
    port: int = Field(default=0, ge=0, le=65535)
    key: LocalPath | None = None
    """ssh: file with the private key. Default: the key that ssh would use."""
    options: tuple[str, ...] = ()
    """ssh: further options, as after ``-o``, such as ``UserKnownHostsFile=hosts``."""
    folder: RemotePath = ".nearsight-testbed"
    """ssh: folder for files on the node."""
    python: RemotePath = "python3"
    """ssh: the Python that creates the virtual environment there."""
    system_packages: bool = False
    """ssh: give that environment access to the node's own packages, as Termux needs it for OpenCV."""
    pip: tuple[str, ...] = ()
    """ssh: further options of ``pip install``, such as ``--no-index``, ``--find-links=wheels``."""
    serve_port: int = Field(default=0, ge=0, le=65535)
    """Port on which a server of this node listens; 0: any. Set it if a firewall needs a known port."""


class ServerSpec(_Table):
    """``[cloud]``, or one ``[edges.NAME]``."""

    node: Name
    settings: Mapping[str, Value] = {}
    """Settings as after ``--set``."""
    files: Mapping[str, LocalPath] = {}
    """Settings that are files: each is copied to the node."""


class DeviceSpec(ServerSpec):
    """One ``[devices.NAME]``: one device on each host of its node."""

    edge: str = ""
    """Name of the edge that it asks first. Default: the only edge, if there is one."""

    @property
    def shares(self) -> bool:
        """Whether it shares models with devices nearby."""
        return self.settings.get("recognizer.peers.enabled") is True


class NetworkSpec(_Table):
    """One ``[networks.NAME]``: a shape for all links to the cloud in a part of a sweep."""

    rtt_ms: float = 0.0
    jitter_ms: float = 0.0
    up_mbps: float = 0.0
    down_mbps: float = 0.0
    loss_per_minute: float = 0.0

    @property
    def shape(self) -> LinkShape:
        """The shape of the link."""
        return LinkShape(self.rtt_ms, self.jitter_ms, self.up_mbps, self.down_mbps, self.loss_per_minute)


class LinkSpec(NetworkSpec):
    """One ``[[links]]``: the shape of the link from a client's node to a server's."""

    source: Name = Field(alias="from")
    target: Name = Field(alias="to")
    via: str = ""
    """Node through whose own link to the target this link continues; all links via a node share its rate."""


class ConfigurationSpec(_Table):
    """One ``[configurations.NAME]``: a configuration to compare with others."""

    edges: bool = True
    """Whether there are edges; otherwise devices send requests to the cloud."""
    edge: Mapping[str, Value] = {}
    device: Mapping[str, Value] = {}
    """Settings in addition to those of the tables ``edges`` and ``devices``."""


class ReplaySpec(_Table):
    """``[replay]``: the work of the devices."""

    photos: LocalPath
    """Data set with the photos to send."""
    trace: LocalPath | None = None
    """Visits, as CSV: ``visitor,exhibit,start_s,end_s``. Each device gets a visitor; each run uses other
    visitors. Default: visits are generated, as by `nearsight museum traces`."""
    sections: int = Field(default=3, ge=1)
    """Rooms of generated visits, each with its own exhibits."""
    exhibits: int = Field(default=44, ge=1)
    """Exhibits in each section of generated visits."""
    population: int = Field(default=180, ge=1)
    """Number of visitors in generated visits."""
    visitors: int = Field(default=0, ge=0)
    """Number of devices that take part; 0: all."""
    classes: int = Field(default=0, ge=0)
    """Number of objects in the cloud's catalogue, including those on show; 0: all of its database."""
    configurations: tuple[Name, ...] = ()
    """Names of own and built-in configurations. Default: see `campaign.compared_configurations`."""
    catalogue: str = "museum"
    seconds: float = Field(default=60.0, gt=0)
    timeout_s: float = Field(default=5.0, ge=0.05, le=86_400)
    unknown_share: float = Field(default=0.0, ge=0, lt=1)
    runs: int = Field(default=1, ge=1, le=100)
    warm_up: int = Field(default=0, ge=0)
    """Number of earlier visitors, the last of the trace, whose visits warm up each edge before a replay."""
    seed: int = Field(default=1, ge=0)
    """Seed for choosing the photos of the visits."""


class SweepSpec(_Table):
    """``[sweep]``: values of each variable; one is varied at a time, the others are as in ``[replay]``."""

    visitors: tuple[Positive, ...] = ()
    sections: tuple[Positive, ...] = ()
    classes: tuple[Positive, ...] = ()


class ProfileSpec(_Table):
    """One ``[profiles.NAME]``: limits of a node."""

    cpus: float = 0.0
    """Number of cores of its machine; 0: all."""
    memory_mb: int = 0
    """Memory [MiB]; 0: all. The kernel kills a process that exceeds it."""

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
"""Table 6.1, with the same memory, and CPUs as cores of a current PC. For server and PC, physical cores are
counted; half a core for the four slow ones of a Nexus 7 is an estimate. An inventory may define other
profiles."""


def cpu_time(cpus: float) -> tuple[int, int]:
    """CPU time in a period, and length of the period [µs]; a time of -1 means no limit.

    Fractions of a core use the shortest periods that are allowed. With 25 of every 50 ms, half a core would
    do 10 ms of work in 10 ms, and a slow phone would recognise as fast as a whole core.
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
        """Whether CPU or memory is limited."""
        return bool(self.cpus or self.memory_mb)

    def limits(self, group: str) -> dict[str, object]:
        """The limits in the form of the agent's order; ``group`` is the name of the host's control group."""
        return {"group": group, "cpu_us": cpu_time(self.cpus), "memory_bytes": self.memory_mb * MEBIBYTE}


class Inventory(_Table):
    """A whole testbed."""

    nodes: Mapping[Name, NodeSpec]
    cloud: ServerSpec
    edges: Mapping[Name, ServerSpec] = {}
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
    """Seed of jitter and losses; each link derives its own from it."""

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

    def tables(self) -> dict[str, ServerSpec]:
        """All servers and devices, by the names of their tables, such as ``edges.main``."""
        return {
            "cloud": self.cloud,
            **{f"edges.{name}": edge for name, edge in self.edges.items()},
            **{f"devices.{name}": device for name, device in self.devices.items()},
        }

    def servers(self) -> dict[str, ServerSpec]:
        """Servers, by the names of their daemons: ``cloud`` and ``edge-NAME``."""
        return {"cloud": self.cloud, **{f"edge-{name}": edge for name, edge in self.edges.items()}}

    def hosts_of(self, node: str) -> tuple[Host, ...]:
        """The hosts of one node."""
        return tuple(host for host in self.hosts() if host.node == node)

    def edge_of(self, device: DeviceSpec) -> str:
        """Name of the edge that a device asks first; empty if there are no edges."""
        return device.edge or next(iter(self.edges), "")

    def link(self, source: str, target: str) -> LinkSpec | None:
        """The link from a client's node to a server's; None: not shaped."""
        return next((link for link in self.links if (link.source, link.target) == (source, target)), None)

    def link_to(self, source: str, server: str) -> LinkSpec | None:
        """The link from a client's node to a server, by the name of its daemon."""
        return self.link(source, self.servers()[server].node)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Pairs of nodes that communicate: (client's, server's), including those via another node."""
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
        """Whether daemons listen beyond loopback, and therefore need keys."""
        return any(
            self.nodes[b].kind != "process" or self.nodes[a].kind == "ssh" for a, b in self.pairs() if a != b
        )


def _address(spec: NodeSpec) -> str:
    return spec.address or (spec.host if spec.kind == "ssh" else "127.0.0.1")
