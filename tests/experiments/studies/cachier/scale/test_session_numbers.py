"""Metrics of a session, computed from its requests."""

from __future__ import annotations

import math

import pytest

from nearsight.experiments.rig.rows import RECOGNIZED, RequestRow
from nearsight.experiments.rig.session import Played
from nearsight.experiments.studies.cachier.scale.operating_point import BASELINE
from nearsight.experiments.studies.cachier.scale.session_numbers import session_row, split


def request(by: str, latency_ms: float, **more: float) -> RequestRow:
    """A recognised photo of object a."""
    values = {"edge_queue_ms": 0.0, "edge_compute_ms": 0.0, "edge_next_tier_ms": 0.0}
    values |= {"cloud_queue_ms": 0.0, "cloud_compute_ms": 0.0, **more}
    return RequestRow("full", "v", 0, 0.0, 0.0, "a", "a", RECOGNIZED, 1, by, latency_ms, **values)  # type: ignore[arg-type]


def failed(latency_ms: float) -> RequestRow:
    return RequestRow("full", "v", 0, 0.0, 0.0, "a", "", "DeadlineExceeded", 1, "", latency_ms)


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        (request("device", 9.0), (9, 0, 0, 0, 0)),
        (request("edge", 20.0, edge_queue_ms=4, edge_compute_ms=10), (6, 10, 0, 4, 0)),
        (request("cloud", 60.0, cloud_queue_ms=5, cloud_compute_ms=20), (0, 0, 20, 5, 35)),
        (
            request("cloud", 90.0, edge_compute_ms=10, edge_next_tier_ms=70, cloud_compute_ms=25),
            (10, 10, 25, 0, 45),
        ),
    ],
)
def test_the_parts_of_a_latency_add_up(row: RequestRow, parts: tuple[float, ...]) -> None:
    found = split([row])
    assert tuple(found.values()) == parts
    assert sum(parts) == row.latency_ms


@pytest.mark.parametrize(
    "after_ms", [20.0, 5000.0, math.nan], ids=["refused at once", "at the deadline", "lost"]
)
def test_requests_without_an_answer_count_as_five_seconds(after_ms: float) -> None:
    played = Played((request("edge", 10.0), failed(after_ms)), None, seconds=10.0)
    row = session_row(BASELINE, "full", 1, played, {})
    assert (row["requests"], row["failed"]) == (2, 1)
    assert row["mean_ms"] == pytest.approx(2505.0)
    assert row["recall"] == pytest.approx(0.5)
    assert row["precision"] == 1.0


def test_cpu_is_a_share_of_all_cores_of_a_tier_and_bytes_are_per_second() -> None:
    asked, used = (request("cloud", 60.0),), {"cloud": 12.0}
    played = Played(asked, None, cpu_s=used, seconds=10.0, up_bytes=25_000, down_bytes=1_250)
    row = session_row(BASELINE, "only-cloud", 1, played, {"cloud": 24, "edge": 8})
    assert (row["cloud_cpu"], row["edge_cpu"]) == (0.05, 0.0)
    assert (row["up_kbps"], row["down_kbps"]) == (20.0, 1.0)


def test_shares_of_tiers_are_of_all_requests() -> None:
    rows = (request("edge", 10.0), request("edge", 12.0), request("device", 5.0), failed(5000.0))
    row = session_row(BASELINE, "full", 1, Played(rows, None, seconds=10.0), {})
    assert (row["by_device"], row["by_edge"], row["by_cloud"]) == (0.25, 0.5, 0.0)


def test_without_requests_there_is_no_latency() -> None:
    row = session_row(BASELINE, "full", 1, Played((), None, seconds=1.0), {})
    assert (row["p50_ms"], row["failed"]) == ("", 0)
