"""All experiments by name. They are imported when they are used: listing them imports none."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from nearsight.common.errors import NotFound
from nearsight.experiments.framework.experiment import Experiment


@dataclass(frozen=True, slots=True)
class Entry:
    """An experiment that can be run.

    Attributes
    ----------
    module : str
        Where it is.
    shows : str
        What, in one line.
    source : str
        Where in the papers it is from.
    figure : str
        Its class there, an `Experiment`.
    """

    module: str
    shows: str
    source: str
    figure: str = "Figure"


EXPERIMENTS = MappingProxyType(
    {
        "fig3.2": Entry(
            "nearsight.experiments.studies.cachier.fig3_2",
            "Latency and hit ratio over static cache sizes, and the adaptive edge; five networks.",
            "Cachier dissertation, 3.2",
        ),
        "fig3.4": Entry(
            "nearsight.experiments.studies.cachier.fig3_4",
            "Latency, recall and precision over the cache size, for LSH, brute force and our backends.",
            "Cachier dissertation, 3.3.1",
        ),
        "table3.1": Entry(
            "nearsight.experiments.studies.cachier.table3_1",
            "recall(k), fitted; uses the rows of fig3.4.",
            "Cachier dissertation, 3.3.1.3",
        ),
        "table3.2": Entry(
            "nearsight.experiments.studies.cachier.table3_2",
            "f(k), fitted; uses the rows of fig3.4.",
            "Cachier dissertation, 3.3.1.4",
        ),
        "fig4.4": Entry(
            "nearsight.experiments.studies.cachier.fig4_4",
            "Latency, recall and precision on a device, for several numbers of features.",
            "Cachier dissertation, 4.5.2",
        ),
        "table4.1": Entry(
            "nearsight.experiments.studies.cachier.table4_1",
            "f_D(k) and recall_D(k), fitted; uses the rows of fig4.4.",
            "Cachier dissertation, 4.5.3",
        ),
        "fig6.3": Entry(
            "nearsight.experiments.studies.cachier.fig6_3",
            "How well Markov models of order 0 to 3 predict a visitor's next exhibit.",
            "Cachier dissertation, 6.2.5.2",
        ),
        "fig6.4": Entry(
            "nearsight.experiments.studies.cachier.scale.figures",
            "Over the number of visitors: latency, its parts, and bandwidth; six configurations.",
            "Cachier dissertation, 6.3",
            "Figure6x4",
        ),
        "fig6.5": Entry(
            "nearsight.experiments.studies.cachier.scale.figures",
            "Over the number of visitors: CPU of edge and cloud; uses the rows of fig6.4.",
            "Cachier dissertation, 6.3",
            "Figure6x5",
        ),
        "fig6.6": Entry(
            "nearsight.experiments.studies.cachier.scale.figures",
            "Over the number of visitors: recall, precision, and who answers; uses the rows of fig6.4.",
            "Cachier dissertation, 6.3",
            "Figure6x6",
        ),
        "fig6.7": Entry(
            "nearsight.experiments.studies.cachier.scale.figures",
            "Over the number of sections: latency, its parts, and bandwidth; six configurations.",
            "Cachier dissertation, 6.4",
            "Figure6x7",
        ),
        "fig6.8": Entry(
            "nearsight.experiments.studies.cachier.scale.figures",
            "Over the number of sections: CPU of edge and cloud; uses the rows of fig6.7.",
            "Cachier dissertation, 6.4",
            "Figure6x8",
        ),
        "fig6.9": Entry(
            "nearsight.experiments.studies.cachier.scale.figures",
            "Over the number of sections: recall, precision, and who answers; uses the rows of fig6.7.",
            "Cachier dissertation, 6.4",
            "Figure6x9",
        ),
        "fig6.10": Entry(
            "nearsight.experiments.studies.cachier.scale.figures",
            "Over the number of classes: latency, its parts, and bandwidth; six configurations.",
            "Cachier dissertation, 6.5",
            "Figure6x10",
        ),
        "fig6.11": Entry(
            "nearsight.experiments.studies.cachier.scale.figures",
            "Over the number of classes: CPU of edge and cloud; uses the rows of fig6.10.",
            "Cachier dissertation, 6.5",
            "Figure6x11",
        ),
        "fig6.12": Entry(
            "nearsight.experiments.studies.cachier.scale.figures",
            "Over networks to the cloud: latency, its parts, and bandwidth; six configurations.",
            "Cachier dissertation, 6.6",
            "Figure6x12",
        ),
        "fig6.13": Entry(
            "nearsight.experiments.studies.cachier.scale.figures",
            "Over networks to the cloud: CPU of edge and cloud; uses the rows of fig6.12.",
            "Cachier dissertation, 6.6",
            "Figure6x13",
        ),
        "fig6.14": Entry(
            "nearsight.experiments.studies.cachier.scale.figures",
            "Over networks to the cloud: recall, precision, and who answers; uses the rows of fig6.12.",
            "Cachier dissertation, 6.6",
            "Figure6x14",
        ),
        "table6.4": Entry(
            "nearsight.experiments.studies.cachier.scale.table6_4",
            "What grows with which variable, and the full system against only-cloud; uses figures' rows.",
            "Cachier dissertation, 6.7",
        ),
        "map": Entry(
            "nearsight.experiments.studies.map.where_it_loses",
            "Where the full system loses to a simpler one, and by how much: 216 operating points.",
            "beyond the Cachier dissertation's 6.7",
        ),
        "fig6.15": Entry(
            "nearsight.experiments.studies.cachier.fig6_15",
            "Presence of 20 devices, and how long a get takes in their store and in Kademlia.",
            "Cachier dissertation, 6.8",
        ),
        "peers": Entry(
            "nearsight.experiments.studies.peers.peers",
            "Devices that share: nothing is lost when they die, and less is downloaded from the edge.",
            "Cachier dissertation, 5.1.1 and 5.3",
        ),
        "crowd": Entry(
            "nearsight.experiments.studies.crowd.crowd",
            "Hit ratio after a crowd moves to another section, for estimates that forget and that do not.",
            "beyond the Cachier dissertation's 3.3.2.2",
        ),
        "guests": Entry(
            "nearsight.experiments.studies.guests.guests",
            "What an edge gains by fetching ahead while nobody asks, and by a bounded prior.",
            "beyond the Cachier dissertation's chapter 3",
        ),
        "multi-user": Entry(
            "nearsight.experiments.studies.cachier.multi_user",
            "Latency at one edge under growing load: no method, bounded compute time, load balancing.",
            "Cachier dissertation, 3.5.1",
        ),
        "adaptation": Entry(
            "nearsight.experiments.studies.adaptation.adaptation",
            "Recall, precision and lookup time with models adapted to the light, own and shared; forgers.",
            "Cachier dissertation, 5.1.1.1",
        ),
        "prefetching": Entry(
            "nearsight.experiments.studies.cachier.prefetching",
            "Only cloud, edge cache, prefetching with 600 and with an adaptive number of features.",
            "Cachier dissertation, 6.2.3 to 6.3",
        ),
        "twin-validation": Entry(
            "nearsight.experiments.studies.twin_validation.twin_validation",
            "The simulation against the testbed, on the same traces: latency and who answered.",
            "Cachier dissertation, 6.2",
        ),
    }
)


def find_experiment(name: str, entries: Mapping[str, Entry] = EXPERIMENTS) -> Experiment:
    """The experiment of this name.

    Raises
    ------
    NotFound
        If there is none.
    """
    entry = entries.get(name)
    if entry is None:
        raise NotFound(f"there is no experiment {name!r}", advice=f"choose one of: {', '.join(entries)}")
    figure = getattr(importlib.import_module(entry.module), entry.figure)()
    if not isinstance(figure, Experiment):
        raise NotFound(f"{entry.module}.{entry.figure} is no experiment")
    return figure
