"""All experiments by name. They are imported when they are used: listing them imports none."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from nearsight.common.errors import NotFound
from nearsight.experiments.figures.experiment import Experiment


@dataclass(frozen=True, slots=True)
class Entry:
    """An experiment that can be run.

    Attributes
    ----------
    module : str
        Has a class ``Figure``, an `Experiment`.
    shows : str
        What, in one line.
    source : str
        Where in the papers it is from.
    """

    module: str
    shows: str
    source: str


EXPERIMENTS = MappingProxyType(
    {
        "fig3.2": Entry(
            "nearsight.experiments.figures.fig3_2",
            "Latency and hit ratio over static cache sizes, and the adaptive edge; five networks.",
            "Cachier dissertation, 3.2",
        ),
        "fig3.4": Entry(
            "nearsight.experiments.figures.fig3_4",
            "Latency, recall and precision over the cache size, for LSH, brute force and our backends.",
            "Cachier dissertation, 3.3.1",
        ),
        "table3.1": Entry(
            "nearsight.experiments.figures.table3_1",
            "recall(k), fitted; uses the rows of fig3.4.",
            "Cachier dissertation, 3.3.1.3",
        ),
        "table3.2": Entry(
            "nearsight.experiments.figures.table3_2",
            "f(k), fitted; uses the rows of fig3.4.",
            "Cachier dissertation, 3.3.1.4",
        ),
        "fig4.4": Entry(
            "nearsight.experiments.figures.fig4_4",
            "Latency, recall and precision on a device, for several numbers of features.",
            "Cachier dissertation, 4.5.2",
        ),
        "table4.1": Entry(
            "nearsight.experiments.figures.table4_1",
            "f_D(k) and recall_D(k), fitted; uses the rows of fig4.4.",
            "Cachier dissertation, 4.5.3",
        ),
        "fig6.3": Entry(
            "nearsight.experiments.figures.fig6_3",
            "How well Markov models of order 0 to 3 predict a visitor's next exhibit.",
            "Cachier dissertation, 6.2.5.2",
        ),
        "fig6.15": Entry(
            "nearsight.experiments.figures.fig6_15",
            "Presence of 20 devices, and how long a get takes in their store and in Kademlia.",
            "Cachier dissertation, 6.8",
        ),
        "peers": Entry(
            "nearsight.experiments.figures.peers",
            "Devices that share: nothing is lost when they die, and less is downloaded from the edge.",
            "Cachier dissertation, 5.1.1 and 5.3",
        ),
        "crowd": Entry(
            "nearsight.experiments.figures.crowd",
            "Hit ratio after a crowd moves to another section, for estimates that forget and that do not.",
            "beyond the Cachier dissertation's 3.3.2.2",
        ),
        "guests": Entry(
            "nearsight.experiments.figures.guests",
            "What an edge gains by fetching ahead while nobody asks, and by a bounded prior.",
            "beyond the Cachier dissertation's chapter 3",
        ),
        "multi-user": Entry(
            "nearsight.experiments.figures.multi_user",
            "Latency at one edge under growing load: no method, bounded compute time, load balancing.",
            "Cachier dissertation, 3.5.1",
        ),
        "adaptation": Entry(
            "nearsight.experiments.figures.adaptation",
            "Recall, precision and lookup time with models adapted to the light, own and shared; forgers.",
            "Cachier dissertation, 5.1.1.1",
        ),
        "prefetching": Entry(
            "nearsight.experiments.figures.prefetching",
            "Only cloud, edge cache, prefetching with 600 and with an adaptive number of features.",
            "Cachier dissertation, 6.2.3 to 6.3",
        ),
        "twin-validation": Entry(
            "nearsight.experiments.figures.twin_validation",
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
    figure = importlib.import_module(entry.module).Figure()
    if not isinstance(figure, Experiment):
        raise NotFound(f"{entry.module}.Figure is no experiment")
    return figure
