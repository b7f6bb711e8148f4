"""Calibration of a shaped link: the shaper measures its own overhead, subtracts it and reports the error.

The overhead of the proxy (wake-ups, copying) delays every message, in addition to the requested delay. It is
measured as the added round trip through a real proxy and subtracted from the delay. This is repeated until
the error is small or the number of rounds is reached. The reported values are measured with the correction.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from nearsight.common.errors import InternalError
from nearsight.experiments.links.link import MEGABIT, UNSHAPED, LinkShape
from nearsight.experiments.links.proxy import CHUNK_BYTES, ShapingProxy

TARGET_RTT_ERROR_MS = 0.5
TARGET_ERROR = 0.03
RATE_PROBE_S, LONGEST_PROBE_S = 0.4, 20.0
"""Duration of a burst, and the longest one, on a slow link [s]."""
LEAST_BURST_BYTES, MOST_BURST_BYTES = 192 * 1024, 64 * 2**20
"""Limits of the size of a burst. A small one would consist of the bytes that a token bucket passes at once;
a larger one would not show the rate of a fast link better."""
ROUNDS = 3
ECHOES, LEAST_ECHOES, ECHOES_S = 12, 3, 10.0
"""Round trips per measurement; as few as the second number if they take longer than the third [s]."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Requested and measured properties of a link."""

    asked: LinkShape
    """The requested link, without jitter and losses."""
    kernel: LinkShape
    """The kernel's part of the link; the proxy does the rest."""
    compensation_ms: float
    """Subtracted from each one-way delay for the overhead of the proxy [ms]."""
    loopback_rtt_ms: float
    rtt_ms: float
    """Median round trip without the proxy, and the round trip that the link adds to it [ms]."""
    rtt_spread_ms: float
    """Interquartile range of the round trips through the link [ms]."""
    up_mbps: float = 0.0
    down_mbps: float = 0.0
    """Measured rates [10⁶ bit/s]; 0 where no rate was requested."""

    @property
    def rtt_error_ms(self) -> float:
        """Measured minus requested round trip [ms]."""
        return self.rtt_ms - self.asked.rtt_ms

    @property
    def up_error(self) -> float:
        """Relative error of the rate from client to server."""
        return _relative(self.up_mbps, self.asked.up_mbps)

    @property
    def down_error(self) -> float:
        """Relative error of the rate from server to client."""
        return _relative(self.down_mbps, self.asked.down_mbps)

    @property
    def within_target(self) -> bool:
        """Whether the delay is within 0.5 ms or 3 %, and the rates are within 3 %."""
        rtt_ok = abs(self.rtt_error_ms) <= max(TARGET_RTT_ERROR_MS, TARGET_ERROR * self.asked.rtt_ms)
        return rtt_ok and max(abs(self.up_error), abs(self.down_error)) <= TARGET_ERROR

    def as_dict(self) -> dict[str, object]:
        """For the report: requested and measured values, and the errors."""
        measured = {name: value for name, value in asdict(self).items() if isinstance(value, float)}
        return {
            "asked": asdict(self.asked),
            "kernel": asdict(self.kernel),
            **{name: round(value, 4) for name, value in measured.items()},
            "rtt_error_ms": round(self.rtt_error_ms, 4),
            "up_error_percent": round(100 * self.up_error, 2),
            "down_error_percent": round(100 * self.down_error, 2),
            "within_target": self.within_target,
        }


def _relative(measured: float, asked: float) -> float:
    return measured / asked - 1 if asked else 0.0


class Probe:
    """The measuring process: a server for the end of a link, and measurements through any port."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "nearsight.experiments.links.probe"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self._read())

    def rtt_ms(self, port: int, count: int = ECHOES) -> list[float]:
        """Round trips of one byte through ``port`` [ms]."""
        return list(self._ask("rtt", port, count))

    def rate_mbps(self, port: int, direction: str, size_bytes: int) -> float:
        """Rate of a burst through ``port`` [10⁶ bit/s]."""
        return float(self._ask("rate", port, direction, size_bytes))

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_error: object) -> None:
        with self._process:  # at its end, pipes are closed and the process is waited for
            self._process.kill()

    def _ask(self, *order: object) -> Any:
        if self._process.stdin is None:
            raise InternalError("the probe has no input")
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._read())

    def _read(self) -> str:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise InternalError("the probe of the shaper ended early")
        return line


def calibrate(
    shape: LinkShape,
    rng: np.random.Generator,
    *,
    kernel: LinkShape = UNSHAPED,
    peer: tuple[str, int] | None = None,
) -> Calibration:
    """Measure a link of this shape on this machine, and find the compensation with the smallest error.

    Parameters
    ----------
    shape : LinkShape
        The whole link; its jitter and losses are excluded from the measurement.
    rng : numpy.random.Generator
        Passed to the proxy.
    kernel : LinkShape
        The kernel's part of the link.
    peer : (host, port), optional
        Address of a probe at the other end of the kernel's part; None: everything is measured on this host.
    """
    steady = shape.steady()
    own = steady.without(kernel)
    echoes = min(ECHOES, max(LEAST_ECHOES, int(1000 * ECHOES_S / max(1.0, shape.rtt_ms))))
    with Probe() as probe:
        end = peer or ("127.0.0.1", probe.port)
        loopback_ms = statistics.median(probe.rtt_ms(probe.port))

        def trial(compensation_ms: float) -> Calibration:
            """Measure the round trip that the link adds."""
            with ShapingProxy(end, own, rng=rng, compensation_s=compensation_ms / 1000) as proxy:
                times_ms = probe.rtt_ms(proxy.address[1], echoes)
            quarter, median, three_quarters = map(float, np.percentile(times_ms, [25, 50, 75]))
            rtt_ms, spread_ms = median - loopback_ms, three_quarters - quarter
            return Calibration(steady, kernel, compensation_ms, loopback_ms, rtt_ms, spread_ms)

        best = trial(0.0)
        for _ in range(ROUNDS):
            if abs(best.rtt_error_ms) <= TARGET_RTT_ERROR_MS / 5 or not own.rtt_ms:
                break
            compensation_ms = best.compensation_ms + best.rtt_error_ms / 2
            another = trial(min(max(compensation_ms, 0.0), own.rtt_ms / 2))
            best = min(best, another, key=lambda one: abs(one.rtt_error_ms))
        with ShapingProxy(end, own, rng=rng) as proxy:
            up_mbps, down_mbps = (
                probe.rate_mbps(proxy.address[1], way, _burst_bytes(rate)) if rate else 0.0
                for way, rate in (("up", steady.up_mbps), ("down", steady.down_mbps))
            )
    return replace(best, up_mbps=up_mbps, down_mbps=down_mbps)


def _burst_bytes(rate_mbps: float) -> int:
    bytes_per_s = rate_mbps * MEGABIT / 8
    wanted = max(LEAST_BURST_BYTES, bytes_per_s * RATE_PROBE_S)
    return int(max(2 * CHUNK_BYTES, min(wanted, bytes_per_s * LONGEST_PROBE_S, MOST_BURST_BYTES)))
