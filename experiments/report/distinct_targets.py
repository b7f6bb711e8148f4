"""Targets over several results: experiments that share the rows of a run may share targets of them, too."""

from __future__ import annotations

import json
from collections.abc import Iterable

from nearsight.experiments.report.collecting import Result, Target


def distinct_targets(results: Iterable[Result]) -> list[tuple[Target, list[Result]]]:
    """Every target of every run once, with the results that have it."""
    found: dict[tuple[str, Target], list[Result]] = {}
    for result in results:
        run = json.dumps([result.configuration, result.environment.model_dump()], sort_keys=True, default=str)
        for target in dict.fromkeys(result.targets):
            found.setdefault((run, target), []).append(result)
    return [(target, shared) for (_, target), shared in found.items()]


def reached_in_words(results: Iterable[Result]) -> str:
    """Such as "3 of 4"."""
    targets = distinct_targets(results)
    return f"{sum(target.reached for target, _ in targets)} of {len(targets)}"
