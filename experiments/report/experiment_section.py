"""One experiment on the page: what the paper says, every result of it, testbed and twin beside each other."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Mapping

from nearsight.common.errors import CorruptStore
from nearsight.experiments.figures.experiment import Experiment
from nearsight.experiments.figures.registry import Entry, find_experiment
from nearsight.experiments.report.collecting import Collection, Result
from nearsight.experiments.report.comparison import Comparison, Pair, Table, compare, paired
from nearsight.experiments.report.embedded_rows import EmbeddedRows, embed_rows
from nearsight.experiments.report.markup import Markup, tag, together
from nearsight.experiments.report.paper import Published, published
from nearsight.experiments.report.pieces import (
    anchor,
    data_table,
    moment,
    opens,
    paragraphs,
    shell,
    tally,
    targets_table,
)
from nearsight.experiments.report.settings_of_runs import command, in_words

_MANY_ROWS = 15
FAR_OFF, FAR_OFF_POINTS = 0.15, 3.0
"""Relative error, and error of shares in points, from which a number of the twin is marked: its targets."""


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
        *(_compared(figure, testbed, twin) for testbed, twin in pairs),
        *(
            _result(figure, result, opened=place == 0, pictured=result.folder not in beside)
            for place, result in enumerate(results)
        ),
        id=anchor(name),
        class_="experiment",
    )


def notice(text: str, typed: str = "") -> Markup:
    """A line that asks for attention, with the command that helps."""
    return tag("p", text, " " if typed else "", shell(typed) if typed else "", class_="notice")


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


def _result(figure: Experiment, result: Result, *, opened: bool, pictured: bool) -> Markup:
    """One folder; its picture may stand beside another's already."""
    label = together(
        [
            tag("span", result.folder.name, class_="folder"),
            tag("span", in_words(result.configuration), class_="options"),
            tag("span", "smoke run: not counted", class_="badge") if result.smoke else tally(result.targets),
        ]
    )
    return opens(
        label,
        *(notice(problem) for problem in result.problems),
        _picture(result) if pictured else "",
        _table(figure, result),
        _targets(result),
        _rows(result),
        opens("Machine, versions, options", _provenance(result)),
        opened=opened,
        class_="result",
    )


def _picture(result: Result) -> Markup | str:
    """Fits the page; a tap shows it in its own size."""
    if not result.picture:
        return ""
    source = "data:image/png;base64," + base64.b64encode(result.picture).decode()
    text = f"{result.experiment}, {in_words(result.configuration)}"
    zoom = tag("input", type="checkbox", aria_label=f"{text}: full size")
    return tag("figure", tag("label", zoom, tag("img", src=source, alt=text), title="Full size"))


def table_of(figure: Experiment, result: Result) -> Table | None:
    """As the command line prints it; None if this version cannot read the summary."""
    try:
        return figure.table(result.metrics)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError):
        return None  # any version may have written the summary, of any shape


def _table(figure: Experiment, result: Result) -> Markup:
    table = table_of(figure, result)
    if table is None:
        again = command(result.experiment, result.configuration, result.folder, verb="plot")
        return notice(
            "Its numbers are of another version, which had other tables; this computes them anew:", again
        )
    columns, rows = table
    return data_table(columns, rows, f"{len(rows)} rows" if len(rows) > _MANY_ROWS else "")


def _targets(result: Result) -> Markup:
    if not result.targets:
        return tag("p", "It has no targets.", class_="quiet")
    heading = "Targets (of a smoke run: not counted)" if result.smoke else "Targets"
    return together([tag("h4", heading), targets_table(result.targets)])


def _rows(result: Result) -> Markup:
    path = result.folder / "rows.csv"
    if not path.is_file():
        return together([])
    try:
        embedded = embed_rows(path)
    except CorruptStore as error:
        return notice(f"{error}: no rows can be downloaded.")
    name = f"{result.folder.name}-rows.csv"
    link = tag("a", f"Download {name}", href=embedded.link, download=name, class_="download")
    return tag("p", link, " ", _told(embedded, path.as_posix()), class_="rows")


