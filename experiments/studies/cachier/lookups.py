"""Presence and lookups of many small devices: one measurement of figure 6.15, from start to last get.

As in the dissertation (6.8), all devices first discover each other and settle. They store the keys of their
traces, and then get the keys of their traces, each device one after another. The two stores are measured one
after the other with the same nodes, keys, times and links, but in separate processes. With k = 2, Kademlia
may continue to send pings without any requests, and these must not disturb the other store.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nearsight.device.peers.settings import PeerSettings
from nearsight.experiments.framework.experiment import Row
from nearsight.experiments.links.radio import RadioSettings
from nearsight.experiments.rig.kademlia_node import KademliaSettings
from nearsight.experiments.rig.peer_group import GroupPlan, PeerGroup, PeerHandle, ask_all
from nearsight.experiments.rig.peer_process import GET, KADEMLIA, NEARSIGHT, PUT

SYSTEMS = (NEARSIGHT, KADEMLIA)
SEES_ALL, GONE, IDLE, BEACONS = "sees all", "gone", "idle", "beacons"
PUT_PHASE, GET_PHASE, CHANNEL = "put phase", "get phase", "channel"
_START_MARGIN_S = 0.5
_PRESENCE_TIMEOUT_PERIODS, _LEAST_PRESENCE_TIMEOUT_S = 12.0, 60.0
_STARTED_AT_ONCE = 20
"""Number of nodes that are started at the same time; more would compete for the cores of one machine."""
_STARTED_AT_ONCE_ON_RADIO = 5
"""Fewer on the radio channel, which all pairs of nodes share while they connect to each other."""
_TRACE_MARGIN_S = 120.0
_COLUMNS: Mapping[str, str | int | float] = {
    "system": "",
    "kind": "",
    "node": "",
    "key": "",
    "late_ms": 0.0,
    "ms": 0.0,
    "outcome": "",
    "local": 0,
    "packets": 0,
    "bytes": 0,
    "seconds": 0.0,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of the comparison."""

    name: str
    """Name of its cells."""
    title: str
    """Title in tables and pictures."""
    nodes: int
    kademlia: KademliaSettings
    replicas: int = 2
    """Number of replicas of each key in our store."""
    late: int = 0
    """Number of devices that join after all keys were stored."""
    presence: bool = False
    """Whether to measure presence too: idle traffic, and detection of a killed node."""
    radio: RadioSettings | None = None
    """Wireless channel that all devices share; None: a switch. The channel loses frames, as set here, only
    after all devices have discovered each other."""
    others_keys: bool = False
    """Whether every key is stored by one device and requested by others, like devices that request what they
    do not have."""
    repetitions: int = 1
    """Number of repetitions, each with new requests."""


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """Size of the measurement."""

    peers: PeerSettings
    """Period of the beacons, the dissertation's departure timeout T, and timeouts of our store."""
    keys: int
    """Number of objects that devices may request."""
    requests: int
    """Gets of each device; popular keys may repeat."""
    put_rate: float
    get_rate: float
    """Puts, and gets, per second of all devices together."""
    idle_s: float
    """Length of the idle phase, which measures beacons alone."""
    settle_s: float
    """Waiting time after devices joined."""


EXPONENT = 0.8
"""Exponent of Zipf's law, by which keys are requested."""
VALUE_BYTES = 1024
RATE_MBPS = 54.0
"""Rate of each device's link."""
Trace = Sequence[tuple[float, str]]


