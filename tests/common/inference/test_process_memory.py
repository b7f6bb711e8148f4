import os
from pathlib import Path

import pytest

from nearsight.common.inference.process_memory import (
    added,
    available_memory_bytes,
    in_huge_pages,
    own_memory_bytes,
)

KB = 1024


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with 900 kB available, in a cgroup."""
    group = tmp_path / "sys/fs/cgroup/nearsight"
    for folder in (group, tmp_path / "proc/self"):
        folder.mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 2000 kB\nMemAvailable: 900 kB\nHugePages_Total: 0\n")
    (tmp_path / "proc/self/status").write_text("Name:\tnearsight\nRssFile:\t 0 kB\n")
    (tmp_path / "proc/self/cgroup").write_text("1:cpu:/old\n0::/nearsight\n")
    (group / "memory.current").write_text("600000\n")
    (group / "memory.stat").write_text("anon 1\ninactive_file 100000\n")
    return tmp_path


def test_available_memory_is_that_of_the_machine(root: Path) -> None:
    assert available_memory_bytes(root) == 900 * KB
    (root / "sys/fs/cgroup/nearsight/memory.max").write_text("max\n")
    assert available_memory_bytes(root) == 900 * KB


def test_memory_of_mapped_files_is_not_available(root: Path) -> None:
    (root / "proc/self/status").write_text("Name:\tnearsight\nRssFile:\t 50 kB\n")
    assert available_memory_bytes(root) == 850 * KB
    (root / "sys/fs/cgroup/nearsight/memory.max").write_text("800000\n")
    assert available_memory_bytes(root) == 800_000 - 600_000 + 100_000 - 50 * KB


@pytest.mark.parametrize(("limit", "available"), [(800_000, 300_000), (10**9, 900 * KB), (400_000, 0)])
def test_the_limit_of_a_cgroup_reduces_the_available_memory(root: Path, limit: int, available: int) -> None:
    (root / "sys/fs/cgroup/nearsight/memory.max").write_text(f"{limit}\n")
    assert available_memory_bytes(root) == available


def test_memory_of_this_process_and_machine_can_be_read() -> None:
    assert 10**6 < own_memory_bytes() < 10**11
    assert available_memory_bytes() > 0


def test_only_new_parts_of_address_ranges_are_found() -> None:
    before = [(10, 20), (30, 40), (60, 70)]
    assert list(added(before, before)) == []
    assert list(added(before, [(0, 25), (30, 35), (38, 65), (90, 95)])) == [
        (0, 10),
        (20, 25),
        (40, 60),
        (90, 95),
    ]
    assert list(added([], [(1, 2)])) == [(1, 2)]


def test_new_memory_is_moved_into_huge_pages_with_its_values() -> None:
    def huge_kb() -> int:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:"))

    before = huge_kb()
    with in_huge_pages():
        values = bytearray(b"nearsight") * (4 << 20)
    assert values == bytearray(b"nearsight") * (4 << 20)
    kernel = tuple(map(int, os.uname().release.split(".")[:2]))
    assert huge_kb() - before >= 24 << 10 or kernel < (6, 1)
