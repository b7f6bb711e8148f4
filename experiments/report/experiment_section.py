"""One experiment on the page: what the paper says, every result of it, testbed and twin beside each other."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from nearsight.experiments.framework.experiment import Experiment
from nearsight.experiments.framework.registry import Entry, find_experiment
from nearsight.experiments.report.collecting import Collection
from nearsight.experiments.report.comparison import paired
from nearsight.experiments.report.markup import Markup, tag
from nearsight.experiments.report.paper import Published, published
from nearsight.experiments.report.pieces import anchor, data_table, notice, opens, paragraphs
from nearsight.experiments.report.result_block import result_block
from nearsight.experiments.report.settings_of_runs import command
from nearsight.experiments.report.testbed_and_twin import compared, not_compared


def experiment_section(name: str, entries: Mapping[str, Entry], collection: Collection) -> Markup:
    """Everything about one experiment."""
    results, unusable = collection.of(name), collection.unusable_of(name)
    counted = [result for result in results if not result.smoke]
    entry, figure = entries[name], find_experiment(name, entries)
    pairs = [
        (counted[real], counted[twin]) for real, twin in paired([result.configuration for result in counted])
    ]
    beside = {result.folder for pair in pairs for result in pair}
    return tag(
        "section",
        tag("h3", tag("a", name, href=f"#{anchor(name)}"), class_="name"),
        tag("p", entry.shows, " ", tag("span", entry.source, class_="source"), class_="shows"),
        _paper(published().get(name)),
        opens("How it is measured here", paragraphs(_description(figure))),
        "" if counted or unusable else _not_run(name, smoke=bool(results)),
        *(notice(f"{one.folder.name}: {one.why}.", one.command) for one in unusable),
        *(compared(figure, testbed, twin) for testbed, twin in pairs),
        not_compared(counted, pairs),
        *(
            result_block(figure, result, opened=place == 0, pictured=result.folder not in beside)
            for place, result in enumerate(results)
        ),
        id=anchor(name),
        class_="experiment",
    )


def _paper(said: Published | None) -> Markup:
    if said is None:
        return tag("aside", tag("h4", "In the paper"), tag("p", "It prints nothing to compare with."))
    values = data_table(said.columns, said.rows) if said.rows else ""
    return tag(
        "aside",
        tag("h4", "In the paper", tag("span", said.where, class_="source")),
        values,
        tag("ul", *(tag("li", sentence) for sentence in said.says)),
        tag("p", said.setup, class_="setup") if said.setup else "",
    )


def _description(figure: Experiment) -> str:
    """The modules of the figure and of what it shares with others say how it is measured."""
    classes = [one for one in type(figure).__mro__ if issubclass(one, Experiment) and one is not Experiment]
    modules = dict.fromkeys(inspect.getmodule(one) for one in classes)
    return "\n\n".join(filter(None, (inspect.getdoc(module) for module in modules if module)))


def _not_run(name: str, *, smoke: bool) -> Markup:
    only = "Only a smoke run is here, which measures too little to judge by." if smoke else "No results yet."
    return notice(f"{only} They are made by", command(name, {}))
