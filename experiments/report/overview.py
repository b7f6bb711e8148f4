"""The top of the page: how many targets were reached, by which result, and which were missed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nearsight.experiments.framework.registry import Entry
from nearsight.experiments.report.collecting import Collection, Result
from nearsight.experiments.report.contents import Chapter
from nearsight.experiments.report.distinct_targets import distinct_targets, reached_in_words
from nearsight.experiments.report.markup import Markup, tag, together
from nearsight.experiments.report.pieces import (
    anchor,
    data_table,
    measured,
    moment,
    opens,
    shell,
    tally,
    told,
    verdict,
)
from nearsight.experiments.report.settings_of_runs import command, in_words


def overview(chapters: Sequence[Chapter], collection: Collection) -> Markup:
    """Verdicts first, then what is behind them."""
    names = [name for chapter in chapters for name in chapter.experiments]
    counted = [result for name in names for result in collection.of(name) if not result.smoke]
    return tag(
        "section",
        tag("h2", "Summary"),
        _headline(counted, names, collection),
        _by_result(counted),
        _targets(counted),
        _missing(names, counted, collection),
        id="summary",
    )


def contents(chapters: Sequence[Chapter], entries: Mapping[str, Entry], collection: Collection) -> Markup:
    """The list of contents: chapters and experiments, each with its tally."""
    parts = [tag("a", "Summary", href="#summary", class_="top")]
    for chapter in chapters:
        items = (
            tag(
                "li",
                tag("a", name, href=f"#{anchor(name)}", title=entries[name].shows),
                " ",
                _mark(collection.of(name)),
            )
            for name in chapter.experiments
        )
        parts += [tag("b", chapter.title), tag("ul", *items)]
    return tag("nav", tag("h2", "Contents"), *parts, aria_label="Contents")


def _mark(results: Iterable[Result]) -> Markup:
    """Of the first result: other seeds and machines have tallies of their own."""
    first = next((result for result in results if not result.smoke), None)
    if first is None:
        return tag("span", "no results", class_="tally none")
    return tally(first.targets)


def _headline(counted: Sequence[Result], names: Sequence[str], collection: Collection) -> Markup:
    first = {result.experiment: result for result in reversed(counted)}
    further = len(counted) - len(first)
    smoke = sum(result.smoke for result in collection.results)
    facts = [
        f"{reached_in_words(counted)} with {further} further results: other seeds, machines, data"
        if further
        else "",
        f"{len(names) - len(first)} experiments without results" if len(first) < len(names) else "",
        f"{smoke} smoke runs, not counted" if smoke else "",
        f"{len(collection.unusable)} folders without a usable result" if collection.unusable else "",
        "a target that several experiments have for the same run counts once",
    ]
    first_of_each = tag("b", reached_in_words(list(first.values())))
    return together(
        [
            tag("p", first_of_each, f" targets reached by {len(first)} experiments", class_="headline"),
            tag("p", "; ".join(filter(None, facts)), class_="quiet"),
        ]
    )


def _by_result(counted: Sequence[Result]) -> Markup:
    rows = [
        (
            tag("a", result.folder.name, href=f"#{anchor(result.experiment)}"),
            in_words(result.configuration),
            moment(result.environment.created),
            tally(result.targets),
        )
        for result in counted
    ]
    return (
        data_table(("result", "options", "measured", "targets reached"), rows, whole=True)
        if rows
        else together([])
    )


def _targets(counted: Sequence[Result]) -> Markup:
    """All of them: the missed ones in view, the reached ones to be opened."""
    found = distinct_targets(counted)
    parts = []
    for reached, heading in ((False, "Missed targets"), (True, "Reached targets")):
        rows = [
            (verdict(target.reached), _links(results), told(target), measured(target.value))
            for target, results in found
            if target.reached == reached
        ]
        if rows:
            table = data_table(("", "result", "target", "measured"), rows, whole=True)
            parts.append(opens(f"{heading} ({len(rows)})", table, opened=not reached))
    return together(parts)


def _links(results: Sequence[Result]) -> Markup:
    links = (
        tag("a", result.folder.name, href=f"#{anchor(result.experiment)}", class_="of") for result in results
    )
    return together(links)


def _missing(names: Sequence[str], counted: Sequence[Result], collection: Collection) -> Markup:
    """What there is not: experiments without results, and folders that hold none."""
    measured_names = {result.experiment for result in counted}
    lacking = [
        (tag("a", name, href=f"#{anchor(name)}"), shell(_mends(name, collection)))
        for name in names
        if name not in measured_names
    ]
    broken = [
        (one.folder.name, one.why, shell(one.command) if one.command else "") for one in collection.unusable
    ]
    return together(
        opens(f"{heading} ({len(rows)})", data_table(columns, rows, whole=True), opened=True)
        for heading, columns, rows in (
            ("Experiments without results", ("experiment", "made by"), lacking),
            ("Folders without a usable result", ("folder", "why", "what to do"), broken),
        )
        if rows
    )


def _mends(name: str, collection: Collection) -> str:
    """What goes on with a run that was begun, or begins one."""
    begun = (one.command for one in collection.unusable_of(name) if one.command)
    return next(begun, command(name, {}))
