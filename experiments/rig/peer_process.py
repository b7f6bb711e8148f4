"""One peer without recognition: a light process with one `PeerNode`, controlled by its parent.

``python -m nearsight.experiments.rig.peer_process --settings JSON`` reads commands from standard input and
writes responses to standard output, one JSON object per line. It imports neither OpenCV nor FAISS, so that
dozens of processes fit on one machine. With ``--kademlia``, a node of that package runs in the same process,
on the UDP port with the number of the peer's port. It finds its first neighbours through the same discovery.

==========  ====================================================================================
command     effect
==========  ====================================================================================
start       become a peer; from now on every change of the visible peers is reported as an event
join        let the Kademlia node join through the peers that are known now
trace       put or get keys at given times, sequentially, in one of the two stores
fill        put keys as fast as the store accepts them: a range of numbers, or named keys
check       read keys back and compare their values; keys as for fill
merge       add counts to a counter key, a number of times
counts      read a counter key
held        the keys that this node stores
counters    messages sent and received so far
==========  ====================================================================================

Times are those of the monotonic clock, which all processes of one machine share.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import xxhash

from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.errors import InvalidArgument, NearsightError
from nearsight.common.operation.daemon import write_announcement
from nearsight.device.peers.node import PeerNode
from nearsight.device.peers.presence.addresses import host_and_port
from nearsight.device.peers.presence.identity import shown
from nearsight.device.peers.settings import PeerSettings
from nearsight.experiments.rig.kademlia_node import KademliaNode, KademliaSettings

NEARSIGHT, KADEMLIA = "nearsight", "kademlia"
PUT, GET = "put", "get"
OK, MISSING, WRONG, FAILED = "ok", "missing", "wrong", "failed"
IN_FLIGHT = 32
"""Maximum number of calls that ``fill`` and ``check`` keep open at once."""
_JOIN_TIMEOUT_S = 60.0
_EXIT_GRACE_S = 10.0
_LOOPBACK = "lo"

Command = Mapping[str, Any]
Answer = dict[str, Any]


def value_of(key: str, size_bytes: int) -> bytes:
    """The value for a key. It depends on the key alone, so any process can detect a wrong value."""
    seed = xxhash.xxh3_128_digest(key.encode())
    return (seed * (size_bytes // len(seed) + 1))[:size_bytes]


def key_name(number: int) -> str:
    """The key with this number in ``fill`` and ``check``."""
    return f"key/{number:06d}"


class PeerProcess:
    """Executes commands, one after another.

    Parameters
    ----------
    node : PeerNode
        Not started.
    kademlia : KademliaNode, optional
        Not started.
    send : callable
        Receives responses and events; called from several threads.
    """

    def __init__(self, node: PeerNode, kademlia: KademliaNode | None, send: Callable[[Answer], None]) -> None:
        self._node = node
        self._kademlia = kademlia
        self._send = send

    def execute(self, command: Command) -> None:
        """Execute one command and send its response, or an error response if the node raises an error."""
        name = str(command.get("do"))
        try:
            self._send({"did": name, **self._executed(name, command)})
        except NearsightError as error:
            self._send({"did": name, "error": str(error)})

    def stop(self, grace_s: float) -> None:
        """Leave the group and stop the nodes."""
        if self._kademlia is not None:
            self._kademlia.stop()
        self._node.stop(grace_s)

    def _executed(self, name: str, command: Command) -> Answer:
        node, store = self._node, self._node.store
        match name:
            case "start":
                return self._start()
            case "join":
                neighbours = [host_and_port(peer.endpoint) for peer in node.peers()]
                return {"neighbours": self._kademlia_node().join(neighbours, _JOIN_TIMEOUT_S)}
            case "trace":
                return self._trace(command)
            case "fill":
                size = int(command["value_bytes"])
                return _failed_keys(command, lambda key: store.put(key, value_of(key, size)), lambda *_: OK)
            case "check":
                size = int(command["value_bytes"])
                return _failed_keys(command, store.get, lambda key, value: outcome_of(key, value, size))
            case "merge":
                return self._merge(command)
            case "counts":
                return {"counts": dict(store.counts(str(command["key"])).result())}
            case "held":
                return {"keys": sorted(node.held_keys())}
            case "counters":
                beacons = asdict(node.beacon_counters)
                return {"at_s": time.monotonic(), "wire": interface_counters(), "beacons": beacons}
            case _:
                raise InvalidArgument(f"there is no command {name!r}")

    def _start(self) -> Answer:
        self._node.watch(self._changed)
        at_s = time.monotonic()
        self._node.start()
        if self._kademlia is not None:
            self._kademlia.start(*host_and_port(self._node.endpoint))
        return {"node_id": shown(self._node.node_id), "at_s": at_s}

    def _changed(self) -> None:
        live = [shown(peer.node_id) for peer in self._node.peers()]
        self._send({"event": "live", "at_s": time.monotonic(), "live": live})

    def _trace(self, command: Command) -> Answer:
        requests = [(float(at_s), str(key)) for at_s, key in command["requests"]]
        store, kind, size = str(command["store"]), str(command["kind"]), int(command["value_bytes"])
        begin_s = max(float(command["begin_s"]), time.monotonic())
        if store == KADEMLIA:
            whole = begin_s - time.monotonic() + requests[-1][0] + 30.0 * len(requests)
            node = self._kademlia_node()
            return {"rows": node.run(_kademlia_trace(node, kind, requests, begin_s, size), whole)}
        return {"rows": [self._timed_call(kind, key, begin_s + at_s, size) for at_s, key in requests]}

    def _timed_call(self, kind: str, key: str, due_s: float, size_bytes: int) -> Answer:
        time.sleep(max(0.0, due_s - time.monotonic()))
        began_s = time.monotonic()
        outcome, before = OK, time.perf_counter()
        try:
            if kind == PUT:
                self._node.store.put(key, value_of(key, size_bytes)).result()
                after = time.perf_counter()
            else:
                value = self._node.store.get_blocking(key)
                after = time.perf_counter()
                outcome = outcome_of(key, value, size_bytes)
        except NearsightError as error:
            after, outcome = time.perf_counter(), type(error).__name__
        # Computed after the call: before it, the lookup would warm the caches of the timed call.
        local = kind == GET and self._holds(key)
        return _trace_row(key, began_s - due_s, after - before, outcome, local=local)

    def _holds(self, key: str) -> bool:
        """Whether ``get`` answers from this node's own storage, without a message."""
        replicas = self._node.route.nodes_for(key, self._node.settings.replicas)
        return self._node.node_id in replicas and self._node.synchronised()

    def _merge(self, command: Command) -> Answer:
        counts = {str(name): int(count) for name, count in command["counts"].items()}
        postponed = 0
        for _ in range(int(command["times"])):
            try:
                self._node.store.merge(str(command["key"]), counts).result()
            except NearsightError:
                postponed += 1  # the node keeps the change and retries it
        return {"postponed": postponed}

    def _kademlia_node(self) -> KademliaNode:
        if self._kademlia is None:
            raise InvalidArgument("this process has no Kademlia node", advice="start it with --kademlia")
        return self._kademlia


