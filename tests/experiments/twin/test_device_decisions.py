"""Decisions of devices in complete sessions: local lookup or offloading."""

import numpy as np
import pytest

from nearsight.device.prefetching.profiler import AvoidableLatency
from nearsight.experiments.links.link import TABLE_6_3
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.twin.cost_model import Hardware
from nearsight.experiments.twin.session import ADAPTIVE, BOUNDED, TwinOutcome
from support.twin import crowd


def play(name: str, hardware: Hardware, unknown_share: float, visitors_at_once: int = 4) -> TwinOutcome:
    """A session of visitors with this share of unknown photos."""
    following = Following(visitors_at_once, 40.0, unknown_share)
    return crowd(following, hardware, TABLE_6_3["Slow"], earlier=20).play(name)


def by_device(outcome: TwinOutcome) -> float:
    return float(np.mean([row.answered_by == "device" for row in outcome.rows]))


def mean_ms(outcome: TwinOutcome) -> float:
    return float(np.mean([row.latency_ms for row in outcome.rows]))


def test_a_device_slower_than_its_edge_offloads_also_with_slow_unknown_photos() -> None:
    slow = Hardware(device_slowness=6.0)
    full = play(ADAPTIVE, slow, 0.2)
    assert by_device(full) < 0.1
    assert mean_ms(full) < 1.1 * mean_ms(play(BOUNDED, slow, 0.2))


def test_a_device_faster_than_its_edge_recognises_photos_itself() -> None:
    assert by_device(play(ADAPTIVE, Hardware(edge_slowness=6.0), 0.0)) > 0.6


def test_the_estimated_latency_decreases_after_an_overload_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known: list[AvoidableLatency] = []
    first_ms: list[float] = []

    class Watched(AvoidableLatency):
        """Records the latency of the first photo."""

        def observe(self, round_trip_ms: float, tier_ms: float, **rest: bool) -> None:
            if self not in known:
                known.append(self)
                first_ms.append(tier_ms)
            super().observe(round_trip_ms, tier_ms, **rest)

    monkeypatch.setattr("nearsight.device.prefetching.profiler.AvoidableLatency", Watched)
    outcome = play(ADAPTIVE, Hardware(edge=1, edge_slowness=4.0), 0.0, visitors_at_once=40)
    assert by_device(outcome) > 0.6
    last_ms = [latency.median_ms for latency in known]
    assert np.median(first_ms) > 500.0
    assert np.quantile(last_ms, 0.75) < 200.0  # the other devices took too few photos