def _told(embedded: EmbeddedRows, path: str) -> Markup:
    size = f"{embedded.size_bytes / 1e3:,.0f} kB"
    if embedded.step == 1:
        kept = f"All {embedded.rows:,} rows, {size}."
    else:
        kept = (
            f"{embedded.kept:,} of {embedded.rows:,} rows, {size}: every {embedded.step}th; "
            f"the others are left out here, and are in {path}."
        )
    if not embedded.constant:
        return together([kept])
    columns = [(column, value) for column, value in embedded.constant.items()]
    left_out = f"{len(columns)} columns are left out, as they say the same in every row"
    return together([kept, opens(left_out, data_table(("column", "value"), columns), class_="inline")])


def _provenance(result: Result) -> Markup:
    environment = result.environment
    rows = [
        ("folder", result.folder.as_posix()),
        ("again", shell(command(result.experiment, result.configuration, result.folder))),
        ("options", in_words(result.configuration)),
        *([("rows measured by", result.rows_of)] if result.rows_of else []),
        ("date", moment(environment.get("created", ""))),
        ("machine", _machine(environment)),
        ("system", environment.get("system", "")),
        ("load at the start", ", ".join(map(str, environment.get("load_average", ())))),
        ("commit", _commit(str(environment.get("commit", "")))),
        ("Python", environment.get("python", "")),
        *dict(environment.get("versions", {})).items(),
    ]
    return data_table(("", ""), rows)


def _machine(environment: Mapping[str, object]) -> str:
    name, cores, memory = (environment.get(key, "?") for key in ("machine", "cores", "memory_gib"))
    return f"{name}, {cores} cores, {memory} GiB"


def _commit(commit: str) -> str:
    if not commit:
        return "unknown: not run from a repository"
    return f"{commit.removesuffix('+')}, with uncommitted changes" if commit.endswith("+") else commit


def _compared(figure: Experiment, testbed: Result, twin: Result) -> Markup:
    tables = table_of(figure, testbed), table_of(figure, twin)
    found = compare(tables[0], tables[1]) if tables[0] is not None and tables[1] is not None else None
    pictures = (
        tag(
            "div",
            tag("h5", one.folder.name, " ", tag("span", in_words(one.configuration), class_="options")),
            _picture(one),
        )
        for one in (testbed, twin)
    )
    return tag(
        "div",
        tag("h4", "Testbed and twin"),
        tag("div", *pictures, class_="pair"),
        notice("Their tables cannot be compared row by row.") if found is None else _errors(found),
        class_="comparison",
    )


def _errors(comparison: Comparison) -> Markup:
    rows = [
        *((*name, *(_pair(pair) for pair in pairs)) for name, pairs in comparison.rows),
        (
            tag("b", "median and largest error"),
            *("" for _ in comparison.names[1:]),
            *(
                " to ".join(one.error_in_words("") for one in both) if both else ""
                for both in comparison.errors()
            ),
        ),
    ]
    columns = (*comparison.names, *comparison.columns)
    lacking = ", ".join(f"{count} rows of the {which}" for which, count in comparison.only.items() if count)
    return together(
        [
            tag(
                "p",
                "Testbed → twin, and the twin's error; over 15 %, or 3 points of a share, is marked.",
                class_="quiet",
            ),
            tag("div", data_table(columns, rows, "testbed → twin"), class_="errors"),
            notice(f"Not compared, as the other side lacks them: {lacking}.") if lacking else "",
        ]
    )


def _pair(pair: Pair) -> Markup:
    most = FAR_OFF_POINTS if pair.points else FAR_OFF
    far = pair.error is not None and abs(pair.error) > most
    values = pair.twin if pair.testbed == pair.twin else f"{pair.testbed} → {pair.twin}"
    error = "" if pair.testbed == pair.twin else pair.error_in_words()
    return together([values, " ", tag("span", error, class_="error far" if far else "error")])
