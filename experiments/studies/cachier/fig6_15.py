"""Figure 6.15: how long a get takes in our key-value store, and in Kademlia (dissertation, 6.8).

Both stores run on the same nodes, with the same keys, requests and links, one after the other. Kademlia is
the package of that name, as published, and finds its first neighbours through our discovery.

With k = 20 among 20 nodes, as the dissertation's text has it, the package stores every value on every node,
and a get reads the own storage without a message. So every setting is read twice: over all gets, and over
those alone that went over the network, on either side.

The dissertation's devices shared a wireless channel, which its explanation of the figure is about (6.8.2). So
the first setting, whose latencies are held against the targets, has such a channel, emulated, that loses 1 %
of the frames once all devices have met; its k; as many copies in our store (r = 20); and devices that ask for
what others stored. Beside it stand our usual r = 2 on the same channel: with buckets of 20, by which every
node knows all others, which is all that the text says of k (6.8.1), but two copies on both sides; and with
more nodes than k. And without wireless effects, on a switch that loses nothing: r = 2 or 20 against k = 20;
two copies on both sides (alpha = 1, as the dissertation's program ran); more nodes than k; and devices that
come after the keys were stored, as visitors do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from nearsight.experiments.framework.drawing import Picture
from nearsight.experiments.framework.experiment import (
    Cell,
    Experiment,
    Results,
    Row,
    RunOptions,
    StoredRow,
    Target,
)
from nearsight.experiments.framework.extra import require_experiments
from nearsight.experiments.links.radio import RadioSettings
from nearsight.experiments.rig.peer_process import GET, KADEMLIA, NEARSIGHT, OK, PUT
from nearsight.experiments.rig.processes import termination_as_interrupt
from nearsight.experiments.studies.peers.kademlia_settings import KademliaSettings
from nearsight.experiments.studies.peers.peer_lookups import (
    BEACONS,
    CHANNEL,
    GET_PHASE,
    GONE,
    IDLE,
    PUT_PHASE,
    SEES_ALL,
    SYSTEMS,
    LookupMeasurement,
    LookupPlan,
    Setting,
)

PAPER = KademliaSettings(k=20, alpha=3)
PROGRAM = KademliaSettings(k=2, alpha=1)
LARGE_BUCKETS = KademliaSettings(k=20, alpha=3, copies=2)
CHANNEL_LOSS = 0.01
MAIN = "20-nodes"
THIRD, TENTH = 1 / 3, 0.1
MOST_BEACON_BYTES_S = 255.0
"""Of each of 20 devices that send a beacon every 5 s (5.3.2)."""
LATEST_GONE_S = 2.0
LEAST_GETS = 30
"""Of either store: fewer are shown, but nothing is claimed about them."""
ALL_GETS, OVER_NETWORK = "all gets", "over the network"

SETTINGS = (
    Setting(
        "radio-20-nodes-r20",
        "20 nodes, one radio channel, r = 20, k = 20",
        20,
        PAPER,
        replicas=20,
        radio=RadioSettings(loss=CHANNEL_LOSS),
        others_keys=True,
        repetitions=3,
    ),
    Setting(MAIN, "20 nodes, r = 2, k = 20", 20, PAPER, presence=True),
    Setting(
        "radio-20-nodes",
        "20 nodes, one radio channel, r = 2, buckets of 20, 2 copies",
        20,
        LARGE_BUCKETS,
        radio=RadioSettings(loss=CHANNEL_LOSS),
        others_keys=True,
    ),
    Setting("20-nodes-r20", "20 nodes, r = 20, k = 20", 20, PAPER, replicas=20),
    Setting("20-nodes-k2", "20 nodes, r = 2, k = 2, alpha = 1", 20, PROGRAM),
    Setting("40-nodes", "40 nodes, r = 2, k = 20", 40, PAPER),
    Setting(
        "radio-30-nodes",
        "30 nodes, one radio channel, r = 2, k = 20",
        30,
        PAPER,
        radio=RadioSettings(loss=CHANNEL_LOSS),
        others_keys=True,
    ),
    Setting("20-nodes-late", "20 nodes, 10 of them come later, r = 2, k = 20", 20, PAPER, late=10),
)
SMOKE_SETTINGS = (
    Setting(
        "smoke", "4 nodes, 1 of them comes later, r = 2, k = 2, alpha = 1", 4, PROGRAM, late=1, presence=True
    ),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which settings, how long."""

    settings: tuple[Setting, ...]
    lookups: LookupPlan
    on_radio: LookupPlan | None = None
    """Where nodes share a radio channel: fewer puts, as one of k = 20 is eighty frames."""

    def of(self, setting: Setting) -> LookupPlan:
        """How much is measured in a setting."""
        return self.on_radio if setting.radio is not None and self.on_radio is not None else self.lookups


