"""A group of peer processes without recognition, in network namespaces on one bridge, or on loopback.

In namespaces, every node has its own address and shaped link, and encrypts, as nodes beyond loopback must.
Where namespaces are not allowed, the nodes share loopback without encryption or shaping.
"""

from __future__ import annotations

import json
import queue
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nearsight.common.errors import Unavailable
from nearsight.common.rpc.security import generate_keys
from nearsight.device.peers.settings import PeerSettings
from nearsight.experiments.framework.signals import termination_as_interrupt
from nearsight.experiments.links.kernel_links import Rate
from nearsight.experiments.links.namespaces import NamespaceNetwork, unavailable_reason
from nearsight.experiments.links.radio import RadioSettings
from nearsight.experiments.links.radio_network import RadioNetwork
from nearsight.experiments.rig.kademlia_node import KademliaSettings
from nearsight.experiments.rig.peer_process import Answer, Command
from nearsight.experiments.rig.processes import ManagedProcess, ProcessGroup

START_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 60.0
NAMESPACES, LOOPBACK, RADIO = "namespaces", "loopback", "radio"


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The composition of a group."""

    nodes: int
    """Number of nodes."""
    peers: PeerSettings
    """Settings of all nodes; addresses, ports and keys are filled in."""
    kademlia: KademliaSettings | None = None
    """Settings of the Kademlia node that each process runs as well; None: no such node."""
    rate_mbps: float = 0.0
    """Rate of each node's link, in namespaces [10⁶ bit/s]; 0: unshaped."""
    radio: RadioSettings | None = None
    """Wireless channel that all nodes share, instead of a switch; in namespaces only."""
    seed: int = 1
    """Seed of node ids."""