def make_traces(
    plan: LookupPlan, nodes: int, rng: np.random.Generator, *, others_keys: bool = False
) -> tuple[list[Trace], list[Trace]]:
    """Generate the traces of puts and gets of each device: (second, key) each.

    A device stores every key of its trace once, then gets them in the order of its trace. With
    ``others_keys`` every key is stored once, and no device requests a key that it stored. A device sends at
    equal intervals, from a random moment of the first interval on. The rates are totals over all devices, so
    each device sends less often if there are more devices.
    """
    names = [f"object/{number:04d}" for number in range(plan.keys)]
    weights = np.arange(1, plan.keys + 1, dtype=float) ** -EXPONENT
    puts, gets = [], []
    for node in range(nodes):
        own = np.arange(plan.keys) % nodes == node if others_keys else np.zeros(plan.keys, bool)
        chances = np.where(own, 0.0, weights)
        asked = [names[one] for one in rng.choice(plan.keys, plan.requests, p=chances / chances.sum())]
        stored = names[node::nodes] if others_keys else list(dict.fromkeys(asked))
        puts.append(_at_intervals(stored, nodes / plan.put_rate, rng))
        gets.append(_at_intervals(asked, nodes / plan.get_rate, rng))
    return puts, gets


def _at_intervals(keys: Sequence[str], gap_s: float, rng: np.random.Generator) -> Trace:
    """One key per gap, at a random phase that is the same in all gaps of the trace."""
    phase_s = float(rng.random()) * gap_s
    return [(round(phase_s + number * gap_s, 4), key) for number, key in enumerate(keys)]


