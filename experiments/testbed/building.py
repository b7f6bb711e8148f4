"""Brings a testbed up: networks and nodes, the cloud, the links to it, the edges, the devices' links."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

import xxhash

from nearsight.common.catalogue.schema import FORMAT
from nearsight.common.database.files import copy_database
from nearsight.common.errors import InternalError
from nearsight.common.rpc.security import generate_keys
from nearsight.experiments.links.link import UNSHAPED
from nearsight.experiments.links.shaper import ShaperSettings
from nearsight.experiments.rig.processes import Process
from nearsight.experiments.rig.tiers import NO_STANDBY, tier_arguments
from nearsight.experiments.testbed.deployment import deploy, find_wheel
from nearsight.experiments.testbed.inventory import Host, Inventory, LinkSpec, ServerSpec
from nearsight.experiments.testbed.node_network import Pairs, make_network, shape_links
from nearsight.experiments.testbed.nodes import Node, Nodes
from nearsight.experiments.testbed.state import Daemon, TestbedState

START_TIMEOUT_S = 120.0
CLOUD = "cloud"
DATABASE = "database"
_PROBE = "probe"
DEVICE_KEYS = "keys/allowed-devices"
OnStage = Callable[[str], None]


@dataclass(slots=True)
class Builder:
    """Builds one testbed."""

    state: TestbedState
    """State of the testbed; every daemon that serves is added to it."""
    folder: Path
    """Folder of the testbed."""
    nodes: Nodes
    """The nodes, open."""
    on_stage: OnStage
    """Called with a description of the next step."""
    pairs: Pairs = field(default_factory=dict)
    """The kernel's part of the links between hosts."""

    @property
    def inventory(self) -> Inventory:
        """The inventory to build."""
        return self.state.inventory

    def build(self) -> None:
        """Build the whole testbed; sets `TestbedState.complete` at the end."""
        inventory = self.inventory
        isolated = [host for host in inventory.hosts() if host.spec.kind == "namespace"]
        if isolated:
            self.on_stage(f"creating a network of {len(isolated)} namespaces")
            make_network(self.state.testbed_id, isolated)
            self.pairs = shape_links(self.state.testbed_id, inventory)
        self.on_stage(f"preparing {len(self.nodes.by_name)} nodes")
        prepared = self.nodes.each(lambda node: (node.host.name, node.prepare()))
        self.state.machines = {
            name: {key: facts[key] for key in ("machine", "cores", "system", "python")}
            for name, facts in prepared
        }
        self.state.prepared = True
        self.state.save(self.folder)
        self._install()
        self._make_keys()
        self.on_stage("starting the cloud")
        self._start([CLOUD])
        self.on_stage(f"starting edges: {', '.join(inventory.edges) or 'none'}")
        edges = [name for name in inventory.servers() if name != CLOUD]
        self._link([(self._host(name), CLOUD) for name in edges])
        self._start(edges)
        self.on_stage("starting the devices' links")
        self._link(list(self._device_links()))
        self.state.complete = True
        self.state.save(self.folder)

    def _device_links(self) -> Iterator[tuple[Host, str]]:
        for device in self.inventory.devices.values():
            for host in self.inventory.hosts_of(device.node):
                yield host, CLOUD
                if edge := self.inventory.edge_of(device):
                    yield host, f"edge-{edge}"

    def _install(self) -> None:
        remote = [node for node in self.nodes.by_name.values() if node.host.spec.kind == "ssh"]
        if remote:
            self.on_stage("building the package for nodes over SSH")
            wheel = find_wheel(self.inventory.wheel, self.folder)
            self.on_stage(f"installing {wheel.name} on {', '.join(node.host.name for node in remote)}")
            # Nodes on one machine share an environment: only the first node installs it.
            alone: defaultdict[tuple[str, ...], Lock] = defaultdict(Lock)

            def install(node: Node) -> None:
                spec = node.host.spec
                with alone[spec.user, spec.host, str(spec.port), spec.folder]:
                    deploy(node, wheel)

            self.nodes.each(install, remote)

    def _make_keys(self) -> None:
        if not self.inventory.needs_keys:
            return
        nodes = [device.node for device in self.inventory.devices.values()]
        devices = {host for node in nodes for host in self.inventory.hosts_of(node)}
        servers = {name: self._host(name) for name in self.inventory.servers()}
        owners = {**servers, **{f"device-{host.name}": host for host in devices}}
        keys = self.folder / "keys"
        shutil.rmtree(keys, ignore_errors=True)
        for owner, host in owners.items():
            files = generate_keys(keys, owner)
            self.state.keys[owner] = files.public_key
            self.nodes[host.name].put(files.secret_file, f"keys/{owner}.key_secret")
        if any(device.shares for device in self.inventory.devices.values()):
            for host in devices:
                for other in devices:
                    owner = f"device-{other.name}"
                    self.nodes[host.name].put(keys / f"{owner}.key", f"{DEVICE_KEYS}/{owner}.key")
        for server, host in servers.items():
            for owner in owners:
                self.nodes[host.name].put(keys / f"{owner}.key", f"keys/allowed-{server}/{owner}.key")

    def _host(self, server: str) -> Host:
        """The host of a server."""
        name = self.inventory.servers()[server].node
        return next(node.host for node in self.nodes.by_name.values() if node.host.node == name)

    def _start(self, servers: Sequence[str]) -> None:
        """Start servers, and wait until they serve."""
        hosts = {name: self._host(name) for name in servers}
        for name, host in hosts.items():
            node, spec = self.nodes[host.name], self.inventory.servers()[name]
            settings: dict[str, object] = {"server.listen": self._listen(host, host.spec.serve_port)}
            if self.state.keys:
                settings["security.secret_key_file"] = node.path(f"keys/{name}.key_secret")
                settings["security.allowed_clients"] = node.path(f"keys/allowed-{name}")
            tier = "cloud" if name == CLOUD else "edge"
            if tier == "cloud":
                settings |= {"database": node.path("cloud.db"), "create": True}
            else:
                settings |= {"cloud": self.state.endpoint(host.name, CLOUD), **NO_STANDBY}
                if self.state.keys:
                    settings["cloud_public_key"] = self.state.keys[CLOUD]
            settings |= {**spec.settings, **bring_files(node, name, spec)}
            node.start(name, tier_arguments(tier, settings))
        self._wait([(host, name) for name, host in hosts.items()])

    def _listen(self, host: Host, port: int) -> str:
        reached = host.address if self.state.keys else "127.0.0.1"
        if host.spec.kind != "namespace" and reached != "127.0.0.1":
            reached = "0.0.0.0"
        return f"tcp://{reached}:{port}"

    def _link(self, ways: Sequence[tuple[Host, str]]) -> None:
        """Start the links of hosts to servers, where the inventory has any, and wait until they are ready.

        A link that goes via another host leads to that host's own link, which is started first.
        """
        there = {(daemon.host, daemon.name) for daemon in self.state.daemons}
        gateways = [
            (self._peer(server, link), server)
            for host, server in ways
            if (link := self.inventory.link_to(host.node, server)) and link.via
        ]
        wanted = [
            (host, server, link)
            for host, server in dict.fromkeys((*gateways, *ways))
            if (link := self.inventory.link_to(host.node, server))
            and (host.name, f"link-to-{server}") not in there
        ]
        direct = [(host, server, link) for host, server, link in wanted if not link.via]
        onwards = [(host, server, link) for host, server, link in wanted if link.via]
        probes = {}
        for links in (direct, onwards):
            for host, server, link in links:
                peer = self._peer(server, link)
                if (host.name, peer.name) in self.pairs and peer.name not in probes:
                    probes[peer.name] = self._start_probe(peer)
            for host, server, link in links:
                # Not limited: the link represents the network, and must not use the node's share of the CPU.
                arguments = self._shaper(host, server, link, probes)
                self.nodes[host.name].start(f"link-to-{server}", arguments, limited=False)
            self._wait([(host, f"link-to-{server}") for host, server, _ in links])
        for name in probes:
            self.nodes[name].stop([_PROBE])

    def _peer(self, server: str, link: LinkSpec) -> Host:
        """Host to which a link's packets go."""
        return self.inventory.hosts_of(link.via)[0] if link.via else self._host(server)

    def _start_probe(self, host: Host) -> str:
        """Start the probe that measures links to a host; returns its endpoint."""
        arguments = ["-m", "nearsight.experiments.links.probe", "--listen", host.address]
        probe = self.nodes[host.name].start(_PROBE, arguments, limited=False)
        return str(probe.wait_ready(START_TIMEOUT_S)["endpoint"])

    def _shaper(self, host: Host, server: str, link: LinkSpec, probes: Mapping[str, str]) -> list[str]:
        gateways = {one.via for one in self.inventory.links if one.target == link.target}
        peer = self._peer(server, link).name
        upstream = self.state.endpoint(peer, server) if link.via else self.state.server(server).endpoint
        part = self.pairs.get((host.name, peer))
        return ShaperSettings(
            upstream,
            link.shape,
            stats=self.nodes[host.name].path(f"counters-to-{server}.json"),
            # Links of the same shape must not break at the same times.
            seed=xxhash.xxh32_intdigest(f"{self.inventory.seed} {host.name} {server}".encode()),
            listen=self._listen(host, 0) if host.node in gateways else "tcp://127.0.0.1:0",
            kernel=part or UNSHAPED,
            probe=probes[peer] if part else "",
        ).arguments()

    def _wait(self, daemons: Sequence[tuple[Host, str]]) -> None:
        """Wait until daemons serve, and add them to the state with their endpoints."""
        for host, name in daemons:
            announced = Process(self.nodes[host.name], name).wait_ready(START_TIMEOUT_S)
            endpoint = str(announced.get("endpoint", ""))
            if not endpoint:
                raise InternalError(f"{name} on {host.name} announced no endpoint")
            self.state.daemons.append(
                Daemon(
                    host.name,
                    name,
                    endpoint.replace("//0.0.0.0:", f"//{host.address}:"),
                    str(announced.get("metrics", "")),
                    announced.get("calibration"),
                )
            )
            self.state.save(self.folder)


def bring_files(node: Node, name: str, spec: ServerSpec) -> dict[str, str]:
    """Copy the files of a server or device to its node; returns their paths there, by setting."""
    found = {}
    with TemporaryDirectory() as scratch:
        for key, path in spec.files.items():
            source = path
            if key == DATABASE:  # the newest changes may be in its log, as a cloud may use it
                source = Path(scratch) / path.name
                copy_database(path, source, FORMAT)
            found[key] = node.put(source, f"files/{name}/{key}/{path.name}")
    return found
