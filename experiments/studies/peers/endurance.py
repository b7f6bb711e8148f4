"""Durability of keys and counters in a group whose devices are killed one after another.

Every device stores its part of the keys. Then devices are killed as if by a power cut. Before each further
kill, the remaining devices have detected the last one and restored its replicas. While a device is killed,
all others increment the same counters. After every failure all keys are read back, and the counters must be
exact: no increment lost, none counted twice.

The time of the hand-over begins when all devices have detected the failure; without a failure, when it is
first looked for. It ends when every key is found on enough devices: an upper bound, because the increments,
and every look at all devices, take time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nearsight.common.errors import Unavailable
from nearsight.device.peers.settings import PeerSettings
from nearsight.experiments.framework import numbers
from nearsight.experiments.framework.experiment import Row, StoredRow
from nearsight.experiments.rig.peer_group import GroupPlan, PeerGroup, ask_all
from nearsight.experiments.rig.peer_process import MISSING, WRONG

UNREADABLE, REPEATED, MISCOUNTED = "unreadable keys", "repeated reads", "counters off by"
HANDED_OVER, GONE, POSTPONED = "handed over", "gone", "postponed merges"
REPLICAS = 2
"""The r of the design: number of replicas of each key."""
_VALUE_BYTES = 128
_COUNTER_KEY = "popularity/museum"
_POLL_S = 0.25
_ATTEMPTS = 3
_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class EndurancePlan:
    """Size of the test."""

    nodes: int
    survivors: int
    """Number of devices at the beginning and at the end."""
    keys: int
    merges: int
    """Increments of the counters by each device during each failure."""
    period_s: float
    departure_s: float
    """Period of the beacons, and the dissertation's departure timeout T."""


