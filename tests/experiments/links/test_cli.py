"""``nearsight link``: clients reach a daemon through the link until Ctrl-C."""

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from nearsight.__main__ import main
from nearsight.common.operation.status import HealthService, ask_status
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.experiments.framework.signals import handled
from nearsight.experiments.links import shaper
from nearsight.experiments.links.cli import LISTEN
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.links.proxy import ShapingProxy
from support.waiting import wait_until


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_daemon_is_reached_through_the_link_until_it_is_stopped(
    tmp_path: Path, number: signal.Signals
) -> None:
    announced = tmp_path / "link.json"
    health = HealthService("cloud", lambda: True)
    with RpcServer([health], tier="cloud", settings=ServerSettings()) as cloud:
        link = ["link", cloud.endpoint, "--listen", "tcp://127.0.0.1:0", "--rtt", "50", "--mbps", "0"]
        process = subprocess.Popen(
            [sys.executable, "-m", "nearsight", *link, "--announce", str(announced)],
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                wait_until(announced.exists, what="the link", timeout_s=100)
                assert process.stderr is not None
                endpoint, *words = process.stderr.readline().split()
                (status,) = ask_status([endpoint], timeout_s=100.0)
            finally:
                process.send_signal(number)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(60)
                process.kill()
    assert status.ready
    assert words == ["leads", "to", cloud.endpoint, "over", "50", "ms"]
    assert endpoint != cloud.endpoint
    assert process.returncode == 0


def test_a_link_under_nohup_survives_the_end_of_its_terminal() -> None:
    stops = []

    def ready(_endpoint: str) -> None:
        signal.raise_signal(signal.SIGHUP)
        stops.append(signal.getsignal(signal.SIGHUP))
        signal.raise_signal(signal.SIGTERM)

    settings = shaper.ShaperSettings("tcp://127.0.0.1:1", LinkShape(), calibrated=False)
    with handled(signal.SIG_IGN, signal.SIGHUP):
        shaper.run_shaper(settings, None, ready)
    assert stops == [signal.SIG_IGN]


def test_a_link_that_ends_early_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def end(_proxy: ShapingProxy, _listener: object) -> None:
        pass

    monkeypatch.setattr(ShapingProxy, "_serve_until_stopped", end)
    monkeypatch.setattr(shaper, "STATS_PERIOD_S", 0.01)
    assert main(["link", "tcp://127.0.0.1:1", "--listen", "tcp://127.0.0.1:0"]) == 1
    assert "ended early" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("nowhere", "not an endpoint: 'nowhere'; "),
        ("tcp://[::1]:7000", "tcp://[::1]:7000: no IPv4 address of '[::1]' is known; check the name"),
        ("tcp://a..b:7000", "tcp://a..b:7000: no IPv4 address of 'a..b' is known; check the name"),
        (LISTEN, f"a link at {LISTEN} cannot lead to itself; name the daemon"),
    ],
)
def test_an_impossible_endpoint_is_refused(
    endpoint: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["link", endpoint]) == 5
    assert capsys.readouterr().err.startswith(f"error: {said}")
