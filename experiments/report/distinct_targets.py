"""Targets over several results: experiments that share the rows of a run may share targets of them, too."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from nearsight.experiments.report.collecting import Result, Target


def distinct_targets(results: Iterable[Result]) -> list[tuple[Target, list[Result]]]:
    """Every target once, with the results of different experiments that have it with the same value.

    Runs of one experiment with the same options are kept apart, even where their values agree.
    """
    found: dict[tuple[str, int, Target], list[Result]] = {}
    runs: Counter[tuple[str, str]] = Counter()
    for result in results:
        options = json.dumps(result.configuration, sort_keys=True, default=str)
        run = runs[result.experiment, options]
        runs[result.experiment, options] += 1
        for target in dict.fromkeys(result.targets):
            found.setdefault((options, run, target), []).append(result)
    return [(target, shared) for (_, _, target), shared in found.items()]


def reached_in_words(results: Iterable[Result]) -> str:
    """Such as "3 of 4"."""
    targets = distinct_targets(results)
    return f"{sum(target.reached for target, _ in targets)} of {len(targets)}"
