"""Memory and end of this process, and memory that is available on this machine."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent_pid: int) -> None:
    """End this process when the parent that started it ends, even if that is killed (Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent_pid:  # the parent ended before the call, which therefore has no effect
            os._exit(1)


def own_memory_bytes() -> int:
    """Memory that only this process uses (unique set size, USS)."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def return_freed_memory() -> None:
    """Return freed memory of this process to the system. Takes some milliseconds; no effect without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Memory that this process could still allocate on this machine, or in its cgroup if that has a limit.

    The system counts files that a process has mapped into memory as available. Mapped weights of loaded
    networks are in use, so they are subtracted.

    Parameters
    ----------
    root : Path
        Folder that contains ``proc`` and ``sys``; another one in tests.
    """
    mapped_bytes = 1024 * _numbers(root / "proc/self/status").get("RssFile:", 0)
    available_bytes = 1024 * _numbers(root / "proc/meminfo")["MemAvailable:"] - mapped_bytes
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::/"):
            group = root / "sys/fs/cgroup" / line.removeprefix("0::/")
            limit = group / "memory.max"
            if limit.exists() and (most := limit.read_text().strip()) != "max":
                used_bytes = int((group / "memory.current").read_text())
                files_bytes = _numbers(group / "memory.stat").get("inactive_file", 0)  # freed when needed
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
