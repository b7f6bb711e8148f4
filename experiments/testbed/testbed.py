"""A testbed from its inventory: bring it up, ask how it is, take it down and leave nothing behind.

Daemons outlive the command that started them. What ``up`` does: networks and nodes, then the cloud, the links
to it, the edges, the links of the devices. Devices themselves are started by ``run``.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from nearsight.common.errors import InternalError, NearsightError, SetupError, Unavailable
from nearsight.common.rpc.security import generate_keys
from nearsight.experiments.testbed.deployment import deploy, find_wheel
from nearsight.experiments.testbed.inventory import Host, Inventory, LinkSpec, ServerSpec
from nearsight.experiments.testbed.iproute import batch
from nearsight.experiments.testbed.kernel_links import Pairs, find_kernel, pairs_of, shape_hosts
from nearsight.experiments.testbed.node_network import (
    INTERFACE,
    hub_of,
    make_network,
    namespace_of,
    prefix_of,
    remove_network,
)
from nearsight.experiments.testbed.nodes import DaemonState, LocalShell, Node, NodePlace
from nearsight.experiments.testbed.processes import termination_as_interrupt
from nearsight.experiments.testbed.shaper import shaper_arguments
from nearsight.experiments.testbed.ssh_node import SshShell, agent_path, folder_path, venv_python
from nearsight.experiments.testbed.state import STATE_FILE, Daemon, TestbedState, load_state, locked

START_TIMEOUT_S = 120.0
CLOUD = "cloud"
_PROBE = "probe"
_PURGE = 'rm -rf "$1/venv" "$1/agent.py" "$1"/nearsight-*.whl; rmdir "$1"'
DEVICE_KEYS = "keys/allowed-devices"
EMPTY_CONFIG = "nearsight.toml"
OnStage = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HostStatus:
    """How a host is.

    Attributes
    ----------
    host : Host
        Which.
    daemons : mapping of str to DaemonState
        What runs there, or should.
    error : str
        Why it does not answer; empty if it does.
    """

    host: Host
    daemons: Mapping[str, DaemonState]
    error: str = ""


class Nodes:
    """All nodes of a testbed, reachable while this is open.

    Parameters
    ----------
    state : TestbedState
        Whose.
    folder : Path
        The testbed's, on this machine.
    """

    def __init__(self, state: TestbedState, folder: Path) -> None:
        self.by_name = {host.name: _node(state, host, folder) for host in state.inventory.hosts()}

    def __getitem__(self, host: str) -> Node:
        return self.by_name[host]

    def each(self, work: Callable[[Node], T], nodes: Iterable[Node] | None = None) -> list[T]:
        """Do something on several nodes at the same time; the first error is raised after all are done."""
        chosen = list(self.by_name.values() if nodes is None else nodes)
        with ThreadPoolExecutor(max_workers=16) as pool:
            return [future.result() for future in [pool.submit(work, node) for node in chosen]]

    def close(self) -> None:
        """End all connections."""
        for node in self.by_name.values():
            node.shell.close()


@contextmanager
def opened(state: TestbedState, folder: Path) -> Iterator[Nodes]:
    """The nodes of a testbed, for a block."""
    nodes = Nodes(state, folder)
    try:
        yield nodes
    finally:
        nodes.close()


def _node(state: TestbedState, host: Host, folder: Path) -> Node:
    group = f"nearsight-{state.testbed_id}-{host.name}"
    if host.spec.kind == "ssh":
        place = NodePlace(folder_path(host, state.testbed_id), venv_python(host), group=group)
        return Node(host, SshShell(host, state.testbed_id), place, agent_path(host))
    prefix = prefix_of(state.testbed_id, host) if host.spec.kind == "namespace" else ()
    place = NodePlace(str(folder.resolve() / "nodes" / host.name), sys.executable, prefix, group)
    return Node(host, LocalShell(), place)


def bring_up(
    inventory: Inventory, folder: Path, *, on_stage: OnStage = lambda _stage: None, keep: bool = False
) -> TestbedState:
    """Make a testbed. If that fails or is interrupted, it is taken down again.

    Parameters
    ----------
    inventory : Inventory
        What to make.
    folder : Path
        Where its state, keys and logs go.
    on_stage : callable
        Told in words what is done next.
    keep : bool
        Leave what a failure left, to look at it; `take_down` removes it.

    Raises
    ------
    SetupError
        If one is up in this folder, or something could not be started.
    """
    with locked(folder), termination_as_interrupt():
        if load_state(folder) is not None:
            raise SetupError(
                f"the testbed in {folder} is up, or what is left of it",
                advice="`nearsight testbed down` with this inventory removes it",
            )
        shutil.rmtree(folder / "nodes", ignore_errors=True)
        state = TestbedState(inventory)
        state.save(folder)
        try:
            with opened(state, folder) as nodes:
                _Builder(state, folder, nodes, on_stage).build()
        except BaseException:  # Ctrl-C as well
            if not keep:
                # What cannot be removed now is still in the state; the first error says why.
                with suppress(Unavailable):
                    _remove(state, folder, purge=False)
            raise
        return state


class _Builder:
    """The steps of `bring_up`."""

    def __init__(self, state: TestbedState, folder: Path, nodes: Nodes, on_stage: OnStage) -> None:
        self._state = state
        self._inventory = state.inventory
        self._folder = folder
        self._nodes = nodes
        self._on_stage = on_stage
        self._pairs: Pairs = {}

    def build(self) -> None:
        inventory = self._inventory
        isolated = [host for host in inventory.hosts() if host.spec.kind == "namespace"]
        if isolated:
            self._on_stage(f"a network of {len(isolated)} namespaces")
            make_network(self._state.testbed_id, isolated)
            self._pairs = self._shape(isolated)
        self._on_stage(f"{len(self._nodes.by_name)} nodes")
        prepared = self._nodes.each(lambda node: (node.host.name, node.prepare()))
        self._state.machines = {
            name: {key: facts[key] for key in ("machine", "cores", "system", "python")}
            for name, facts in prepared
        }
        self._state.prepared = True
        self._state.save(self._folder)
        self._install()
        self._make_keys()
        self._nodes.each(lambda node: node.put_text("# all settings are given at the start\n", EMPTY_CONFIG))
        self._on_stage("the cloud")
        self._start_server(CLOUD, "cloud", inventory.cloud, {})
        self._wait([(inventory.hosts_of(inventory.cloud.node)[0], CLOUD)])
        self._on_stage(f"edges: {', '.join(inventory.edges) or 'none'}")
        edge_hosts = {name: inventory.hosts_of(edge.node)[0] for name, edge in inventory.edges.items()}
        self._link(self._with_gateways([(host, CLOUD) for host in edge_hosts.values()]))
        for name, edge in inventory.edges.items():
            towards = {"cloud": self._state.endpoint(edge_hosts[name].name, CLOUD)}
            if self._state.keys:
                towards["cloud_public_key"] = self._state.keys[CLOUD]
            self._start_server(f"edge-{name}", "edge", edge, towards)
        self._wait([(host, f"edge-{name}") for name, host in edge_hosts.items()])
        self._on_stage("the devices' links")
        self._link(self._with_gateways(list(self._device_links())))
        self._state.complete = True
        self._state.save(self._folder)

    def _device_links(self) -> Iterator[tuple[Host, str]]:
        for device in self._inventory.devices.values():
            for host in self._inventory.hosts_of(device.node):
                yield host, CLOUD
                if edge := self._inventory.edge_of(device):
                    yield host, f"edge-{edge}"

    def _shape(self, isolated: Sequence[Host]) -> Pairs:
        """Let the kernel do its part of the links between namespaces."""
        testbed_id = self._state.testbed_id
        kernel = find_kernel(lambda commands: batch("tc", commands, hub_of(testbed_id)))
        pairs = pairs_of(self._inventory, kernel)
        shape_hosts(
            isolated,
            pairs,
            lambda host, commands: batch("tc", commands, namespace_of(testbed_id, host)),
            INTERFACE,
        )
        return pairs

    def _with_gateways(self, ways: Sequence[tuple[Host, str]]) -> list[tuple[Host, str]]:
        """The ways, and before them those of the hosts through which they go."""
        gateways = [
            (self._inventory.hosts_of(link.via)[0], server)
            for host, server in ways
            for link in [self._link_of(host, server)]
            if link is not None and link.via
        ]
        return [*gateways, *ways]

    def _link_of(self, host: Host, server: str) -> LinkSpec | None:
        return self._inventory.link(host.node, self._nodes[self._daemon(server).host].host.node)

    def _daemon(self, name: str) -> Daemon:
        return next(daemon for daemon in self._state.daemons if daemon.name == name)

    def _install(self) -> None:
        remote = [node for node in self._nodes.by_name.values() if node.host.spec.kind == "ssh"]
        if remote:
            self._on_stage("the package for nodes over SSH")
            wheel = find_wheel(self._inventory.wheel, self._folder)
            self._on_stage(f"{wheel.name} on {', '.join(node.host.name for node in remote)}")
            self._nodes.each(lambda node: deploy(node, wheel), remote)

    def _make_keys(self) -> None:
        if not self._inventory.needs_keys:
            return
        devices = {host for device in self._inventory.devices.values() for host in self._hosts(device)}
        servers = {CLOUD: self._hosts(self._inventory.cloud)[0]}
        servers |= {f"edge-{name}": self._hosts(edge)[0] for name, edge in self._inventory.edges.items()}
        owners = {**servers, **{f"device-{host.name}": host for host in devices}}
        keys = self._folder / "keys"
        shutil.rmtree(keys, ignore_errors=True)
        for owner, host in owners.items():
            files = generate_keys(keys, owner)
            self._state.keys[owner] = files.public_key
            self._nodes[host.name].put(files.secret_file, f"keys/{owner}.key_secret")
        if any(device.shares for device in self._inventory.devices.values()):
            for host in devices:
                for other in devices:
                    owner = f"device-{other.name}"
                    self._nodes[host.name].put(keys / f"{owner}.key", f"{DEVICE_KEYS}/{owner}.key")
        for server, host in servers.items():
            for owner in owners:
                self._nodes[host.name].put(keys / f"{owner}.key", f"keys/allowed-{server}/{owner}.key")

    def _hosts(self, spec: ServerSpec) -> tuple[Host, ...]:
        return self._inventory.hosts_of(spec.node)

    def _start_server(self, name: str, tier: str, spec: ServerSpec, towards: Mapping[str, str]) -> None:
        (host,) = self._hosts(spec)
        node = self._nodes[host.name]
        settings: dict[str, object] = {
            "server.listen": self._listen(host, host.spec.serve_port),
            "metrics_listen": "",
            **towards,
        }
        if self._state.keys:
            settings["security.secret_key_file"] = node.path(f"keys/{name}.key_secret")
            settings["security.allowed_clients"] = node.path(f"keys/allowed-{name}")
        if tier == "cloud":
            settings["database"] = node.path("cloud.db")
        settings |= spec.settings
        settings |= {key: node.put(path, f"files/{name}-{path.name}") for key, path in spec.files.items()}
        node.start(
            name, ["-m", "nearsight", tier, "--config", node.path(EMPTY_CONFIG), *assignments(settings)]
        )

    def _listen(self, host: Host, port: int) -> str:
        reached = host.address if self._state.keys else "127.0.0.1"
        if host.spec.kind != "namespace" and reached != "127.0.0.1":
            reached = "0.0.0.0"
        return f"tcp://{reached}:{port}"

    def _link(self, ways: Sequence[tuple[Host, str]]) -> None:
        """Start the links of hosts to servers, where the inventory has any, and wait until they are true.

        A link that goes via another host leads to that host's own link, which has to be there before.
        """
        there = {(daemon.host, daemon.name) for daemon in self._state.daemons}
        direct: list[tuple[Host, str, LinkSpec]] = []
        onwards: list[tuple[Host, str, LinkSpec]] = []
        for host, server in dict.fromkeys(ways):
            link = self._link_of(host, server)
            if link is not None and (host.name, f"link-to-{server}") not in there:
                (onwards if link.via else direct).append((host, server, link))
        probes = {}
        for links in (direct, onwards):
            for host, server, link in links:
                peer = self._peer(server, link)
                if (host.name, peer.name) in self._pairs and peer.name not in probes:
                    probes[peer.name] = self._start_probe(peer)
            for host, server, link in links:
                # It stands for the network, and takes nothing from the node's processor.
                arguments = self._shaper(host, server, link, probes)
                self._nodes[host.name].start(f"link-to-{server}", arguments, limited=False)
            self._wait([(host, f"link-to-{server}") for host, server, _ in links])
        for name in probes:
            self._nodes[name].stop([_PROBE])

    def _peer(self, server: str, link: LinkSpec) -> Host:
        """Where a link's packets go."""
        if link.via:
            return self._inventory.hosts_of(link.via)[0]
        return self._nodes[self._daemon(server).host].host

    def _start_probe(self, host: Host) -> str:
        """What links to a host are measured with, until they are there."""
        node = self._nodes[host.name]
        node.start(
            _PROBE, ["-m", "nearsight.experiments.testbed.probe", "--listen", host.address], limited=False
        )
        announced = node.wait_ready([_PROBE], START_TIMEOUT_S)[_PROBE].announced
        return str(announced["endpoint"]) if announced else ""

    def _shaper(self, host: Host, server: str, link: LinkSpec, probes: Mapping[str, str]) -> list[str]:
        gateways = {one.via for one in self._inventory.links if one.target == link.target}
        upstream = (
            self._state.endpoint(self._inventory.hosts_of(link.via)[0].name, server)
            if link.via
            else self._daemon(server).endpoint
        )
        peer = self._peer(server, link).name
        part = self._pairs.get((host.name, peer))
        kernel = {"kernel": json.dumps(asdict(part)), "probe": probes[peer]} if part else {}
        return shaper_arguments(
            upstream,
            link.shape,
            seed=self._inventory.seed,
            stats=self._nodes[host.name].path(f"counters-to-{server}.json"),
            listen=self._listen(host, 0) if host.node in gateways else "tcp://127.0.0.1:0",
            **kernel,
        )

    def _wait(self, daemons: Sequence[tuple[Host, str]]) -> None:
        """Wait until daemons serve, and note where."""
        for host, name in daemons:
            state = self._nodes[host.name].wait_ready([name], START_TIMEOUT_S)[name]
            announced: Mapping[str, Any] = state.announced or {}
            endpoint = str(announced.get("endpoint", ""))
            if not endpoint:
                raise InternalError(f"{name} on {host.name} announced no endpoint")
            self._state.daemons.append(
                Daemon(
                    host.name,
                    name,
                    endpoint.replace("//0.0.0.0:", f"//{host.address}:"),
                    str(announced.get("metrics", "")),
                    announced.get("calibration"),
                )
            )
            self._state.save(self._folder)