FULL_LOOKUPS = LookupPlan(
    period_s=5.0,
    departure_s=15.0,
    keys=200,
    requests=30,
    exponent=0.8,
    put_rate=20.0,
    get_rate=40.0,
    value_bytes=1024,
    rate_mbps=54.0,
    idle_s=30.0,
    settle_s=5.0,
)
FULL = Plan(
    SETTINGS,
    lookups=FULL_LOOKUPS,
    on_radio=replace(FULL_LOOKUPS, put_rate=8.0),
)
SMOKE = Plan(
    SMOKE_SETTINGS,
    lookups=LookupPlan(
        period_s=0.4,
        departure_s=0.8,
        keys=12,
        requests=8,
        exponent=0.8,
        put_rate=50.0,
        get_rate=50.0,
        value_bytes=1024,
        rate_mbps=54.0,
        idle_s=0.8,
        settle_s=0.1,
    ),
)


class Figure(Experiment):
    """Presence of 20 devices, and how long a get takes in their store and in Kademlia."""

    name: ClassVar[str] = "fig6.15"
    source: ClassVar[str] = "Cachier dissertation, 6.8"

    def cells(self, options: RunOptions) -> tuple[Cell, ...]:  # noqa: D102
        plan = _plan(options)
        return tuple(
            Cell(f"{setting.name}-{number}", {"setting": setting.name, "repetition": number})
            for setting in plan.settings
            for number in range(setting.repetitions)
        )

    def run(self, cell: Cell, options: RunOptions) -> list[Row]:  # noqa: D102
        require_experiments(f"experiment run {self.name}", ("kademlia",))
        plan, number = _plan(options), int(cell.parameters["repetition"])
        setting = next(one for one in plan.settings if one.name == cell.parameters["setting"])
        lookups = plan.of(setting)
        measurement = LookupMeasurement(
            options.museums.resolve().parent / "testbed" / self.name / cell.key,
            setting,
            lookups,
            options.rng(self.name, setting.nodes, number),
            options.seed + number,
        )
        order = SYSTEMS if number % 2 == 0 else SYSTEMS[::-1]
        with termination_as_interrupt():
            measured = measurement.run(order)
        head: Row = {
            "setting": setting.name,
            "title": setting.title,
            "nodes": setting.nodes,
            "late": setting.late,
            "replicas": setting.replicas,
            "k": setting.kademlia.k,
            "alpha": setting.kademlia.alpha,
            "copies": setting.kademlia.copies or setting.kademlia.k,
            "period_s": lookups.period_s,
            "departure_s": lookups.departure_s,
            "value_bytes": lookups.value_bytes,
            "rate_mbps": setting.radio.rate_mbps if setting.radio else lookups.rate_mbps,
            "loss": setting.radio.loss if setting.radio else 0.0,
            "repetition": number,
        }
        return [{**head, **row} for row in measured]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``settings.<name>.<system>`` for lookups, ``presence`` for the rest."""
        groups: dict[str, list[StoredRow]] = defaultdict(list)
        for row in rows:
            groups[row["setting"]].append(row)
        found = {name: _setting(group) for name, group in groups.items()}
        return {"presence": _presence(rows), "settings": found}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:  # noqa: D102
        presence = summary["presence"]
        return (*(_presence_targets(presence) if presence else ()), *_lookup_targets(summary["settings"]))

    def table(  # noqa: D102
        self, summary: Mapping[str, Any]
    ) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        rows = [
            (
                setting["title"],
                system,
                one["gets"],
                one["failed"],
                f"{100 * one['own_storage']:.1f} %",
                *(_shown(one[reading]) for reading in (ALL_GETS, OVER_NETWORK)),
                _shown(one["put"]),
                *(_per(one, phase) for phase in ("put", "get")),
            )
            for setting in summary["settings"].values()
            for system, one in setting["systems"].items()
        ]
        columns = ("setting", "store", "gets", "failed", "from own storage", "p50 / p99 ms, all")
        rest = (
            "p50 / p99 ms, network",
            "p50 / p99 ms of puts",
            "packets, bytes per put",
            "packets, bytes per get",
        )
        return (*columns, *rest), rows

    def draw(self, results: Results) -> Picture:  # noqa: D102
        from nearsight.experiments.studies.cachier.fig6_15_picture import draw  # noqa: PLC0415

        return draw(results)


def mean_per_node(
    rows: Iterable[StoredRow], *, network_only: bool = False
) -> dict[str, tuple[float, float, int]]:
    """Mean and deviation of the latency of each node's gets [ms], and their number, by node."""
    values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["kind"] == GET and row["outcome"] == OK and not (network_only and row["local"] == "1"):
            values[row["node"]].append(float(row["ms"]))
    return {
        node: (float(np.mean(one)), float(np.std(one, ddof=1)) if len(one) > 1 else 0.0, len(one))
        for node, one in sorted(values.items())
    }


