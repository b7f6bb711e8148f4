"""What a testbed is made of, as one TOML file: nodes, the daemons on them, the links between them.

The model of the file, its reading and its checks stand together: each key is declared, documented and checked
once. Everything is checked that can be without touching a node, so that a mistake costs seconds, and is one
line that says where it is. Nodes with a ``count`` become as many hosts.

A node's profile says how much of a machine it gets: the machines of the dissertation (table 6.1) as shares of
today's cores, which are faster. Limits are held by the kernel's cgroups, which `agent` sets.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from nearsight.common.errors import ConfigurationError, NotFound
from nearsight.experiments.links.link import LinkShape

Kind = Literal["process", "namespace", "ssh"]
NETWORK = ipaddress.IPv4Network("10.78.0.0/16")
"""Network of the nodes in namespaces, seen only inside of them."""
MEBIBYTE = 2**20
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_WORD = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%@+\\-]{0,254}")
DAEMON_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
"""Name of a daemon on its node: such as ``edge-main``, ``link-to-edge-main``. It names files, too."""
_SEE_DOCS = "see docs/testbed.md"
_UNKNOWN_KEY = "extra_forbidden"
_SSH_ALONE = {"host", "user", "port", "key", "options", "folder", "python", "system_packages", "pip"}


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name: use small letters, digits and dashes")
    return name


def _checked_word(word: str) -> str:
    # What begins with a dash is an option to ssh; other signs mean something to shells in its configuration.
    if word and not _WORD.fullmatch(word):
        raise ValueError(f"{word!r} is no host and no user")
    return word


def _checked_daemon(name: str) -> str:
    if not DAEMON_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a daemon")
    return name


Name = Annotated[str, AfterValidator(_checked_name)]
Word = Annotated[str, AfterValidator(_checked_word)]
"""A host or a user, as for the command ssh; may be empty."""
DaemonName = Annotated[str, AfterValidator(_checked_daemon)]
Positive = Annotated[int, Field(ge=1)]


def _beside_inventory(path: Path, info: ValidationInfo) -> Path:
    # What is stored with a testbed's state has no context: it is absolute.
    return path if info.context is None else info.context["folder"] / path.expanduser()


LocalPath = Annotated[Path, AfterValidator(_beside_inventory)]
"""A path on this machine; in the file it starts from the folder of the inventory."""
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
        return {"group": group, "cpus": self.cpus, "memory_bytes": self.memory_mb * MEBIBYTE}


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
    seed: int = 1
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


def read_inventory(path: Path) -> Inventory:
    """Read and check an inventory. Relative paths in it start from its own folder.

    Raises
    ------
    NotFound
        If there is no such file.
    ConfigurationError
        In one line: what is wrong, and where.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotFound(
            f"cannot read inventory {path}: {error.strerror}", advice="docs/testbed.md shows one"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from error
    try:
        inventory = Inventory.model_validate(document, context={"folder": path.resolve().parent})
        _check(inventory)
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {_first(error)}", advice=_SEE_DOCS) from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error.message}", advice=error.advice) from error
    for spec in (inventory.cloud, *inventory.edges.values(), *inventory.devices.values()):
        for key, file in spec.files.items():
            if not file.is_file():
                raise NotFound(f"there is no file {file}", advice=f"the inventory names it for {key}")
    return inventory


def _first(error: ValidationError) -> str:
    # A misspelt key is both unknown and missing under its right name: the first says more.
    found = sorted(error.errors(include_url=False), key=lambda one: one["type"] != _UNKNOWN_KEY)
    first, *_ = found
    *above, last = [str(part) for part in first["loc"]] or [""]
    if first["type"] != _UNKNOWN_KEY:
        return f"{'.'.join([*above, last])}: {first['msg'].removeprefix('Value error, ')}"
    similar = get_close_matches(last, _keys_at(first["loc"][:-1]), n=1)
    meant = f", perhaps {similar[0]!r} was meant" if similar else ""
    return f"{'.'.join(above) or 'at the top'}: there is no key {last!r}{meant}"


def _keys_at(place: Sequence[int | str]) -> list[str]:
    """Keys that a table has, such as that at ("nodes", "box")."""
    model: type[BaseModel] = Inventory
    for part in place:
        field = model.model_fields.get(str(part))
        inner = None if field is None else _model_in(field.annotation)
        model = inner or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The table of an annotation such as ``Mapping[Name, NodeSpec]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := _model_in(one))), None)


def _check(inventory: Inventory) -> None:
    for name, spec in inventory.nodes.items():
        _check_node(name, spec)
    _check_servers(inventory)
    _check_devices(inventory)
    _check_links(inventory)
    inventory.hosts()  # refuses unknown profiles
    if inventory.replay is not None:
        _check_replay(inventory, inventory.replay)