class Endurance:
    """One run.

    Parameters
    ----------
    folder : Path
        Folder for logs.
    plan : EndurancePlan
        Size of the test.
    rng : numpy.random.Generator
        Chooses the devices that are killed.
    seed : int
        Seed of the node ids.
    """

    def __init__(self, folder: Path, plan: EndurancePlan, rng: np.random.Generator, seed: int) -> None:
        self._plan = plan
        self._rng = rng
        self._expected: Counter[str] = Counter()
        peers = PeerSettings(
            period_s=plan.period_s,
            departure_s=plan.departure_s,
            replicas=REPLICAS,
            max_keys=plan.keys + 100,
        )
        self._group = PeerGroup(folder, GroupPlan(plan.nodes, peers, seed=seed))

    def run(self) -> list[Row]:
        """Kill devices until only the survivors are left; return rows of measurements after every failure."""
        plan, rows = self._plan, []
        with self._group as group:
            group.start()
            group.wait_all_see_all(group.nodes, _TIMEOUT_S)
            if failed := self._retried("fill", self._on_parts("fill", 0)):
                raise Unavailable(f"{len(failed)} of {plan.keys} puts failed, the first with {failed[0][1]}")
            rows += self._measure_after(0, self._merge_all(), None)
            for death in range(1, plan.nodes - plan.survivors + 1):
                victim = group.nodes[int(self._rng.integers(len(group.nodes)))]
                at_s = group.kill(victim)
                postponed = self._merge_all()
                gone_s = max(group.wait_gone(victim.node_id, at_s, _TIMEOUT_S))
                rows.append(self._row(death, GONE, gone_s - at_s))
                rows += self._measure_after(death, postponed, gone_s)
            return [{"place": group.place, **row} for row in rows]

    def _on_parts(self, what: str, shift: int) -> list[tuple[str, str]]:
        """Let every device put ("fill") or read ("check") its part of the keys.

        ``shift`` rotates the assignment of parts to devices. Returns key and outcome of each failed
        operation.
        """
        nodes = self._group.nodes
        bounds = np.linspace(0, self._plan.keys, len(nodes) + 1).astype(int).tolist()

        def command(number: int) -> Mapping[str, object]:
            part = (number + shift) % len(nodes)
            span = {"first": bounds[part], "last": bounds[part + 1]}
            return {"do": what, "value_bytes": _VALUE_BYTES, **span}

        return _failed(ask_all(nodes, command, _TIMEOUT_S))

    def _retried(self, what: str, failed: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Let the first device retry failed operations a few times; return those that still fail."""
        for _ in range(_ATTEMPTS):
            if failed:
                again = {"do": what, "value_bytes": _VALUE_BYTES, "keys": [key for key, _ in failed]}
                failed = _failed([self._group.nodes[0].ask(again, _TIMEOUT_S)])
        return failed

    def _merge_all(self) -> int:
        """Let every device increment the same counters; return the number of postponed increments."""

        def command(number: int) -> Mapping[str, object]:
            counts = {"all": 1, f"object/{number % 7}": number + 1}
            return {"do": "merge", "key": _COUNTER_KEY, "counts": counts, "times": self._plan.merges}

        answers = ask_all(self._group.nodes, command, _TIMEOUT_S)
        for number in range(len(answers)):
            self._expected["all"] += self._plan.merges
            self._expected[f"object/{number % 7}"] += (number + 1) * self._plan.merges
        return sum(int(answer["postponed"]) for answer in answers)

    def _measure_after(self, death: int, postponed: int, gone_s: float | None) -> list[Row]:
        """Wait for the hand-over, then read back keys and counters.

        ``gone_s`` is the moment when all devices had detected the failure; None: there was none.
        """
        handed_over_s = self._wait_complete(time.monotonic() if gone_s is None else gone_s)
        repeated, unreadable = self._read_back()
        found = {
            HANDED_OVER: handed_over_s,
            REPEATED: repeated,
            UNREADABLE: unreadable,
            MISCOUNTED: self._miscounted(),
            POSTPONED: postponed,
        }
        return [self._row(death, kind, value) for kind, value in found.items()]

    def _row(self, death: int, kind: str, value: float) -> Row:
        return {"death": death, "left": len(self._group.nodes), "kind": kind, "value": round(value, 4)}

    def _wait_complete(self, since_s: float) -> float:
        """Wait until every key has enough replicas again; return the time since this moment [s]."""
        copies = min(REPLICAS, len(self._group.nodes))
        while True:
            held: Counter[str] = Counter()
            for answer in ask_all(self._group.nodes, {"do": "held"}, _TIMEOUT_S):
                held.update(key for key in answer["keys"] if key.startswith("key/"))
            lacking = self._plan.keys - sum(count >= copies for count in held.values())
            waited_s = time.monotonic() - since_s
            if not lacking:
                return waited_s
            if waited_s > _TIMEOUT_S:
                raise Unavailable(f"{lacking} keys are on fewer than {copies} devices after {waited_s:.0f} s")
            time.sleep(_POLL_S)

    def _read_back(self) -> tuple[int, int]:
        """Read every key; return the number of repeated reads, and of unreadable keys.

        A key that is missing or wrong is unreadable. A read that failed because a device was too busy to
        answer in time is repeated, as an application would do. If it still fails, the key is unreadable as
        well.
        """
        shift = int(
            self._rng.integers(len(self._group.nodes))
        )  # usually another device than the one that stored the key
        failed = self._on_parts("check", shift)
        busy = [(key, outcome) for key, outcome in failed if outcome not in {MISSING, WRONG}]
        return len(busy), len(failed) - len(busy) + len(self._retried("check", busy))

    def _miscounted(self) -> int:
        """Largest deviation of the counters from their expected values, over all devices."""
        answers = ask_all(self._group.nodes, {"do": "counts", "key": _COUNTER_KEY})
        reads: list[Mapping[str, int]] = [answer["counts"] for answer in answers]
        names = {*self._expected, *(name for counts in reads for name in counts)}
        return max(abs(counts.get(name, 0) - self._expected[name]) for counts in reads for name in names)


def _failed(answers: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Key and outcome of every failed operation."""
    return [(str(key), str(outcome)) for answer in answers for key, outcome in answer["failed"]]


def endurance_numbers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Summarise losses, and the times until a failure was detected and its replicas were restored."""
    kinds = {kind: numbers.values(some, "value") for kind, some in numbers.grouped(rows, "kind").items()}

    def seconds(kind: str) -> dict[str, float]:
        return {"median": round(float(np.median(kinds[kind])), 3), "most": max(kinds[kind])}

    left = numbers.values(rows, "left")
    return {
        "place": rows[0]["place"],
        "nodes": int(max(left)),
        "survivors": int(min(left)),
        "deaths": int(max(numbers.values(rows, "death"))),
        "unreadable": int(sum(kinds[UNREADABLE])),
        "repeated_reads": int(sum(kinds[REPEATED])),
        "miscounted": int(max(kinds[MISCOUNTED])),
        "postponed_merges": int(sum(kinds[POSTPONED])),
        "noticed_s": seconds(GONE),
        "handed_over_s": seconds(HANDED_OVER),
    }