def _plan(options: RunOptions) -> Plan:
    return SMOKE if options.smoke else FULL


def _setting(rows: Sequence[StoredRow]) -> dict[str, Any]:
    systems = {name: [row for row in rows if row["system"] == name] for name in SYSTEMS}
    return {
        "title": rows[0]["title"],
        "place": sorted({row["place"] for row in rows}),
        "access_point_late_p99_ms": max(
            (float(row["late_ms"]) for row in rows if row["kind"] == CHANNEL), default=0.0
        ),
        "systems": {name: _system(group) for name, group in systems.items()},
        "ratios": {reading: _ratios(rows, reading) for reading in (ALL_GETS, OVER_NETWORK)},
    }


def _ratios(rows: Sequence[StoredRow], reading: str) -> list[dict[str, float]]:
    """Our latencies over Kademlia's, of each repetition in which both answered some."""
    repetitions: dict[str, dict[str, list[StoredRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["kind"] == GET and (reading == ALL_GETS or row["local"] == "0"):
            repetitions[row["repetition"]][row["system"]].append(row)
    found = []
    for one in repetitions.values():
        ours, theirs = (_latencies(one[name]) for name in SYSTEMS)
        if ours["count"] and theirs["count"]:
            found.append({name: round(ours[name] / theirs[name], 4) for name in ("p50_ms", "p99_ms")})
    return found


def _system(rows: Sequence[StoredRow]) -> dict[str, Any]:
    gets = [row for row in rows if row["kind"] == GET]
    puts = [row for row in rows if row["kind"] == PUT]
    network = [row for row in gets if row["local"] == "0"]
    means = [mean for mean, _, _ in mean_per_node(gets).values()]
    return {
        "gets": len(gets),
        "failed": sum(row["outcome"] != OK for row in gets),
        "outcomes": {
            name: sum(row["outcome"] == name for row in gets) for name in {r["outcome"] for r in gets}
        },
        "own_storage": round(1 - len(network) / max(1, len(gets)), 4),
        ALL_GETS: _latencies(gets),
        OVER_NETWORK: _latencies(network),
        "mean_per_node_ms": _spread(means),
        "puts": len(puts),
        "puts_failed": sum(row["outcome"] != OK for row in puts),
        "put": _latencies(puts),
        "late_p99_ms": round(float(np.percentile([float(row["late_ms"]) for row in gets], 99)), 3),
        "traffic": {
            "put": _traffic(rows, PUT_PHASE, len(puts)),
            "get": _traffic(rows, GET_PHASE, len(gets)),
        },
    }


def _spread(means: Sequence[float]) -> dict[str, float]:
    if not means:
        return {}
    return {
        "mean": round(float(np.mean(means)), 4),
        "least": round(min(means), 4),
        "most": round(max(means), 4),
    }


def _latencies(rows: Sequence[StoredRow]) -> dict[str, float]:
    """Of what was asked, failed or not: a get that failed took its time as well."""
    values = [float(row["ms"]) for row in rows]
    if not values:
        return {"count": 0}
    return {
        "count": len(values),
        "p50_ms": round(float(np.percentile(values, 50)), 4),
        "p99_ms": round(float(np.percentile(values, 99)), 4),
        "mean_ms": round(float(np.mean(values)), 4),
    }


def _traffic(rows: Sequence[StoredRow], phase: str, operations: int) -> dict[str, float]:
    """Frames that all nodes sent in a phase, over its operations; beacons are among them."""
    chosen = [row for row in rows if row["kind"] == phase]
    return {
        "packets_each": round(sum(int(row["packets"]) for row in chosen) / max(1, operations), 2),
        "bytes_each": round(sum(int(row["bytes"]) for row in chosen) / max(1, operations), 1),
    }


def _presence(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Of the settings in which it was measured."""
    measured = {row["setting"] for row in rows if row["kind"] == GONE}
    chosen = [row for row in rows if row["setting"] in measured]

    def seconds(kind: str) -> list[float]:
        return [float(row["ms"]) / 1000 for row in chosen if row["kind"] == kind]

    if not chosen:
        return {}
    first = chosen[0]
    beacons = [row for row in chosen if row["kind"] == BEACONS]
    idle = [row for row in chosen if row["kind"] == IDLE]
    with_headers = [int(row["bytes"]) / float(row["seconds"]) for row in beacons]
    return {
        "nodes": int(first["nodes"]),
        "place": first["place"],
        "period_s": float(first["period_s"]),
        "departure_s": float(first["departure_s"]),
        "all_see_all_s": round(max(seconds(SEES_ALL)), 3),
        "gone_s": {"least": round(min(seconds(GONE)), 3), "most": round(max(seconds(GONE)), 3)},
        "beacon_bytes_s": {
            "mean": _mean(with_headers),
            "most_of_a_device": round(max(with_headers), 2),
        },
        "interface_bytes_s": {
            "mean": _mean(int(row["bytes"]) / float(row["seconds"]) for row in idle),
            "most_of_a_device": round(max(int(row["bytes"]) / float(row["seconds"]) for row in idle), 2),
        },
    }


def _mean(values: Iterable[float]) -> float:
    return round(float(np.mean(list(values))), 2)


def _presence_targets(found: Mapping[str, Any]) -> tuple[Target, ...]:
    nodes, period_s = found["nodes"], found["period_s"]
    seen_s, gone_s = found["all_see_all_s"], found["gone_s"]["most"]
    beacons = found["beacon_bytes_s"]["most_of_a_device"]
    frames = found["interface_bytes_s"]["most_of_a_device"]
    latest_s = found["departure_s"] + LATEST_GONE_S
    most_bytes_s = round(MOST_BEACON_BYTES_S * nodes / 20 * 5.0 / period_s, 1)
    return (
        Target(f"all {nodes} nodes see each other within two periods [s]", seen_s, seen_s <= 2 * period_s),
        Target(f"a killed node is gone within T + 2 s = {latest_s:g} s [s]", gone_s, gone_s <= latest_s),
        Target(
            f"beacons of a device, sent and heard, with IP and UDP headers, at most {most_bytes_s:g} bytes/s",
            beacons,
            beacons <= most_bytes_s,
        ),
        Target(
            f"all frames of an idle device at most {most_bytes_s:g} bytes/s (0: not measured)",
            frames,
            frames <= most_bytes_s,
        ),
    )


def _lookup_targets(settings: Mapping[str, Any]) -> tuple[Target, ...]:
    targets = []
    for number, setting in enumerate(settings.values()):
        ours, theirs = (setting["systems"][name] for name in (NEARSIGHT, KADEMLIA))
        failed = ours["failed"]
        targets.append(Target(f"{setting['title']}: failed gets", failed, failed == 0))
        for reading in (ALL_GETS, OVER_NETWORK):
            if min(ours[reading]["count"], theirs[reading]["count"]) < LEAST_GETS:
                continue
            for name, most in (("p50_ms", THIRD), ("p99_ms", TENTH)):
                ratio = ours[reading][name] / theirs[reading][name]
                note = _own_storage(ours, theirs) if number else _each(setting["ratios"][reading], name)
                text = f"{setting['title']}, {reading}: {name[:3]} relative to Kademlia at most {most:.2f}"
                targets.append(Target(text, round(ratio, 4), ratio <= most, note))
    return tuple(targets)


def _each(repetitions: Sequence[Mapping[str, float]], name: str) -> str:
    """The ratio of every repetition."""
    return "repetition by repetition " + ", ".join(f"{one[name]:.3f}" for one in repetitions)


def _own_storage(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    return (
        "beside the first setting; of our gets "
        f"{100 * ours['own_storage']:.0f} % were answered from own storage, of Kademlia's "
        f"{100 * theirs['own_storage']:.0f} %"
    )


def _shown(latencies: Mapping[str, float]) -> str:
    if latencies["count"] < LEAST_GETS:
        return f"too few: {latencies['count']}"
    return f"{latencies['p50_ms']:.3f} / {latencies['p99_ms']:.2f}"


def _per(one: Mapping[str, Any], phase: str) -> str:
    traffic = one["traffic"][phase]
    return f"{traffic['packets_each']:.0f}, {traffic['bytes_each']:.0f}"
