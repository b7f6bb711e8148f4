"""Nothing is lost: keys and counters of a group whose devices are killed one after another.

Every device stores its part of the keys. Then devices are killed as by a power cut, each after those that are
left have noticed the one before and have made up for it. While a device dies, all others add to the same
counters. After every death all keys are read back, and the counters must be exact: not one count lost, none
counted twice.
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
"""The r of the design: each key is on so many devices."""
_VALUE_BYTES = 128
_COUNTER_KEY = "popularity/museum"
_POLL_S = 0.25
_ATTEMPTS = 3
_LONG_S = 300.0


@dataclass(frozen=True, slots=True)
class EndurancePlan:
    """How much is endured."""

    nodes: int
    survivors: int
    """At the beginning and at the end."""
    keys: int
    """That are stored."""
    merges: int
    """Additions to the counters by each device during each death."""
    period_s: float
    departure_s: float
    """Of the beacons; and the dissertation's T."""


class Endurance:
    """One run.

    Parameters
    ----------
    folder : Path
        For logs.
    plan : EndurancePlan
        How much.
    rng : numpy.random.Generator
        Chooses the victims.
    seed : int
        Of node ids.
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
        """Kill until only the survivors are left; rows of what was noticed after every death."""
        plan, rows = self._plan, []
        with self._group as group:
            group.start()
            group.wait_all_see_all(group.nodes, _LONG_S)
            if failed := self._repeated("fill", self._on_parts("fill", 0)):
                raise Unavailable(f"{len(failed)} of {plan.keys} puts failed, the first with {failed[0][1]}")
            rows += self._after(0, self._merge_all())
            for death in range(1, plan.nodes - plan.survivors + 1):
                victim = group.nodes[int(self._rng.integers(len(group.nodes)))]
                at_s = group.kill(victim)
                postponed = self._merge_all()
                gone = group.wait_gone(victim.node_id, at_s, _LONG_S)
                rows.append(self._row(death, GONE, max(gone) - at_s))
                rows += self._after(death, postponed)
            return [{"place": group.place, **row} for row in rows]

    def _on_parts(self, what: str, shift: int) -> list[tuple[str, str]]:
        """Every device puts ("fill") or reads ("check") its part of the keys; key and outcome of failures."""
        nodes = self._group.nodes
        bounds = np.linspace(0, self._plan.keys, len(nodes) + 1).astype(int).tolist()

        def command(number: int) -> Mapping[str, object]:
            part = (number + shift) % len(nodes)
            span = {"first": bounds[part], "last": bounds[part + 1]}
            return {"do": what, "value_bytes": _VALUE_BYTES, **span}

        return _failed(ask_all(nodes, command, _LONG_S))

    def _repeated(self, what: str, failed: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Let the first device do what failed, a few times; what fails even then."""
        for _ in range(_ATTEMPTS):
            if failed:
                again = {"do": what, "value_bytes": _VALUE_BYTES, "keys": [key for key, _ in failed]}
                failed = _failed([self._group.nodes[0].ask(again, _LONG_S)])
        return failed

    def _merge_all(self) -> int:
        """Every device adds to the same counters; how many additions had to wait."""

        def command(number: int) -> Mapping[str, object]:
            counts = {"all": 1, f"object/{number % 7}": number + 1}
            return {"do": "merge", "key": _COUNTER_KEY, "counts": counts, "times": self._plan.merges}

        answers = ask_all(self._group.nodes, command, _LONG_S)
        for number in range(len(answers)):
            self._expected["all"] += self._plan.merges
            self._expected[f"object/{number % 7}"] += (number + 1) * self._plan.merges
        return sum(int(answer["postponed"]) for answer in answers)

    def _after(self, death: int, postponed: int) -> list[Row]:
        """Wait for the hand-over, then look at everything."""
        handed_over_s = self._wait_complete()
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

    def _wait_complete(self) -> float:
        """Wait until every key is on enough devices again; how long that took [s]."""
        copies = min(REPLICAS, len(self._group.nodes))
        began_s = time.monotonic()
        while True:
            held: Counter[str] = Counter()
            for answer in ask_all(self._group.nodes, {"do": "held"}, _LONG_S):
                held.update(key for key in answer["keys"] if key.startswith("key/"))
            lacking = self._plan.keys - sum(count >= copies for count in held.values())
            waited_s = time.monotonic() - began_s
            if not lacking:
                return waited_s
            if waited_s > _LONG_S:
                raise Unavailable(f"{lacking} keys are on fewer than {copies} devices after {waited_s:.0f} s")
            time.sleep(_POLL_S)

    def _read_back(self) -> tuple[int, int]:
        """Read every key; how many reads were repeated, and how many keys are unreadable.

        A key that is missing or wrong is unreadable. A read that failed, as a device was too busy to answer
        in time, is repeated as an application would; if it still fails, the key is unreadable as well.
        """
        shift = int(self._rng.integers(len(self._group.nodes)))  # not always by the device that put it
        failed = self._on_parts("check", shift)
        busy = [(key, outcome) for key, outcome in failed if outcome not in {MISSING, WRONG}]
        return len(busy), len(failed) - len(busy) + len(self._repeated("check", busy))

    def _miscounted(self) -> int:
        """By how much the counters, read by every device, are off at most."""
        answers = ask_all(self._group.nodes, {"do": "counts", "key": _COUNTER_KEY})
        reads: list[Mapping[str, int]] = [answer["counts"] for answer in answers]
        names = {*self._expected, *(name for counts in reads for name in counts)}
        return max(abs(counts.get(name, 0) - self._expected[name]) for counts in reads for name in names)


def _failed(answers: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Key and outcome of everything that did not go well."""
    return [(str(key), str(outcome)) for answer in answers for key, outcome in answer["failed"]]


def endurance_numbers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """What was lost, and how long it took to notice a death and to make up for it."""
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