class LookupMeasurement:
    """One run of a group.

    Parameters
    ----------
    folder : Path
        Folder for logs.
    setting : Setting
        The devices and stores.
    plan : LookupPlan
        Size of the measurement.
    rng : numpy.random.Generator
        Draws the traces.
    seed : int
        Seed of the node ids.
    """

    def __init__(
        self, folder: Path, setting: Setting, plan: LookupPlan, rng: np.random.Generator, seed: int
    ) -> None:
        self._folder = folder
        self._setting = setting
        self._plan = plan
        self._puts, self._gets = make_traces(plan, setting.nodes, rng, others_keys=setting.others_keys)
        self._seed = seed
        self._place = ""
        self._rows: list[Row] = []

    def run(self, order: Sequence[str]) -> list[Row]:
        """Measure the stores in this order."""
        for system in order:
            self._measure(system)
        return self._rows

    def _measure(self, system: str) -> None:
        """Measure one store from the first beacon on; the other store is not running."""
        plan, setting = self._plan, self._setting
        presence = setting.presence and system == NEARSIGHT
        peers = plan.peers.model_copy(update={"replicas": setting.replicas})
        kademlia = setting.kademlia if system == KADEMLIA else None
        radio = replace(setting.radio, loss=0.0) if setting.radio is not None else None
        group_plan = GroupPlan(setting.nodes, peers, kademlia, RATE_MBPS, radio, self._seed)
        with PeerGroup(self._folder / system, group_plan) as group:
            self._place = group.place
            early = group.nodes[: setting.nodes - setting.late]
            step = _STARTED_AT_ONCE_ON_RADIO if setting.radio is not None else _STARTED_AT_ONCE
            for start in range(0, len(early), step):
                self._discover(system, group, early[start : start + step], early[: start + step])
            if presence:
                time.sleep(plan.settle_s)  # until all connections exist and replicas are synchronised
                self._idle(group)
            self._settle(system, early)
            if group.radio is not None and setting.radio is not None:
                group.radio.set_loss(setting.radio.loss)
            self._phase(system, PUT, early, self.puts_of_early())
            if setting.late:
                self._discover(system, group, group.nodes[len(early) :], group.nodes)
                self._settle(system, group.nodes[len(early) :])
            self._phase(system, GET, group.nodes, self._gets)
            if group.radio is not None:
                carried = group.radio.report()
                packets, late_ms = int(carried["sent"]), carried["late_p99_ms"]
                self._add_row(system=system, kind=CHANNEL, packets=packets, late_ms=late_ms)
            if presence:
                self._kill(group)

    def _settle(self, system: str, new: Sequence[PeerHandle]) -> None:
        if system == KADEMLIA:
            ask_all(new, {"do": "join"}, _TRACE_MARGIN_S)
        time.sleep(self._plan.settle_s)

    def puts_of_early(self) -> list[Trace]:
        """Puts of the devices that are present from the start; they also put the keys of later devices."""
        nodes = self._setting.nodes
        early, gap_s = nodes - self._setting.late, nodes / self._plan.put_rate
        stored: list[Trace] = []
        for number in range(early):
            whose = range(number, nodes, early)
            keys = list(dict.fromkeys(key for one in whose for _, key in self._puts[one]))
            first_s = self._puts[number][0][0]
            stored.append([(round(first_s + place * gap_s, 4), key) for place, key in enumerate(keys)])
        return stored

    def _discover(
        self, system: str, group: PeerGroup, new: Sequence[PeerHandle], nodes: Sequence[PeerHandle]
    ) -> None:
        began_s = group.start(new)
        timeout_s = max(_PRESENCE_TIMEOUT_PERIODS * self._plan.peers.period_s, _LEAST_PRESENCE_TIMEOUT_S)
        seen = group.wait_all_see_all(nodes, timeout_s)
        for node, at_s in zip(nodes, seen, strict=True):
            self._add_row(system=system, kind=SEES_ALL, node=node.name, ms=round(1000 * (at_s - began_s), 3))

    def _idle(self, group: PeerGroup) -> None:
        """Measure the traffic of presence alone."""
        before = ask_all(group.nodes, {"do": "counters"})
        time.sleep(self._plan.idle_s)
        after = ask_all(group.nodes, {"do": "counters"})
        for node, one, two in zip(group.nodes, before, after, strict=True):
            seconds = round(two["at_s"] - one["at_s"], 4)
            for kind, counter in ((IDLE, "wire"), (BEACONS, "beacons")):
                counted = _increase(one, two, counter)
                self._add_row(
                    kind=kind,
                    node=node.name,
                    seconds=seconds,
                    packets=counted["sent"] + counted["received"],
                    bytes=counted["sent_bytes"] + counted["received_bytes"],
                )

    def _phase(self, system: str, kind: str, nodes: Sequence[PeerHandle], traces: Sequence[Trace]) -> None:
        """Let all devices put or get the keys of their traces."""
        before = ask_all(nodes, {"do": "counters"})
        begin_s = time.monotonic() + _START_MARGIN_S

        def command(number: int) -> dict[str, Any]:
            return {
                "do": "trace",
                "store": system,
                "kind": kind,
                "requests": traces[number],
                "begin_s": begin_s,
                "value_bytes": VALUE_BYTES,
            }

        longest_s = max(trace[-1][0] for trace in traces)
        answers = ask_all(nodes, command, longest_s + _TRACE_MARGIN_S)
        after = ask_all(nodes, {"do": "counters"})
        for node, answer, one, two in zip(nodes, answers, before, after, strict=True):
            for row in answer["rows"]:
                self._add_row(system=system, kind=kind, node=node.name, **row)
            wire = _increase(one, two, "wire")
            self._add_row(
                system=system,
                kind=PUT_PHASE if kind == PUT else GET_PHASE,
                node=node.name,
                packets=wire["sent"],
                bytes=wire["sent_bytes"],
                seconds=round(two["at_s"] - one["at_s"], 4),
            )

    def _kill(self, group: PeerGroup) -> None:
        victim = group.nodes[-1]
        at_s = group.kill(victim)
        peers = self._plan.peers
        timeout_s = peers.departure_s + _PRESENCE_TIMEOUT_PERIODS * peers.period_s
        timeout_s = max(timeout_s, _LEAST_PRESENCE_TIMEOUT_S)
        for node, gone_s in zip(group.nodes, group.wait_gone(victim.node_id, at_s, timeout_s), strict=True):
            self._add_row(kind=GONE, node=node.name, ms=round(1000 * (gone_s - at_s), 3))

    def _add_row(self, **values: str | int | float) -> None:
        self._rows.append({"place": self._place, **_COLUMNS, **values})


def _increase(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> dict[str, int]:
    """Increase of the counters."""
    return {counter: after[name][counter] - count for counter, count in before[name].items()}
