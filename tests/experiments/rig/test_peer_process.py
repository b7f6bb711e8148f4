"""Counters of network interfaces."""

from __future__ import annotations

from pathlib import Path

from nearsight.experiments.rig.peer_process import Wire, read_wire

DEV = """Inter-| Receive | Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier
    lo: 500000 900 0 0 0 0 0 0 500000 900 0 0 0 0 0 0
  eth0:   7000  70 0 0 0 0 0 0   3000  30 0 4 0 0 0 0
"""


def test_loopback_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "dev"
    path.write_text(DEV)
    assert read_wire(path) == Wire(30, 3000, 70, 7000, 4)


def test_a_system_without_such_counters_has_zeros(tmp_path: Path) -> None:
    assert read_wire(tmp_path / "nothing") == Wire()
