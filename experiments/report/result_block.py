"""One result on the page: picture, table, targets, rows to download, and where it was measured."""

from __future__ import annotations

import base64

from nearsight.common.errors import CorruptStore
from nearsight.experiments.framework.experiment import Experiment
from nearsight.experiments.report.collecting import Result
from nearsight.experiments.report.comparison import Table
from nearsight.experiments.report.embedded_rows import EmbeddedRows, embed_rows
from nearsight.experiments.report.markup import Markup, tag, together
from nearsight.experiments.report.pieces import (
    data_table,
    moment,
    notice,
    opens,
    shell,
    tally,
    targets_table,
)
from nearsight.experiments.report.settings_of_runs import command, in_words

_MANY_ROWS = 15


def result_block(figure: Experiment, result: Result, *, opened: bool, pictured: bool) -> Markup:
    """One folder; its picture may stand beside another's already."""
    label = together(
        [
            tag("span", result.folder.name, class_="folder"),
            tag("span", in_words(result.configuration), class_="options"),
            tag("span", "smoke run: not counted", class_="badge")
            if result.smoke
            else tally(result.targets, "targets"),
        ]
    )
    return opens(
        label,
        *(notice(problem) for problem in result.problems),
        picture(result) if pictured else "",
        _table(figure, result),
        _targets(result),
        _rows(result),
        opens("Machine, versions, options", _provenance(result)),
        opened=opened,
        class_="result",
    )


def picture(result: Result) -> Markup | str:
    """Fits the page; a tap shows it in its own size."""
    if not result.picture:
        return ""
    source = "data:image/png;base64," + base64.b64encode(result.picture).decode()
    text = f"{result.experiment}, {in_words(result.configuration)}"
    zoom = tag("input", type="checkbox", aria_label=f"{text}: full size")
    return tag(
        "figure", tag("label", zoom, tag("img", src=source, alt=text, decoding="async"), title="Full size")
    )


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
    return tag("div", link, " ", _told(embedded, path.as_posix()), class_="rows")


def _told(embedded: EmbeddedRows, path: str) -> Markup:
    size = f"{embedded.size_bytes / 1e3:,.0f} kB"
    if embedded.step == 1:
        kept = f"All {embedded.rows:,} rows, {size}."
    else:
        kept = (
            f"{embedded.kept:,} of {embedded.rows:,} rows, {size}: one of every {embedded.step}; "
            f"the others are left out here, and are in {path}."
        )
    if not embedded.constant:
        return together([kept])
    columns = [(column, value) for column, value in embedded.constant.items()]
    left_out = f"{len(columns)} columns are left out, as they say the same in every row"
    return together([kept, opens(left_out, data_table(("column", "value"), columns))])


def _provenance(result: Result) -> Markup:
    where = result.environment
    rows = [
        ("folder", result.folder.as_posix()),
        ("again", shell(command(result.experiment, result.configuration, result.folder))),
        ("options", in_words(result.configuration)),
        *([("rows measured by", result.rows_of)] if result.rows_of else []),
        ("date", moment(where.created)),
        ("machine", f"{where.machine}, {where.cores} cores, {where.memory_gib} GiB"),
        ("system", where.system),
        ("load at the start", ", ".join(map(str, where.load_average))),
        ("commit", _commit(where.commit)),
        ("Python", where.python),
        *where.versions.items(),
    ]
    return data_table(("", ""), rows)


def _commit(commit: str) -> str:
    if not commit:
        return "unknown: not run from a repository"
    return f"{commit.removesuffix('+')}, with uncommitted changes" if commit.endswith("+") else commit
