"""The output of the demo: a table for the terminal, ``summary.json`` for programs, targets and warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from nearsight.common.errors import Unavailable
from nearsight.common.request.answer import RESULT
from nearsight.experiments.demo.scenario import ALONE, EDGE_CACHE, ONLY_CLOUD, Scenario
from nearsight.experiments.rig.rows import (
    ANSWERS,
    LATE_MS,
    Metrics,
    RequestRow,
    latency_in_words,
    summarise,
)


@dataclass(frozen=True, slots=True)
class ConfigurationResult:
    """Results of one configuration."""

    name: str
    """Name of the configuration."""
    rows: tuple[RequestRow, ...]
    """One per photo."""
    bytes: dict[str, dict[str, int]]
    """Link → {"up", "down"} bytes on it."""
    cpu_s: dict[str, float]
    """Daemon → CPU seconds during the replay."""
    link: dict[str, object]
    """Calibration and counters of the shaped link."""
    timeout_s: float
    """Deadline of each request [s]."""

    @property
    def metrics(self) -> Metrics:
        """Summary of the rows."""
        return summarise(self.rows, self.timeout_s)

    def as_dict(self) -> dict[str, object]:
        """For ``summary.json``."""
        return {
            **{name: _rounded(value) for name, value in asdict(self.metrics).items()},
            "bytes": self.bytes,
            "cpu_s": {name: round(seconds, 2) for name, seconds in self.cpu_s.items()},
            "link": self.link,
        }


@dataclass(frozen=True, slots=True)
class Target:
    """A value that the demo should reach."""

    name: str
    """Description of the value."""
    value: float | None
    """Measured value; None if there is none."""
    limit: float
    """Limit with which it is compared."""
    reached: bool | None
    """Whether the value meets the limit; None: not judged, because the demo was smaller than the default."""


def targets(scenario: Scenario, results: Sequence[ConfigurationResult]) -> list[Target]:
    """The demo's targets for the configurations that ran."""
    found = []
    metrics = {result.name: result.metrics for result in results}
    if {ONLY_CLOUD, EDGE_CACHE} <= metrics.keys():
        slow, fast = (metrics[name].latency_ms.get("p50") for name in (ONLY_CLOUD, EDGE_CACHE))
        ratio = fast / slow if fast and slow else None
        found.append(
            Target("p50 with the edge cache / p50 of only-cloud", ratio, 0.5, bool(ratio and ratio <= 0.5))
        )
    if {EDGE_CACHE, ALONE} <= metrics.keys():
        before, after = (metrics[name].recall for name in (EDGE_CACHE, ALONE))
        kept = after / before if after is not None and before else None
        found.append(Target("recall kept without the cloud", kept, 0.9, bool(kept and kept >= 0.9)))
    for name, metric in metrics.items():
        if name == ALONE:
            continue
        for what, value, limit in (("recall", metric.recall, 0.90), ("precision", metric.precision, 0.98)):
            found.append(Target(f"{what} of {name}", value, limit, value is not None and value >= limit))
    return found if scenario.judged else [replace(target, reached=None) for target in found]


def warnings(results: Sequence[ConfigurationResult]) -> list[str]:
    """Reasons to doubt the results: an overloaded machine, or a link that differs from the requested one."""
    found = []
    for result in results:
        late_ms = result.metrics.sent_late_ms
        if late_ms > LATE_MS:
            found.append(
                f"{result.name}: photos were sent {late_ms:.0f} ms late (p99): the machine was overloaded"
            )
        calibration = result.link.get("calibration")
        if isinstance(calibration, Mapping) and not calibration.get("within_target", True):
            found.append(f"{result.name}: the link differs from the requested shape by more than 3 %")
    return found


def check_answers(results: Sequence[ConfigurationResult]) -> None:
    """Check that every outcome before the cloud was killed is an answer.

    Raises
    ------
    Unavailable
        If a request failed; with the number of requests by error.
    """
    for result in results:
        outcomes = result.metrics.outcomes
        failed = {name: count for name, count in outcomes.items() if name not in ANSWERS}
        if failed and result.name != ALONE:
            kinds = ", ".join(f"{count} {name}" for name, count in failed.items())
            raise Unavailable(
                f"{result.name}: no answer to {sum(failed.values())} of {len(result.rows)} requests: {kinds}",
                advice="is the machine busy with other work? See the logs in the results folder",
            )


