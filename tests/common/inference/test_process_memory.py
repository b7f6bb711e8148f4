from pathlib import Path

import pytest

from nearsight.common.inference.process_memory import available_memory_bytes, own_memory_bytes

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