def assignments(settings: Mapping[str, object]) -> list[str]:
    """Settings as arguments of a daemon."""
    return [part for key, value in settings.items() for part in ("--set", f"{key}={_text(value)}")]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def status(state: TestbedState, folder: Path) -> tuple[HostStatus, ...]:
    """Ask every node what runs there; a node that does not answer is part of the answer."""

    def ask(node: Node) -> HostStatus:
        try:
            return HostStatus(node.host, node.states())
        except NearsightError as error:
            return HostStatus(node.host, {}, str(error))

    with opened(state, folder) as nodes:
        return tuple(nodes.each(ask))


def take_down(folder: Path, *, purge: bool = False) -> bool:
    """Stop and remove a testbed, also what a crash left of one; logs stay in the folder.

    Parameters
    ----------
    folder : Path
        The testbed's.
    purge : bool
        Remove what was installed on SSH nodes as well, and the logs.

    Returns
    -------
    bool
        Whether there was one.

    Raises
    ------
    Unavailable
        If a node cannot be reached; everything else is removed, and the next call tries again.
    """
    with locked(folder):
        state = load_state(folder)
        if state is None:
            return False
        _remove(state, folder, purge=purge)
        return True


def _remove(state: TestbedState, folder: Path, *, purge: bool) -> None:
    # A second Ctrl-C must not leave half of it.
    before = signal.getsignal(signal.SIGINT)
    main = _in_main_thread()
    if main:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with opened(state, folder) as nodes:
            failures = [text for text in nodes.each(lambda node: _clear(node, folder, purge)) if text]
        remove_network(state.testbed_id)
    finally:
        if main:
            signal.signal(signal.SIGINT, before)
    if failures and state.prepared:
        raise Unavailable(
            "; ".join(failures), advice="run `nearsight testbed down` again when the node is back"
        )
    (folder / STATE_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / "keys", ignore_errors=True)
    if purge:
        shutil.rmtree(folder, ignore_errors=True)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _clear(node: Node, folder: Path, purge: bool) -> str:
    """Stop and remove everything of one node; why it could not be done, or empty."""
    try:
        names = list(node.states())
        node.stop([name for name in names if not name.startswith(("cloud", "edge-", "link-"))], grace_s=2.0)
        node.stop()
        if node.host.spec.kind == "ssh":
            collect_logs(node, names, folder)
        node.shell.run(["rm", "-rf", node.path("keys")])
        node.remove(files=node.host.spec.kind == "ssh")
        if purge and node.host.spec.kind == "ssh":
            node.shell.run(["sh", "-c", _PURGE, "sh", node.host.spec.folder])
    except (Unavailable, SetupError) as error:
        return str(error)
    return ""


def collect_logs(node: Node, names: Sequence[str], folder: Path) -> None:
    """Bring the logs of a node here, into the testbed's folder."""
    for name in names:
        node.shell.get(node.path(f"{name}.log"), folder / "nodes" / node.host.name / f"{name}.log")
