"""Counters of network interfaces."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from nearsight.experiments.rig.peer_process import interface_counters

DEV = """Inter-| Receive | Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier
    lo: 500000 900 0 0 0 0 0 0 500000 900 0 0 0 0 0 0
  eth0:   7000  70 0 0 0 0 0 0   3000  30 0 4 0 0 0 0
"""


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder from which counters are read instead of the machine's own."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    return tmp_path


def test_loopback_is_not_counted(proc: Path) -> None:
    (proc / "net").mkdir()
    (proc / "net" / "dev").write_text(DEV)
    assert interface_counters() == {"sent": 30, "sent_bytes": 3000, "received": 70, "received_bytes": 7000}


@pytest.mark.usefixtures("proc")
def test_a_system_without_such_counters_has_zeros() -> None:
    names = ("sent", "sent_bytes", "received", "received_bytes")
    assert interface_counters() == dict.fromkeys(names, 0)
