"""`nearsight device` twice on one machine, as a person starts it, and `nearsight peers`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nearsight.__main__ import main
from nearsight.experiments.testbed.processes import leashed
from support.discovery import free_udp_port
from support.waiting import wait_until

NAMES = ("phone-a", "phone-b")


class Phone:
    """A device daemon that nobody told about the other one."""

    def __init__(self, name: str, beacon_port: int, folder: Path) -> None:
        self.announcement = folder / f"{name}.json"
        settings = {
            "device_id": name,
            "recognizer.peers.enabled": "true",
            "recognizer.peers.beacon_port": beacon_port,
            "recognizer.peers.period_s": 20,
            "recognizer.peers.departure_s": 60,
        }
        command = leashed("-m", "nearsight", "device", "--cloud", "tcp://127.0.0.1:9")
        command += ["--listen", "tcp://127.0.0.1:0", "--announce", str(self.announcement)]
        command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=folder)

    @property
    def endpoint(self) -> str:
        return str(json.loads(self.announcement.read_text())["endpoint"])

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(20)


@pytest.fixture
def phones(tmp_path: Path) -> Iterator[list[Phone]]:
    port = free_udp_port()
    with ExitStack() as stack:
        phones = [Phone(name, port, tmp_path) for name in NAMES]
        for phone in phones:
            stack.callback(phone.process.wait)
            stack.callback(phone.process.kill)
        wait_until(lambda: all(p.announcement.exists() for p in phones), timeout_s=60, what="the daemons")
        yield phones


def test_daemons_find_each_other_by_broadcast_and_one_that_is_stopped_is_gone_at_once(
    phones: list[Phone], capsys: pytest.CaptureFixture[str]
) -> None:
    def seen() -> list[list[str]]:
        capsys.readouterr()
        assert main(["peers", *(phone.endpoint for phone in phones), "--json"]) == 0
        answers = json.loads(capsys.readouterr().out)
        return [[peer["device_id"] for peer in answer["peers"]] for answer in answers]

    wait_until(lambda: seen() == [["phone-b"], ["phone-a"]], what="each seeing the other")
    assert phones.pop().stop() == 0
    wait_until(lambda: seen() == [[]], what="the goodbye")
