"""Testbed and twin of one experiment on the page: pictures side by side, numbers with the twin's errors."""

from __future__ import annotations

from collections.abc import Sequence

from nearsight.experiments.framework.experiment import Experiment
from nearsight.experiments.report.collecting import Result
from nearsight.experiments.report.comparison import Comparison, Pair, compare
from nearsight.experiments.report.markup import Markup, tag, together
from nearsight.experiments.report.pieces import data_table, notice
from nearsight.experiments.report.result_block import picture, table_of
from nearsight.experiments.report.settings_of_runs import ON, TESTBED, TWIN, in_words

FAR_OFF, FAR_OFF_POINTS = 0.15, 3.0
"""Relative error, and error of shares in points, from which a number of the twin is marked: its targets."""


def compared(figure: Experiment, testbed: Result, twin: Result) -> Markup:
    """Both pictures, and every number of both tables with the error of the twin."""
    tables = table_of(figure, testbed), table_of(figure, twin)
    found = compare(tables[0], tables[1]) if tables[0] is not None and tables[1] is not None else None
    pictures = (
        tag(
            "div",
            tag("h5", one.folder.name, " ", tag("span", in_words(one.configuration), class_="options")),
            picture(one),
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


def not_compared(counted: Sequence[Result], pairs: Sequence[tuple[Result, Result]]) -> Markup | str:
    """Why a testbed's numbers stand alone beside those of a twin."""
    on = {str(result.configuration.get(ON)) for result in counted}
    if pairs or not {TESTBED, TWIN} <= on:
        return ""
    return tag(
        "p",
        "Testbed and twin are not compared cell by cell here: the testbed's machines are not those that the "
        "twin stands for, or their options differ.",
        class_="quiet",
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