def interface_counters() -> dict[str, int]:
    """The kernel's counters of all interfaces but loopback: Ethernet frames without preamble and checksum.

    In its own network namespace, a process sees only its own traffic. Zeros if the system has no counters.
    The names are those of `BeaconCounts`.
    """
    try:
        counters = psutil.net_io_counters(pernic=True, nowrap=False)
    except OSError:
        counters = {}
    wired = [counter for interface, counter in counters.items() if interface != _LOOPBACK]
    return {
        "sent": sum(counter.packets_sent for counter in wired),
        "sent_bytes": sum(counter.bytes_sent for counter in wired),
        "received": sum(counter.packets_recv for counter in wired),
        "received_bytes": sum(counter.bytes_recv for counter in wired),
    }


def outcome_of(key: str, value: bytes | None, size_bytes: int) -> str:
    """Outcome of a get."""
    if value is None:
        return MISSING
    return OK if value == value_of(key, size_bytes) else WRONG


def _trace_row(key: str, late_s: float, took_s: float, outcome: str, *, local: bool) -> Answer:
    """One put or get of a trace.

    Parameters
    ----------
    key : str
        The key.
    late_s : float
        Delay of the start against the plan [s]; not part of ``took_s``.
    took_s : float
        From the call to the result [s].
    outcome : str
        "ok", "missing", "wrong", or the name of an error.
    local : bool
        Whether this node answered a get from its own storage, without a message.
    """
    late_ms, ms = round(late_s * 1000, 4), round(took_s * 1000, 4)
    return {"key": key, "late_ms": late_ms, "ms": ms, "outcome": outcome, "local": int(local)}


