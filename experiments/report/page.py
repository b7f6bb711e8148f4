"""The whole page: one file that needs no network, light or dark, on paper and on a phone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files

from nearsight.experiments.framework.registry import Entry
from nearsight.experiments.report.collecting import Collection, Environment
from nearsight.experiments.report.contents import chapters
from nearsight.experiments.report.experiment_section import experiment_section
from nearsight.experiments.report.markup import Markup, tag
from nearsight.experiments.report.overview import contents, overview
from nearsight.experiments.report.pieces import moment

TITLE = "nearsight: the papers' tables and figures, measured"
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Browsers then refuse whatever would leave the file."""


def build_page(
    collection: Collection,
    made: Environment,
    entries: Mapping[str, Entry],
    begin: Callable[[str], None] = lambda _name: None,
) -> str:
    """Write the page.

    Parameters
    ----------
    collection : Collection
        What was found in the folder of results.
    made : Environment
        Of the report itself: when and with what it is written.
    entries : mapping
        The experiments; those without results are listed, too.
    begin : callable
        Hears the name of every experiment before its section is written.
    """
    found = chapters(entries)
    main = [_header(collection, made), overview(found, collection)]
    for chapter in found:
        main.append(tag("h2", chapter.title, class_="chapter"))
        for name in chapter.experiments:
            begin(name)
            main.append(experiment_section(name, entries, collection))
    body = tag("body", contents(found, entries, collection), tag("main", *main))
    return "<!DOCTYPE html>\n" + tag("html", _head(), body, lang="en") + "\n"


def _head() -> Markup:
    style = files("nearsight.experiments.report").joinpath("style.css").read_text(encoding="utf-8")
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", TITLE),
        tag("style", Markup(style)),
    )


def _header(collection: Collection, made: Environment) -> Markup:
    measured_on = {
        f"{result.environment.machine} with {result.environment.cores} cores"
        for result in collection.results
        if not result.smoke
    }
    where = f", commit {made.commit}" if made.commit else ""
    return tag(
        "header",
        tag("h1", TITLE),
        tag(
            "p",
            f"Report of {moment(made.created)}, nearsight {made.versions.get('nearsight', '')}{where}; "
            f"results in {collection.root}.",
        ),
        tag("p", "Measured on: " + "; ".join(sorted(measured_on)) + ".") if measured_on else "",
        class_="quiet",
    )
