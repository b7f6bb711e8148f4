"""Brings a testbed up: networks and nodes, the cloud, the links to it, the edges, the devices' links."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

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
        self._start_server(CLOUD, "cloud", inventory.cloud, {})
        self._wait([(inventory.hosts_of(inventory.cloud.node)[0], CLOUD)])
        self.on_stage(f"starting edges: {', '.join(inventory.edges) or 'none'}")
        edge_hosts = {name: inventory.hosts_of(edge.node)[0] for name, edge in inventory.edges.items()}
        self._link([(host, CLOUD) for host in edge_hosts.values()])
        for name, edge in inventory.edges.items():
            towards = {"cloud": self.state.endpoint(edge_hosts[name].name, CLOUD)}
            if self.state.keys:
                towards["cloud_public_key"] = self.state.keys[CLOUD]
            self._start_server(f"edge-{name}", "edge", edge, towards)
        self._wait([(host, f"edge-{name}") for name, host in edge_hosts.items()])
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

    def _link_of(self, host: Host, server: str) -> LinkSpec | None:
        return self.inventory.link(host.node, self.nodes[self._daemon(server).host].host.node)

    def _daemon(self, name: str) -> Daemon:
        return next(daemon for daemon in self.state.daemons if daemon.name == name)

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
        devices = {host for device in self.inventory.devices.values() for host in self._hosts(device)}
        servers = {CLOUD: self._hosts(self.inventory.cloud)[0]}
        servers |= {f"edge-{name}": self._hosts(edge)[0] for name, edge in self.inventory.edges.items()}
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

    def _hosts(self, spec: ServerSpec) -> tuple[Host, ...]:
        return self.inventory.hosts_of(spec.node)

    def _start_server(self, name: str, tier: str, spec: ServerSpec, towards: Mapping[str, str]) -> None:
        (host,) = self._hosts(spec)
        node = self.nodes[host.name]
        settings: dict[str, object] = {
            "server.listen": self._listen(host, host.spec.serve_port),
            **towards,
        }
        if self.state.keys:
            settings["security.secret_key_file"] = node.path(f"keys/{name}.key_secret")
            settings["security.allowed_clients"] = node.path(f"keys/allowed-{name}")
        if tier == "cloud":
            settings |= {"database": node.path("cloud.db"), "create": True}
        if tier == "edge":
            settings |= NO_STANDBY
        settings |= {**spec.settings, **bring_files(node, name, spec)}
        node.start(name, tier_arguments(tier, settings))

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
            if (link := self._link_of(host, server)) and link.via
        ]
        direct: list[tuple[Host, str, LinkSpec]] = []
        onwards: list[tuple[Host, str, LinkSpec]] = []
        for host, server in dict.fromkeys((*gateways, *ways)):
            link = self._link_of(host, server)
            if link is not None and (host.name, f"link-to-{server}") not in there:
                (onwards if link.via else direct).append((host, server, link))
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
        if link.via:
            return self.inventory.hosts_of(link.via)[0]
        return self.nodes[self._daemon(server).host].host

    def _start_probe(self, host: Host) -> str:
        """Start the probe that measures links to a host; returns its endpoint."""
        arguments = ["-m", "nearsight.experiments.links.probe", "--listen", host.address]
        probe = self.nodes[host.name].start(_PROBE, arguments, limited=False)
        return str(probe.wait_ready(START_TIMEOUT_S)["endpoint"])

    def _shaper(self, host: Host, server: str, link: LinkSpec, probes: Mapping[str, str]) -> list[str]:
        gateways = {one.via for one in self.inventory.links if one.target == link.target}
        upstream = (
            self.state.endpoint(self.inventory.hosts_of(link.via)[0].name, server)
            if link.via
            else self._daemon(server).endpoint
        )
        peer = self._peer(server, link).name
        part = self.pairs.get((host.name, peer))
        return ShaperSettings(
            upstream,
            link.shape,
            stats=self.nodes[host.name].path(f"counters-to-{server}.json"),
            seed=self.inventory.seed,
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
