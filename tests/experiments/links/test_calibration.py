"""Errors of a calibration, and the measurement of a real link."""

import json
import socket
import threading
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np
import pytest

from nearsight.experiments.links import calibration
from nearsight.experiments.links.calibration import Calibration, calibrate
from nearsight.experiments.links.link import UNSHAPED, LinkShape
from nearsight.experiments.links.probe import measure_rate_mbps
from nearsight.experiments.links.proxy import CHUNK_BYTES

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


class Recorder:
    """A probe that records its bursts [bytes] and round trips, and measures nothing."""

    port = 1
    bursts: ClassVar[list[int]] = []
    echoes: ClassVar[list[int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def rtt_ms(self, _port: int, count: int = 12) -> list[float]:
        self.echoes.append(count)
        return [0.0] * count

    def rate_mbps(self, _port: int, _way: str, size_bytes: int) -> float:
        self.bursts.append(size_bytes)
        return 1.0


@pytest.mark.parametrize(("mbps", "rtt_ms"), [(0.01, 5000.0), (0.05, 1000.0), (15.0, 30.0), (1e6, 0.0)])
def test_links_of_all_shapes_are_measured_in_time_and_memory(
    mbps: float, rtt_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "Probe", Recorder)
    Recorder.bursts.clear()
    Recorder.echoes.clear()
    calibrate(LinkShape(rtt_ms=rtt_ms, up_mbps=mbps, down_mbps=mbps), np.random.default_rng(1))
    for size_bytes in Recorder.bursts:
        assert 2 * CHUNK_BYTES <= size_bytes <= 2**26
        assert size_bytes * 8e-6 / mbps <= 20.0
    assert all(count >= 3 for count in Recorder.echoes)
    assert rtt_ms * Recorder.echoes[-1] <= max(10_000, 3 * rtt_ms)


def test_a_burst_that_ends_early_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def close() -> None:
            with listener.accept()[0] as connection:
                connection.recv(9, socket.MSG_WAITALL)
                connection.sendall(b"a part")

        closing = threading.Thread(target=close)
        closing.start()
        with pytest.raises(ConnectionError):
            measure_rate_mbps(listener.getsockname()[1], "down", 1000)
        closing.join()


def test_a_real_link_is_measured_and_reported() -> None:
    shape = LinkShape(rtt_ms=4.0, jitter_ms=3.0, up_mbps=200.0, down_mbps=400.0, loss_per_minute=100.0)
    found = calibrate(shape, np.random.default_rng(1))
    assert found.asked == shape.steady()
    assert found.rtt_ms > 0  # no timing is asserted: the machine may be busy
    assert found.up_mbps > 0 < found.down_mbps
    report = json.loads(json.dumps(found.as_dict()))
    assert {"rtt_error_ms", "up_error_percent", "within_target", "asked"} <= set(report)
