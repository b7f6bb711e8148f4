"""Builds of snapshots, and the pauses between them."""

from collections.abc import Iterable

import pytest
from prometheus_client import CollectorRegistry

from nearsight.common.clock import ManualClock
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.edge.metrics import EdgeMetrics
from nearsight.edge.snapshot_holder import SnapshotBuilder, SnapshotHolder


class SlowHolder(SnapshotHolder):
    """Each build takes a second."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        super().__init__(RecognitionSettings())

    def build(self, models: Iterable[ObjectModel]) -> ObjectRecognizer:
        self._clock.advance(1.0)
        return super().build(models)


@pytest.mark.parametrize(("build_share", "pause_s"), [(1.0, 0.0), (0.25, 3.0)])
def test_builds_take_at_most_their_share_of_the_time(build_share: float, pause_s: float) -> None:
    clock = ManualClock()
    holder = SlowHolder(clock)
    builder = SnapshotBuilder(holder, build_share, clock, EdgeMetrics(CollectorRegistry()), "museum")
    assert builder.pause_s() == 0.0
    assert builder.build((), "a test") is holder.snapshot
    assert builder.pause_s() == pytest.approx(pause_s)
    clock.advance(pause_s / 2)
    assert builder.pause_s() == pytest.approx(pause_s / 2)
    builder.end_pause()
    assert builder.pause_s() == 0.0