def _check_servers(inventory: Inventory) -> None:
    for name, server in {
        "cloud": inventory.cloud,
        **{f"edges.{name}": edge for name, edge in inventory.edges.items()},
    }.items():
        _check_its_node(inventory, name, server)
        several = inventory.nodes[server.node].count > 1
        _require(not several, f"{name}.node: {server.node!r} is several hosts; a server needs one")


def _check_devices(inventory: Inventory) -> None:
    for name, device in inventory.devices.items():
        where = f"devices.{name}"
        _check_its_node(inventory, where, device)
        unknown = device.edge and device.edge not in inventory.edges
        _require(not unknown, f"{where}.edge: there is no edge {device.edge!r}")
        chosen = device.edge or len(inventory.edges) < 2
        _require(bool(chosen), f"{where}: say which edge it asks")
    carriers = [device.node for device in inventory.devices.values()]
    _require(
        len(set(carriers)) == len(carriers),
        "devices: a host carries one device; give each table its own node",
    )


def _check_its_node(inventory: Inventory, where: str, spec: ServerSpec) -> None:
    _require(spec.node in inventory.nodes, f"{where}.node: there is no node {spec.node!r}")


def _check_links(inventory: Inventory) -> None:
    used = list(inventory.pairs())
    for source, target in used:
        _require(source in inventory.nodes, f"links: there is no node {source!r}")
        _require(target in inventory.nodes, f"links: there is no node {target!r}")
        _check_pair(inventory, source, target)
    seen = set()
    for link in inventory.links:
        pair = (link.source, link.target)
        _require(pair in used, f"links: nothing goes from {link.source!r} to {link.target!r}")
        _require(pair not in seen, f"links: {link.source!r} to {link.target!r} is there twice")
        seen.add(pair)
        if link.via:
            _check_via(inventory, link)
    for way in (*inventory.links, *inventory.networks.values()):
        _ = way.shape  # refuses numbers that no link has
    to_cloud = any(link.target == inventory.cloud.node for link in inventory.links)
    _require(
        to_cloud or not inventory.networks, "networks: there is no link to the cloud that could be like them"
    )


def _check_replay(inventory: Inventory, replay: ReplaySpec) -> None:
    sweep = inventory.sweep
    if replay.trace is not None:
        given = [
            f"replay.{name}"
            for name in ("sections", "exhibits", "population")
            if name in replay.model_fields_set
        ]
        given += ["sweep.sections"] * bool(sweep.sections)
        _require(not given, f"{', '.join(given)}: only generated visits have it; leave out replay.trace")
    hosts = sum(inventory.nodes[device.node].count for device in inventory.devices.values())
    most = max((replay.visitors, *sweep.visitors))
    _require(most <= hosts, f"{most} visitors need as many devices, but there are {hosts}")
    known = replay.classes or sweep.classes
    _require(
        not known or "database" in inventory.cloud.files,
        "classes: to leave out objects, the cloud's database must be a file: cloud.files.database",
    )


def _check_via(inventory: Inventory, link: LinkSpec) -> None:
    where = f"links: {link.source!r} to {link.target!r} via {link.via!r}"
    further = inventory.link(link.via, link.target)
    if link.via == link.source or further is None:
        raise ConfigurationError(
            f"{where}: there is no link from {link.via!r} to {link.target!r}", advice=_SEE_DOCS
        )
    _require(not further.via, f"{where}: that goes via another node itself")
    _require(inventory.nodes[link.via].count == 1, f"{where}: {link.via!r} is several hosts")


def _check_node(name: str, spec: NodeSpec) -> None:
    if spec.kind == "ssh":
        _require(bool(spec.host), f"nodes.{name}: an SSH node needs a host")
        _require(spec.count == 1, f"nodes.{name}: an SSH node is one host")
        return
    given = spec.model_fields_set & _SSH_ALONE
    _require(not given, f"nodes.{name}: {', '.join(sorted(given))} is for nodes of kind 'ssh' alone")


def _check_pair(inventory: Inventory, source: str, target: str) -> None:
    kinds = {inventory.nodes[source].kind, inventory.nodes[target].kind}
    _require(
        len(kinds) == 1 or "namespace" not in kinds,
        f"{source!r} cannot reach {target!r}: nodes in namespaces reach only each other",
    )
    if source != target and inventory.nodes[source].kind == "ssh":
        spec = inventory.nodes[target]
        _require(
            spec.kind == "ssh" or bool(spec.address),
            f"nodes.{target}: give the address at which {source!r} reaches this machine",
        )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigurationError(message, advice=_SEE_DOCS)