async def _kademlia_trace(
    node: KademliaNode, kind: str, requests: Sequence[tuple[float, str]], begin_s: float, size_bytes: int
) -> list[Answer]:
    import asyncio  # noqa: PLC0415  only needed with Kademlia

    rows = []
    for at_s, key in requests:
        due_s = begin_s + at_s
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        began_s = time.monotonic()
        before = time.perf_counter()
        if kind == PUT:
            outcome = OK if await node.put(key, value_of(key, size_bytes)) else FAILED
            after = time.perf_counter()
        else:
            value = await node.get(key)
            after = time.perf_counter()
            outcome = outcome_of(key, value, size_bytes)
        # computed after the call, as in `_timed_call`; a get of this package stores nothing here
        local = kind == GET and node.holds(key)
        rows.append(_trace_row(key, began_s - due_s, after - before, outcome, local=local))
    return rows


def _failed_keys(
    command: Command, call: Callable[[str], Future[Any]], judge: Callable[[str, Any], str]
) -> Answer:
    """Call the store for each key of a command, at most `IN_FLIGHT` at once.

    Returns the keys whose calls failed, with their outcomes.
    """
    named = [str(key) for key in command.get("keys", ())]
    keys = named or [key_name(number) for number in range(int(command["first"]), int(command["last"]))]
    calls = ((key, call(key)) for key in keys)
    open_calls = deque(islice(calls, IN_FLIGHT))
    failed = []
    while open_calls:
        key, future = open_calls.popleft()
        try:
            outcome = judge(key, future.result())
        except NearsightError as error:
            outcome = type(error).__name__
        if outcome != OK:
            failed.append([key, outcome])
        open_calls.extend(islice(calls, 1))
    return {"failed": failed}


def main() -> None:
    """Run until standard input ends, then leave: hand over entries."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--settings", required=True, help="PeerSettings as JSON")
    parser.add_argument("--device-id", required=True)
    parser.add_argument("--seed", type=int, required=True, help="seed of node id and incarnation")
    parser.add_argument("--kademlia", default="", help='{"k": 20, "alpha": 3}')
    parser.add_argument("--announce", type=Path)
    arguments = parser.parse_args()
    settings = PeerSettings.model_validate_json(arguments.settings)
    node = PeerNode(
        settings, device_id=arguments.device_id, clock=SYSTEM_CLOCK, rng=random.Random(arguments.seed)
    )
    kademlia = (
        KademliaNode(arguments.device_id, KademliaSettings(**json.loads(arguments.kademlia)))
        if arguments.kademlia
        else None
    )
    writing = threading.Lock()

    def send(message: Answer) -> None:
        line = json.dumps(message) + "\n"
        with writing:
            sys.stdout.write(line)
            sys.stdout.flush()

    process = PeerProcess(node, kademlia, send)
    if arguments.announce is not None:
        write_announcement(arguments.announce, "peer")
    for line in sys.stdin:
        process.execute(json.loads(line))
    process.stop(_EXIT_GRACE_S)


if __name__ == "__main__":
    main()
