"""Sent bytes of daemons, read from their metrics."""

from __future__ import annotations

import pytest

from nearsight.common.errors import StatusCode, Unavailable
from nearsight.common.metrics import DaemonMetrics
from nearsight.experiments.rig.tiers import served_bytes


def test_sent_bytes_are_read_by_method() -> None:
    metrics = DaemonMetrics("edge")
    address = metrics.start_http("127.0.0.1:0")
    try:
        metrics.on_call("nearsight.v1.Catalogue", "GetObjectModels", StatusCode.OK, 0, 1, 100, 40_000)
        before = served_bytes(address)
        metrics.on_call("nearsight.v1.Catalogue", "GetObjectModels", StatusCode.OK, 0, 1, 100, 2)
        metrics.on_call("nearsight.v1.Recognition", "Recognize", StatusCode.OK, 0, 1, 9000, 300)
        after = served_bytes(address)
    finally:
        metrics.stop_http()
    assert before == {"Catalogue.GetObjectModels": 40_000}
    assert after == {"Catalogue.GetObjectModels": 40_002, "Recognition.Recognize": 300}


def test_missing_metrics_are_an_error() -> None:
    with pytest.raises(Unavailable, match="no metrics"):
        served_bytes("127.0.0.1:1")