def summary(
    scenario: Scenario,
    results: Sequence[ConfigurationResult],
    environment: Mapping[str, object],
    timings_s: Mapping[str, float],
) -> dict[str, object]:
    """The content of ``summary.json``."""
    return {
        "scenario": asdict(scenario),
        "seed": scenario.seed,
        "configurations": {result.name: result.as_dict() for result in results},
        "targets": [_rounded(asdict(target)) for target in targets(scenario, results)],
        "warnings": warnings(results),
        "timings_s": {name: round(seconds, 1) for name, seconds in timings_s.items()},
        "environment": dict(environment),
    }


def table(results: Sequence[ConfigurationResult]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the table: one row per metric, one column per configuration."""
    columns = ["", *(result.name for result in results)]
    cells = [_cells(result) for result in results]
    names = list(dict.fromkeys(name for column in cells for name in column))
    return columns, [[name, *(column.get(name, "-") for column in cells)] for name in names]


def _cells(result: ConfigurationResult) -> dict[str, str]:
    metrics = result.metrics
    cells = {"requests / answered": f"{metrics.requests} / {metrics.answered}"}
    cells |= {
        f"latency {name} [ms]": latency_in_words(value, result.timeout_s, 1)
        for name, value in metrics.latency_ms.items()
    }
    cells["recall"] = _ratio(metrics.recall)
    cells["precision"] = _ratio(metrics.precision)
    cells["wrong answers"] = str(metrics.wrong)
    if kept := sum(row.grain == RESULT for row in result.rows):
        cells["by the result cache"] = f"{kept} ({100 * kept / metrics.requests:.0f} %)"
    for tier in ("device", "edge", "cloud"):
        if tier in metrics.answered_by:
            count = metrics.answered_by[tier]
            cells[f"answered by {tier}"] = f"{count} ({100 * count / metrics.requests:.0f} %)"
    for link, ways in result.bytes.items():
        cells[f"{link} link ↑ / ↓ [MB]"] = f"{ways['up'] / 1e6:.2f} / {ways['down'] / 1e6:.2f}"
    cells |= {f"CPU {name} [s]": f"{seconds:.1f}" for name, seconds in result.cpu_s.items()}
    cells["sent late, p99 [ms]"] = f"{metrics.sent_late_ms:.1f}"
    return cells


def describe_link(result: ConfigurationResult) -> str:
    """The measured error of the shaped link, in one line."""
    calibration, up = result.link.get("calibration"), result.link.get("up")
    if not isinstance(calibration, Mapping):
        return f"{result.name}: link not calibrated"
    late = (
        f"; in use, deliveries up to {up['late_p99_ms']:.1f} ms late (p99)" if isinstance(up, Mapping) else ""
    )
    return (
        f"{result.name}: link measured {calibration['rtt_ms']:.2f} ms RTT "
        f"(error {calibration['rtt_error_ms']:+.2f} ms), "
        f"{calibration['up_mbps']:.2f}↑ {calibration['down_mbps']:.2f}↓ Mbit/s "
        f"(errors {calibration['up_error_percent']:+.1f} %, {calibration['down_error_percent']:+.1f} %){late}"
    )


def describe_answers(results: Sequence[ConfigurationResult]) -> str:
    """Whether all photos were answered, in one or two sentences."""
    rows = [row for one in results for row in one.rows]
    failed = sum(not row.is_answered for row in rows)
    if not failed:
        return f"Every one of {len(rows)} requests got exactly one answer."
    return (
        f"Every one of {len(rows)} requests got exactly one outcome; {failed} were errors, because the cloud "
        "was killed before the standby had the whole catalogue."
    )


def describe_target(target: Target) -> str:
    """One target, in one line."""
    value = "-" if target.value is None else f"{target.value:.3f}"
    sign = "≤" if "/" in target.name else "≥"
    verdict = {True: "reached", False: "MISSED ", None: "not judged"}[target.reached]
    return f"{verdict}  {target.name}: {value} (target {sign} {target.limit:g})"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _rounded(value: object) -> object:
    """Round floats to four decimals, recursively."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, Mapping):
        return {name: _rounded(inner) for name, inner in value.items()}
    return value
