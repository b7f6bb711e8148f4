"""The memory of this process and of the machine that it shares."""

from __future__ import annotations

import ctypes
from pathlib import Path


def own_memory_bytes() -> int:
    """Memory that this process alone uses (USS)."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def return_freed_memory() -> None:
    """Give memory that is free in this process back to the system; some ms. Without glibc: nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Memory that this process could still take: of the machine, or of its cgroup where that has a limit.

    The system counts files that a process has mapped as available; weights that are in use here are not.

    Parameters
    ----------
    root : Path
        Below it are ``proc`` and ``sys``.
    """
    mapped_bytes = 1024 * _numbers(root / "proc/self/status").get("RssFile:", 0)
    available_bytes = 1024 * _numbers(root / "proc/meminfo")["MemAvailable:"] - mapped_bytes
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::/"):
            group = root / "sys/fs/cgroup" / line.removeprefix("0::/")
            limit = group / "memory.max"
            if limit.exists() and (most := limit.read_text().strip()) != "max":
                used_bytes = int((group / "memory.current").read_text())
                files_bytes = _numbers(group / "memory.stat").get("inactive_file", 0)  # given up when needed
                files_bytes = max(0, files_bytes - mapped_bytes)
                available_bytes = min(available_bytes, int(most) - used_bytes + files_bytes)
    return max(0, available_bytes)


def _numbers(path: Path) -> dict[str, int]:
    """The first number after each name of a file such as /proc/meminfo."""
    return {
        words[0]: int(words[1])
        for line in path.read_text().splitlines()
        if len(words := line.split()) > 1 and words[1].isdigit()
    }
