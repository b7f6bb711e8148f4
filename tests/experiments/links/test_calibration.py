"""Errors of a calibration, and the measurement of a real link."""

import json
from dataclasses import replace

import numpy as np
import pytest

from nearsight.experiments.links.calibration import Calibration, calibrate
from nearsight.experiments.links.link import UNSHAPED, LinkShape

ASKED = LinkShape(rtt_ms=30.0, up_mbps=15.0, down_mbps=15.0)
GOOD = Calibration(ASKED, UNSHAPED, 0.1, 0.05, 30.2, 0.1, up_mbps=15.1, down_mbps=14.9)


def test_errors_are_differences_from_the_requested_shape() -> None:
    assert pytest.approx(0.2) == GOOD.rtt_error_ms
    assert pytest.approx(0.1 / 15) == GOOD.up_error
    assert pytest.approx(-0.1 / 15) == GOOD.down_error
    assert GOOD.within_target


@pytest.mark.parametrize("changes", [{"rtt_ms": 31.2}, {"up_mbps": 14.0}, {"down_mbps": 15.6}])
def test_a_link_with_another_delay_or_rate_is_not_within_target(changes: dict[str, float]) -> None:
    assert not replace(GOOD, **changes).within_target


def test_an_unlimited_rate_has_no_error() -> None:
    unlimited = replace(GOOD, asked=LinkShape(rtt_ms=30.0), up_mbps=0.0, down_mbps=0.0)
    assert (unlimited.up_error, unlimited.down_error) == (0.0, 0.0)


def test_a_real_link_is_measured_and_reported() -> None:
    shape = LinkShape(rtt_ms=4.0, jitter_ms=3.0, up_mbps=200.0, down_mbps=400.0, loss_per_minute=100.0)
    found = calibrate(shape, np.random.default_rng(1))
    assert found.asked == shape.steady()
    assert found.rtt_ms > 0  # no timing is asserted: the machine may be busy
    assert found.up_mbps > 0 < found.down_mbps
    report = json.loads(json.dumps(found.as_dict()))
    assert {"rtt_error_ms", "up_error_percent", "within_target", "asked"} <= set(report)
