"""Warnings about closed connections: an attacker cannot fill the log."""

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.rpc.connection_warnings import ConnectionWarnings


def test_a_repeated_warning_is_logged_once_per_interval_with_the_number_of_omitted_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = ManualClock()
    warnings = ConnectionWarnings(clock)
    for _ in range(5):
        warnings.warn("connection closed: the client is gone", client="a")
    warnings.warn("no client can connect", reason="too many open files")
    clock.advance(10.0)
    warnings.warn("connection closed: the client is gone", client="b")
    first, other, again = capsys.readouterr().err.splitlines()
    assert "client=a" in first
    assert "times_before" not in first
    assert "no client can connect" in other
    assert "client=b" in again
    assert "times_before=4" in again
