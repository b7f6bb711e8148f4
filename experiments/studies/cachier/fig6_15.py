"""Figure 6.15: latency of gets in our key-value store and in Kademlia (dissertation, 6.8).

Both stores run on the same nodes, with the same keys, requests and links, one after the other. Kademlia is
the published package of that name; it finds its first neighbours through our discovery.

With k = 20 among 20 nodes, as stated in the dissertation, the package stores every value on every node. A get
then reads the node's own storage without a message. Therefore every setting is evaluated twice: over all
gets, and over those that used the network, for each store.

The dissertation's devices shared a wireless channel, on which its explanation of the figure is based (6.8.2).
The first setting, whose latencies are compared with the targets, therefore emulates such a channel. The
channel loses 1 % of the frames after all devices have discovered each other. This setting uses the
dissertation's k and as many replicas in our store (r = 20), and devices request keys that others stored.

Two further settings use the default r = 2 on the same channel. One has buckets of 20, so that every node
knows all others, which is all that the text states about k (6.8.1), but two copies in both stores. The other
has more nodes than k. The remaining settings have no wireless effects but a switch without loss: r = 2 or 20
against k = 20; two copies in both stores (alpha = 1, as in the dissertation's program); more nodes than k;
and devices that join after the keys were stored, as visitors do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from nearsight.device.peers.settings import PeerSettings
from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.extra import require_experiments
from nearsight.experiments.links.radio import RadioSettings
from nearsight.experiments.rig.kademlia_node import KademliaSettings
from nearsight.experiments.rig.peer_group import LOOPBACK
from nearsight.experiments.rig.peer_process import KADEMLIA, NEARSIGHT
from nearsight.experiments.studies.cachier.lookup_numbers import (
    ALL_GETS,
    OVER_NETWORK,
    mean_per_node,
    presence_numbers,
    setting_numbers,
)
from nearsight.experiments.studies.cachier.lookups import (
    RATE_MBPS,
    SYSTEMS,
    VALUE_BYTES,
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
"""Limit for each of 20 devices that send a beacon every 5 s (5.3.2) [bytes/s]."""
LATEST_GONE_S = 2.0
LEAST_GETS = 30
"""Smallest number of gets of either store that is judged; smaller samples are only shown."""

_on_radio = partial(Setting, radio=RadioSettings(loss=CHANNEL_LOSS), others_keys=True)
SETTINGS = (
    _on_radio(
        "radio-20-nodes-r20",
        "20 nodes, one radio channel, r = 20, k = 20",
        20,
        PAPER,
        replicas=20,
        repetitions=3,
    ),
    Setting(MAIN, "20 nodes, r = 2, k = 20", 20, PAPER, presence=True),
    _on_radio(
        "radio-20-nodes", "20 nodes, one radio channel, r = 2, buckets of 20, 2 copies", 20, LARGE_BUCKETS
    ),
    Setting("20-nodes-r20", "20 nodes, r = 20, k = 20", 20, PAPER, replicas=20),
    Setting("20-nodes-k2", "20 nodes, r = 2, k = 2, alpha = 1", 20, PROGRAM),
    Setting("40-nodes", "40 nodes, r = 2, k = 20", 40, PAPER),
    _on_radio("radio-30-nodes", "30 nodes, one radio channel, r = 2, k = 20", 30, PAPER),
    Setting("20-nodes-late", "20 nodes, 10 of them join later, r = 2, k = 20", 20, PAPER, late=10),
)
SMOKE_SETTINGS = (
    Setting(
        "smoke", "4 nodes, 1 of them joins later, r = 2, k = 2, alpha = 1", 4, PROGRAM, late=1, presence=True
    ),
)


FULL = LookupPlan(
    PeerSettings(period_s=5.0, departure_s=15.0, ping_timeout_s=0.9, read_timeout_s=2.0, hedge_s=0.25),
    keys=200,
    requests=30,
    put_rate=20.0,
    get_rate=40.0,
    idle_s=30.0,
    settle_s=5.0,
)
ON_RADIO = replace(FULL, put_rate=8.0)
"""Fewer puts, because a put with k = 20 takes eighty frames on the shared channel."""
SMOKE = LookupPlan(
    PeerSettings(period_s=0.4, departure_s=0.8, ping_timeout_s=10.0, read_timeout_s=30.0, hedge_s=10.0),
    keys=12,
    requests=8,
    put_rate=50.0,
    get_rate=50.0,
    idle_s=0.8,
    settle_s=0.1,
)
"""Small and short. Timeouts are long, so that a failed call means a lost value even on a busy machine."""
_COLOURS = {NEARSIGHT: "#1f6f8b", KADEMLIA: "#c2571a"}
_MARKERS = {NEARSIGHT: "o", KADEMLIA: "s"}
_SHIFT = {NEARSIGHT: -0.15, KADEMLIA: 0.15}
_PANELS = 2
"""Panels side by side."""
_LEAST_MS = 0.01
"""Lower end of the logarithmic axis; an error bar as long as the mean ends there."""
_ROOM = 20.0


class Figure(Experiment):
    """Presence of 20 devices, and latency of gets in their store and in Kademlia."""

    name: ClassVar[str] = "fig6.15"
    source: ClassVar[str] = "Cachier dissertation, 6.8"

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per setting and repetition."""
        return [
            {"setting": setting.name, "repetition": number}
            for setting in (SMOKE_SETTINGS if options.smoke else SETTINGS)
            for number in range(setting.repetitions)
        ]

    def run(self, options: RunOptions, setting: str, repetition: int) -> list[Row]:
        """Measure both stores; one row per put, get, phase and observation of presence."""
        require_experiments(f"experiment run {self.name}", ("kademlia",))
        given = next(one for one in (*SETTINGS, *SMOKE_SETTINGS) if one.name == setting)
        plan = SMOKE if options.smoke else ON_RADIO if given.radio else FULL
        measurement = LookupMeasurement(
            options.museums.resolve().parent / "testbed" / self.name / f"{setting}-{repetition}",
            given,
            plan,
            options.rng(self.name, given.nodes, repetition),
            options.seed + repetition,
        )
        measured = measurement.run(SYSTEMS if repetition % 2 == 0 else SYSTEMS[::-1])
        head: Row = {
            "setting": given.name,
            "title": given.title,
            "nodes": given.nodes,
            "late": given.late,
            "replicas": given.replicas,
            "k": given.kademlia.k,
            "alpha": given.kademlia.alpha,
            "copies": given.kademlia.copies or given.kademlia.k,
            "period_s": plan.peers.period_s,
            "departure_s": plan.peers.departure_s,
            "value_bytes": VALUE_BYTES,
            "rate_mbps": given.radio.rate_mbps if given.radio else RATE_MBPS,
            "loss": given.radio.loss if given.radio else 0.0,
            "repetition": repetition,
        }
        return [{**head, **row} for row in measured]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``settings.<name>.<system>`` for lookups; ``presence`` for discovery and beacons."""
        return {
            "presence": presence_numbers(rows),
            "settings": numbers.nested(rows, ("setting",), setting_numbers),
        }

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """Presence, failed gets, and latencies relative to those of Kademlia."""
        if summary["presence"]:
            yield from _presence_targets(summary["presence"])
        yield from _lookup_targets(summary["settings"])

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per setting and store."""
        for setting in summary["settings"].values():
            for system, one in setting["systems"].items():
                yield {
                    "setting": setting["title"],
                    "store": system,
                    "gets": one["gets"],
                    "failed": one["failed"],
                    "from own storage": f"{100 * one['own_storage']:.1f} %",
                    "p50 / p99 ms, all": _shown(one[ALL_GETS]),
                    "p50 / p99 ms, network": _shown(one[OVER_NETWORK]),
                    "p50 / p99 ms of puts": _shown(one["put"]),
                    **{f"packets, bytes per {phase}": _per(one, phase) for phase in ("put", "get")},
                }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw the mean latency of each node's successful gets with its deviation, one panel per setting."""
        rows, settings = results.rows, results.metrics["settings"]
        by_setting = numbers.grouped(rows, "setting")
        lines = -(-len(settings) // _PANELS)
        picture = drawing.new_picture(11.0, 3.4 * lines + 0.7)
        panels = picture.subplots(lines, _PANELS, squeeze=False, sharey=True).ravel()
        for axes, (setting, found) in zip(panels, settings.items(), strict=False):
            _draw_setting(axes, by_setting[setting], found)
        highest_ms = max(axes.dataLim.ymax for axes in panels[: len(settings)])
        panels[0].set_ylim(_LEAST_MS, _ROOM * highest_ms)  # applies to all panels, which share the axis
        for axes in panels[len(settings) :]:
            axes.set_visible(False)
        for axes in panels[::_PANELS]:
            axes.set_ylabel("latency of a get [ms]")
        drawing.legend_below(picture, panels[0], 2)
        drawing.caption(picture, _caption(rows[0]))
        return picture


def _presence_targets(found: Mapping[str, Any]) -> Iterator[Target]:
    nodes, period_s = found["nodes"], found["period_s"]
    seen_s, gone_s = found["all_see_all_s"], found["gone_s"]["most"]
    beacons = found["beacon_bytes_s"]["most_of_a_device"]
    frames = found["interface_bytes_s"]["most_of_a_device"]
    latest_s = found["departure_s"] + LATEST_GONE_S
    most_bytes_s = round(MOST_BEACON_BYTES_S * nodes / 20 * 5.0 / period_s, 1)
    yield Target.at_most(f"all {nodes} nodes see each other within two periods [s]", seen_s, 2 * period_s)
    yield Target.at_most(f"a killed node is removed within T + 2 s = {latest_s:g} s [s]", gone_s, latest_s)
    text = f"beacons of a device, both ways, with IP and UDP headers, at most {most_bytes_s:g} bytes/s"
    yield Target.at_most(text, beacons, most_bytes_s)
    # On loopback the counters are those of the whole machine, and some systems have none.
    if frames and found["place"] != LOOPBACK:
        text = f"all frames of an idle device at most {most_bytes_s:g} bytes/s"
        yield Target.at_most(text, frames, most_bytes_s)


def _lookup_targets(settings: Mapping[str, Any]) -> Iterator[Target]:
    for number, setting in enumerate(settings.values()):
        ours, theirs = (setting["systems"][name] for name in (NEARSIGHT, KADEMLIA))
        yield Target.at_most(f"{setting['title']}: failed gets", ours["failed"], 0)
        for reading in (ALL_GETS, OVER_NETWORK):
            if min(ours[reading]["count"], theirs[reading]["count"]) < LEAST_GETS:
                continue
            for name, most, limit in (("p50_ms", THIRD, "1/3"), ("p99_ms", TENTH, "0.1")):
                ratio = ours[reading][name] / theirs[reading][name]
                note = _own_storage(ours, theirs) if number else _each(setting["ratios"][reading], name)
                text = f"{setting['title']}, {reading}: {name[:3]} relative to Kademlia at most {limit}"
                yield Target.at_most(text, ratio, most, note, digits=4)


def _each(repetitions: Sequence[Mapping[str, float]], name: str) -> str:
    """The ratio of every repetition."""
    return "repetition by repetition " + ", ".join(f"{one[name]:.3f}" for one in repetitions)


def _own_storage(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    return (
        "secondary setting; answered from own storage: "
        f"{100 * ours['own_storage']:.0f} % of our gets, "
        f"{100 * theirs['own_storage']:.0f} % of Kademlia's"
    )


def _shown(latencies: Mapping[str, float]) -> str:
    if latencies["count"] < LEAST_GETS:
        return f"too few: {latencies['count']}"
    return f"{latencies['p50_ms']:.3f} / {latencies['p99_ms']:.2f}"


def _per(one: Mapping[str, Any], phase: str) -> str:
    traffic = one["traffic"][phase]
    return f"{traffic['packets_each']:.0f}, {traffic['bytes_each']:.0f}"


def _draw_setting(axes: Axes, rows: Sequence[StoredRow], found: Mapping[str, Any]) -> None:
    title = [str(found["title"])]
    for system, one in found["systems"].items():
        means = mean_per_node(row for row in rows if row["system"] == system)
        mean, deviation = np.array([*means.values()]).reshape(-1, 2).T
        below = np.minimum(deviation, np.maximum(mean - _LEAST_MS, 0.0))
        axes.errorbar(
            np.arange(1, len(means) + 1) + _SHIFT[system],
            mean,
            [below, deviation],
            fmt=_MARKERS[system],
            color=_COLOURS[system],
            markersize=4,
            elinewidth=0.8,
            capsize=1.5,
            label=f"{system}: mean of each node's successful gets, with standard deviation",
        )
        network = one[OVER_NETWORK]
        own = one["gets"] - network["count"]
        read = f"{system}: {own} of {one['gets']} gets from own storage"
        if network["count"] >= LEAST_GETS:
            read += f"; network p50 {network['p50_ms']:.2f}, p99 {network['p99_ms']:.1f} ms"
        if one["failed"]:
            read += f"; {one['failed']} of {one['gets']} failed"
        title.append(read)
    axes.set_title(title[0])
    axes.text(
        0.01, 0.98, "\n".join(title[1:]), transform=axes.transAxes, va="top", fontsize=7, color="#444444"
    )
    axes.set(yscale="log", xlabel="node")
    drawing.plain_logarithmic(axes.yaxis)
    drawing.whole_numbers(axes.xaxis)


def _caption(row: StoredRow) -> str:
    where = (
        f"one network namespace per node, {float(row['rate_mbps']):g} Mbit/s links, nearsight encrypted"
        if row["place"] != LOOPBACK
        else "all nodes on loopback"
    )
    return f"The same keys of {row['value_bytes']} bytes and the same requests for both stores; {where}"