class PeerHandle:
    """Controls one process of a group."""

    def __init__(self, process: ManagedProcess) -> None:
        self.process = process
        self.name = process.name
        """Name of the process and of its device."""
        self.node_id = ""
        """Node id; empty before the node is started."""
        self._answers: queue.Queue[Answer | None] = queue.Queue()
        self._live: list[tuple[float, frozenset[str]]] = []
        self._ended = False
        self._changed = threading.Condition()
        threading.Thread(target=self._read_output, name=f"read-{self.name}", daemon=True).start()

    def send(self, command: Command) -> None:
        """Send a command to the process; `answer` returns the response."""
        self.process.write_line(json.dumps(command))

    def answer(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Answer:
        """Response to the oldest command that has none yet.

        Raises
        ------
        Unavailable
            If the process ended, does not respond in time, or reports an error.
        """
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise Unavailable(f"{self.name} did not answer within {timeout_s:g} s") from None
        if answer is None:
            raise self._end_error()
        if "error" in answer:
            raise Unavailable(f"{self.name}: {answer['error']}")
        return answer

    def ask(self, command: Command, timeout_s: float = ANSWER_TIMEOUT_S) -> Answer:
        """Send a command and wait for the response."""
        self.send(command)
        return self.answer(timeout_s)

    def wait_peers(
        self, wanted: Callable[[frozenset[str]], bool], deadline_s: float, since_s: float = 0.0
    ) -> float:
        """Wait until the set of visible peers satisfies a condition; returns the time of that change.

        Raises
        ------
        Unavailable
            If the process ended, or the condition is not satisfied by ``deadline_s``.
        """
        with self._changed:
            while True:
                found = [at_s for at_s, live in self._live if at_s >= since_s and wanted(live)]
                if found:
                    return found[0]
                if self._ended:
                    raise self._end_error()
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise Unavailable(
                        f"{self.name} sees {len(self._live[-1][1] if self._live else ())} peers"
                    )
                self._changed.wait(left_s)

    def _end_error(self) -> Unavailable:
        return Unavailable(f"{self.name} has ended: {self.process.last_lines()}")

    def _read_output(self) -> None:
        for line in self.process.output:
            if not line.endswith("\n"):
                break  # the process was killed while it wrote this line
            message = json.loads(line)
            if message.get("event") == "live":
                with self._changed:
                    self._live.append((float(message["at_s"]), frozenset(message["live"])))
                    self._changed.notify_all()
            else:
                self._answers.put(message)
        self._answers.put(None)
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class PeerGroup:
    """Starts a group of nodes; a context manager that always removes its processes and namespaces.

    It does so also if SIGTERM or SIGHUP ends the program; this needs the main thread.

    Parameters
    ----------
    folder : Path
        For logs and keys.
    plan : GroupPlan
        The composition. The processes start and then wait for the command ``start``.
    """

    def __init__(self, folder: Path, plan: GroupPlan) -> None:
        self.nodes: list[PeerHandle] = []
        """Nodes that were not killed, sorted by name."""
        self.place = LOOPBACK if unavailable_reason() else RADIO if plan.radio else NAMESPACES
        """"namespaces", "loopback", or "radio" for namespaces that share a wireless channel."""
        self.radio: RadioNetwork | None = None
        """The wireless channel, after the group was entered; None without one."""
        self._folder = folder
        self._plan = plan
        self._open = ExitStack()
        self._beacon_port = free_udp_port()

    def __enter__(self) -> PeerGroup:
        with ExitStack() as undo:
            undo.enter_context(termination_as_interrupt())
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True)
            places = self._places(undo)
            processes = undo.enter_context(ProcessGroup(self._folder))
            settings = [self._settings(number, address) for number, (address, _) in enumerate(places)]
            started = [
                processes.start(_name(number), self._arguments(number, one), capture=True, prefix=prefix)
                for number, (one, (_, prefix)) in enumerate(zip(settings, places, strict=True))
            ]
            for process in started:
                process.wait_ready(START_TIMEOUT_S)
            self.nodes = [PeerHandle(process) for process in started]
            self._open = undo.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._open.close()

    def start(self, nodes: Sequence[PeerHandle] | None = None) -> float:
        """Let nodes become peers of each other; returns the time when the last one started."""
        chosen = self.nodes if nodes is None else nodes
        answers = ask_all(chosen, {"do": "start"})
        for node, answer in zip(chosen, answers, strict=True):
            node.node_id = str(answer["node_id"])
        return max(float(answer["at_s"]) for answer in answers)

    def wait_all_see_all(self, nodes: Sequence[PeerHandle], timeout_s: float) -> list[float]:
        """Wait until each of these nodes sees all others of them; returns the time for each node."""
        deadline_s = time.monotonic() + timeout_s
        ids = frozenset(node.node_id for node in nodes)
        return [node.wait_peers((ids - {node.node_id}).issubset, deadline_s) for node in nodes]

    def kill(self, node: PeerHandle) -> float:
        """Kill a node, to simulate a power failure, and remove it from `nodes`; returns the time."""
        self.nodes.remove(node)
        at_s = time.monotonic()
        node.process.send_signal(signal.SIGKILL)
        return at_s

    def wait_gone(self, node_id: str, since_s: float, timeout_s: float) -> list[float]:
        """Wait until no node sees this one any more; returns the time for each node."""
        deadline_s = time.monotonic() + timeout_s
        return [node.wait_peers(lambda live: node_id not in live, deadline_s, since_s) for node in self.nodes]

    def _places(self, undo: ExitStack) -> list[tuple[str, tuple[str, ...]]]:
        """Address and command prefix of each node."""
        plan = self._plan
        if self.place == LOOPBACK:
            return [("127.0.0.1", ())] * plan.nodes
        network: NamespaceNetwork
        if plan.radio is not None:
            network = self.radio = RadioNetwork(plan.nodes, plan.radio, seed=plan.seed)
        else:
            rate = Rate(plan.rate_mbps, plan.rate_mbps) if plan.rate_mbps else None
            network = NamespaceNetwork(plan.nodes, rate=rate)
        return [(node.address, node.prefix) for node in undo.enter_context(network).nodes]

    def _settings(self, number: int, address: str) -> PeerSettings:
        changes: dict[str, Any] = {"enabled": True, "listen": f"tcp://{address}:0"}
        if self.place == LOOPBACK:
            changes["beacon_port"] = self._beacon_port
        else:
            allowed = self._folder / "allowed"
            allowed.mkdir(exist_ok=True)
            keys = generate_keys(self._folder / "keys", _name(number), overwrite=True)
            shutil.copy(keys.public_file, allowed / keys.public_file.name)
            changes |= {"secret_key_file": keys.secret_file, "allowed": allowed}
        return PeerSettings.model_validate(self._plan.peers.model_dump() | changes)

    def _arguments(self, number: int, settings: PeerSettings) -> list[str]:
        kademlia = self._plan.kademlia
        return [
            *("-m", "nearsight.experiments.rig.peer_process", "--settings", settings.model_dump_json()),
            *("--device-id", _name(number), "--seed", str(1000 * self._plan.seed + number)),
            *(("--kademlia", json.dumps(asdict(kademlia))) if kademlia is not None else ()),
        ]


def ask_all(
    nodes: Sequence[PeerHandle],
    command: Command | Callable[[int], Command],
    timeout_s: float = ANSWER_TIMEOUT_S,
) -> list[Answer]:
    """Send a command to all nodes at once and return the responses; a callable gives the command by index."""
    for number, node in enumerate(nodes):
        node.send(command(number) if callable(command) else command)
    return [node.answer(timeout_s) for node in nodes]


def free_udp_port() -> int:
    """A UDP port that is free now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _name(number: int) -> str:
    return f"node-{number + 1:02d}"
