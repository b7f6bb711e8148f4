"""`nearsight peers`: the report of a device about its peers, as text and as JSON."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nearsight.__main__ import main
from nearsight.common.operation.status import HealthService
from nearsight.common.rpc.server import RpcServer
from nearsight.common.rpc.service import Service
from nearsight.common.rpc.settings import ServerSettings
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.report import PeerReportsService, PeersReport, PeerStatus, ask_peers
from nearsight.device.peers_cli import table_of
from support.waiting import LONG_S

ANNA = PeerStatus(
    NodeId(0xA11A),
    "anna",
    "tcp://10.0.0.7:40001",
    "live",
    heard_s_ago=1.25,
    present_s=125.0,
    keys=1200,
    store_bytes=3_400_000,
    models=12,
    sent_bytes=950,
    received_bytes=12_345,
    round_trip_ms=0.61,
)
BEN = PeerStatus(NodeId(0xBE7), "ben", "tcp://10.0.0.8:40002", "suspect", 16.0, 20.0, 0, 0, 0, 0, 0, 2.0)
REPORT = PeersReport(
    NodeId(0x0E),
    "otto",
    "tcp://10.0.0.6:40000",
    (BEN, ANNA),
    (("beacons", "12 heard, 1 malformed"), ("models from peers", "3, 0.12 MB")),
)
ALONE = PeersReport(
    NodeId(5),
    "otto",
    "tcp://10.0.0.6:40000",
    (),
    (("beacons", "0 heard"), ("pings", "0, 0 failed"), ("holds", "0 keys, 0 bytes, incomplete for now")),
)


@contextmanager
def serving(*services: Service) -> Iterator[str]:
    health = HealthService("device", lambda: True, lambda: ())
    with RpcServer([*services, health], tier="device", settings=ServerSettings()) as server:
        yield server.endpoint


@contextmanager
def device(report: PeersReport) -> Iterator[str]:
    with serving(PeerReportsService(lambda: report)) as endpoint:
        yield endpoint


def test_the_report_arrives_as_it_was_made() -> None:
    with device(REPORT) as endpoint:
        (answer,) = ask_peers([endpoint], timeout_s=LONG_S)
    assert answer.error == ""
    assert answer.report == REPORT


def test_peers_are_listed_by_name_with_units() -> None:
    first, second = table_of(REPORT)
    assert (first[0], second[0]) == ("anna", "ben")
    assert first[1:5] == ("000000000000a11a", "tcp://10.0.0.7:40001", "live", "1.2 s ago")
    assert first[5:] == ("2 min", "1200", "3.4 MB", "12", "950 B", "12.3 kB", "0.6")


def test_the_text_lists_peers_and_their_traffic(capsys: pytest.CaptureFixture[str]) -> None:
    with device(REPORT) as endpoint:
        assert main(["peers", endpoint]) == 0
    shown = capsys.readouterr().out
    assert "otto, node 000000000000000e, at tcp://10.0.0.6:40000: 2 peers" in shown
    assert "suspect" in shown
    assert "models from peers: 3, 0.12 MB" in shown


def test_in_a_narrow_terminal_each_peer_takes_a_few_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearsight.common.command_line.terminal.PIPED_WIDTH", 80)
    with device(REPORT) as endpoint:
        assert main(["peers", endpoint]) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "otto, node 000000000000000e, at tcp://10.0.0.6:40000: 2 peers"
    assert lines[:3] == [
        "  anna, node 000000000000a11a, at tcp://10.0.0.7:40001",
        "    live, last seen 1.2 s ago, present for 2 min, ping 0.6 ms",
        "    holds 1200 keys, 3.4 MB, and 12 models; 950 B sent, 12.3 kB received",
    ]
    assert lines[3].startswith("  ben, ")


def test_zero_counts_are_summarised_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with device(ALONE) as endpoint:
        assert main(["peers", endpoint]) == 0
    title, *facts = capsys.readouterr().out.splitlines()
    assert title.endswith("no peers")
    assert facts == [
        "  holds: 0 keys, 0 bytes, incomplete for now",
        "  none so far: beacons, pings",
    ]


def test_a_script_reads_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    with device(REPORT) as endpoint:
        assert main(["peers", endpoint, "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["node_id"] == "000000000000000e"
    assert answer["facts"]["models from peers"] == "3, 0.12 MB"
    by_name = {peer["device_id"]: peer for peer in answer["peers"]}
    assert by_name["anna"]["store_bytes"] == 3_400_000
    assert by_name["ben"]["node_id"] == "0000000000000be7"


def test_devices_without_sharing_and_unreachable_devices_are_distinguished(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving() as not_sharing, device(ALONE) as sharing:
        code = main(["peers", not_sharing, sharing, "tcp://127.0.0.1:1", "--timeout", "60"])
    first, *_, last = capsys.readouterr().out.splitlines()
    assert code == 4
    assert "recognizer.peers" in first
    assert last.startswith("tcp://127.0.0.1:1: no answer")


def test_watching_asks_again_until_it_is_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def interrupted(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    with device(ALONE) as endpoint:
        code = main(["peers", endpoint, "--watch", "2"])
    assert code == 130
    assert waits == [2.0, 2.0]
    assert capsys.readouterr().out.count("no peers") == 2
