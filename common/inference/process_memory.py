"""Memory and end of this process, and memory that is available on this machine."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_MADV_COLLAPSE = 25
_HUGE_PAGE_BYTES = 2 << 20


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


@contextmanager
def in_huge_pages() -> Iterator[None]:
    """Move memory that is allocated in a ``with`` block into huge pages (Linux 6.1 and later).

    A layer that reads hundreds of megabytes of weights takes up to a fifth longer if they are scattered over
    small pages (decision 063). Moving them takes 2 to 4 ms per megabyte. The amount of memory stays the same.
    """
    before = list(_anonymous_memory())
    yield
    for start, stop in added(before, _anonymous_memory()):
        first, end = -(-start // _HUGE_PAGE_BYTES), stop // _HUGE_PAGE_BYTES
        if first < end:  # earlier kernels refuse the call, and the memory stays where it is
            place, size_bytes = first * _HUGE_PAGE_BYTES, (end - first) * _HUGE_PAGE_BYTES
            ctypes.CDLL(None).madvise(ctypes.c_void_p(place), ctypes.c_size_t(size_bytes), _MADV_COLLAPSE)


def added(before: Iterable[tuple[int, int]], now: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Parts of address ranges (start, stop) that no earlier range contains; both in ascending order."""
    before = list(before)
    for start, stop in now:
        new = start
        for known, known_stop in before:
            if known < stop and new < known_stop:
                if new < known:
                    yield new, known
                new = known_stop
        if new < stop:
            yield new, stop


def _anonymous_memory() -> Iterator[tuple[int, int]]:
    """Address ranges of this process's private memory without a file; none on other systems than Linux."""
    maps = Path("/proc/self/maps")
    for line in maps.read_text().splitlines() if maps.exists() else ():
        words = line.split()
        if len(words) == 5 and words[1] == "rw-p":
            start, _, stop = words[0].partition("-")
            yield int(start, 16), int(stop, 16)


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
