"""Two processes of `nearsight device` on one machine, and `nearsight peers`."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nearsight.__main__ import main
from nearsight.experiments.rig.peer_group import free_udp_port
from support.daemon_process import DaemonProcess, starting_daemon
from support.waiting import wait_until

NAMES = ("phone-a", "phone-b")


@pytest.fixture
def phones(tmp_path: Path) -> Iterator[list[DaemonProcess]]:
    """Device daemons without addresses of each other."""
    port = free_udp_port()
    with ExitStack() as stack:
        phones = [
            stack.enter_context(starting_daemon(tmp_path, "device", *flags(name, port), name=name))
            for name in NAMES
        ]
        for phone in phones:
            phone.wait_ready()
        yield phones


def flags(name: str, beacon_port: int) -> list[str]:
    settings = {
        "device_id": name,
        "recognizer.peers.enabled": "true",
        "recognizer.peers.beacon_port": beacon_port,
        "recognizer.peers.period_s": 20,
        "recognizer.peers.departure_s": 60,
    }
    assignments = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return ["--cloud", "tcp://127.0.0.1:9", *assignments]


@pytest.mark.system
def test_daemons_find_each_other_by_broadcast_and_notice_a_stop_immediately(
    phones: list[DaemonProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    def seen() -> list[list[str]]:
        capsys.readouterr()
        assert main(["peers", *(phone.endpoint for phone in phones), "--json"]) == 0
        answers = json.loads(capsys.readouterr().out)
        return [[peer["device_id"] for peer in answer["peers"]] for answer in answers]

    wait_until(lambda: seen() == [["phone-b"], ["phone-a"]], what="each seeing the other")
    assert phones.pop().stop() == 0
    wait_until(lambda: seen() == [[]], what="the goodbye")
