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
from nearsight.experiments.framework.experiment import Row, StoredRow
from nearsight.experiments.rig.peer_group import GroupPlan, PeerGroup, ask_all
from nearsight.experiments.rig.peer_process import MISSING, WRONG

UNREADABLE, REPEATED, MISCOUNTED, HANDED_OVER, GONE, POSTPONED = (
    "unreadable keys",
    "repeated reads",
    "counters off by",
    "handed over",
    "gone",
    "postponed merges",
)
_COUNTER_KEY = "popularity/museum"
_POLL_S = 0.25
_ATTEMPTS = 3
_LONG_S = 300.0


@dataclass(frozen=True, slots=True)
class EndurancePlan:
    """How much is endured.

    Attributes
    ----------
    nodes, survivors : int
        At the beginning and at the end.
    keys, value_bytes : int
        What is stored, each key on ``replicas`` devices.
    replicas : int
        The r of the design.
    merges : int
        Additions to the counters by each device during each death.
    period_s, departure_s : float
        Of the beacons; and the dissertation's T.
    """

    nodes: int
    survivors: int
    keys: int
    value_bytes: int
    replicas: int
    merges: int
    period_s: float
    departure_s: float


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
        self._folder = folder
        self._plan = plan
        self._rng = rng
        self._seed = seed
        self._expected: Counter[str] = Counter()

    def run(self) -> list[Row]:
        """Kill until only the survivors are left; rows of what was noticed after every death."""
        plan = self._plan
        peers = PeerSettings(
            period_s=plan.period_s,
            departure_s=plan.departure_s,
            replicas=plan.replicas,
            max_keys=plan.keys + 100,
        )
        rows: list[Row] = []
        with PeerGroup(self._folder, GroupPlan(plan.nodes, peers, seed=self._seed)) as group:
            group.start()
            group.wait_all_see_all(group.nodes, _LONG_S)
            self._fill(group)
            rows += self._after(group, 0, self._merge_all(group))
            for death in range(1, plan.nodes - plan.survivors + 1):
                victim = group.nodes[int(self._rng.integers(len(group.nodes)))]
                at_s = group.kill(victim)
                postponed = self._merge_all(group)
                gone = group.wait_gone(victim.node_id, at_s, _LONG_S)
                rows.append(_row(death, len(group.nodes), GONE, max(gone) - at_s))
                rows += self._after(group, death, postponed)
            return [{"place": group.place, **row} for row in rows]

    def _fill(self, group: PeerGroup) -> None:
        bounds = np.linspace(0, self._plan.keys, len(group.nodes) + 1).astype(int).tolist()

        def command(number: int) -> Mapping[str, object]:
            part = {"first": bounds[number], "last": bounds[number + 1]}
            return {"do": "fill", "value_bytes": self._plan.value_bytes, **part}

        failed = _failed(ask_all(group.nodes, command, _LONG_S))
        for _ in range(_ATTEMPTS):
            if not failed:
                return
            keys = [key for key, _ in failed]
            again = {"do": "fill", "value_bytes": self._plan.value_bytes, "keys": keys}
            failed = _failed([group.nodes[0].ask(again, _LONG_S)])
        raise Unavailable(f"{len(failed)} of {self._plan.keys} puts failed, the first with {failed[0][1]}")

    def _merge_all(self, group: PeerGroup) -> int:
        """Every device adds to the same counters; how many additions had to wait."""

        def command(number: int) -> Mapping[str, object]:
            counts = {"all": 1, f"object/{number % 7}": number + 1}
            return {"do": "merge", "key": _COUNTER_KEY, "counts": counts, "times": self._plan.merges}

        answers = ask_all(group.nodes, command, _LONG_S)
        for number in range(len(group.nodes)):
            self._expected["all"] += self._plan.merges
            self._expected[f"object/{number % 7}"] += (number + 1) * self._plan.merges
        return sum(int(answer["postponed"]) for answer in answers)

    def _after(self, group: PeerGroup, death: int, postponed: int) -> list[Row]:
        """Wait for the hand-over, then look at everything."""
        left = len(group.nodes)
        handed_over_s = self._wait_complete(group)
        repeated, unreadable = self._read_back(group)
        return [
            _row(death, left, HANDED_OVER, handed_over_s),
            _row(death, left, REPEATED, repeated),
            _row(death, left, UNREADABLE, unreadable),
            _row(death, left, MISCOUNTED, self._miscounted(group)),
            _row(death, left, POSTPONED, postponed),
        ]

    def _wait_complete(self, group: PeerGroup) -> float:
        """Wait until every key is on enough devices again; how long that took [s]."""
        copies = min(self._plan.replicas, len(group.nodes))
        began_s = time.monotonic()
        while True:
            held: Counter[str] = Counter()
            for answer in ask_all(group.nodes, {"do": "held"}, _LONG_S):
                held.update(key for key in answer["keys"] if key.startswith("key/"))
            lacking = self._plan.keys - sum(count >= copies for count in held.values())
            waited_s = time.monotonic() - began_s
            if not lacking:
                return waited_s
            if waited_s > _LONG_S:
                raise Unavailable(f"{lacking} keys are on fewer than {copies} devices after {waited_s:.0f} s")
            time.sleep(_POLL_S)

    def _read_back(self, group: PeerGroup) -> tuple[int, int]:
        """Every key, read by one device or another.

        A key that is missing or wrong is unreadable. A read that failed, as a device was too busy to answer
        in time, is repeated as an application would; if it still fails, the key is unreadable as well.

        Returns
        -------
        tuple of int
            Reads that were repeated, and unreadable keys.
        """
        bounds = np.linspace(0, self._plan.keys, len(group.nodes) + 1).astype(int).tolist()
        shift = int(self._rng.integers(len(group.nodes)))  # not always by the device that put it

        def command(number: int) -> Mapping[str, object]:
            part = (number + shift) % len(group.nodes)
            span = {"first": bounds[part], "last": bounds[part + 1]}
            return {"do": "check", "value_bytes": self._plan.value_bytes, **span}

        failed = _failed(ask_all(group.nodes, command, _LONG_S))
        lost = sum(outcome in {MISSING, WRONG} for _, outcome in failed)
        failed = [(key, outcome) for key, outcome in failed if outcome not in {MISSING, WRONG}]
        repeated = len(failed)
        for _ in range(_ATTEMPTS):
            if not failed:
                break
            keys = [key for key, _ in failed]
            again = {"do": "check", "value_bytes": self._plan.value_bytes, "keys": keys}
            failed = _failed([group.nodes[0].ask(again, _LONG_S)])
        return repeated, lost + len(failed)

    def _miscounted(self, group: PeerGroup) -> int:
        """By how much the counters, read by every device, are off at most."""
        reads: Sequence[Mapping[str, int]] = [
            answer["counts"] for answer in ask_all(group.nodes, {"do": "counts", "key": _COUNTER_KEY})
        ]
        names = {*self._expected, *(name for counts in reads for name in counts)}
        return max(abs(counts.get(name, 0) - self._expected[name]) for counts in reads for name in names)


def _failed(answers: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Key and outcome of everything that did not go well."""
    return [(str(key), str(outcome)) for answer in answers for key, outcome in answer["failed"]]


def _row(death: int, left: int, kind: str, value: float) -> Row:
    return {"death": death, "left": left, "kind": kind, "value": round(value, 4)}


def endurance_numbers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """What was lost, and how long it took to notice a death and to make up for it."""

    def values(kind: str) -> list[float]:
        return values((row for row in rows if row["kind"] == kind), "value")

    def seconds(kind: str) -> dict[str, float]:
        return {"median": round(float(np.median(values(kind))), 3), "most": max(values(kind))}

    left = values(rows, "left")
    return {
        "place": rows[0]["place"],
        "nodes": int(max(left)),
        "survivors": int(min(left)),
        "deaths": max(int(row["death"]) for row in rows),
        "unreadable": int(sum(values(UNREADABLE))),
        "repeated_reads": int(sum(values(REPEATED))),
        "miscounted": int(max(values(MISCOUNTED))),
        "postponed_merges": int(sum(values(POSTPONED))),
        "noticed_s": seconds(GONE),
        "handed_over_s": seconds(HANDED_OVER),
    }
