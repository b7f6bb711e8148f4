"""Resources that a test leaves open: threads, descriptors (files, sockets, ZeroMQ contexts), processes."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Listed twice per test, therefore as plain text: `Path` would take most of the time of a short test.
_DESCRIPTORS = "/proc/self/fd"
_OF_LIBRARIES = "/site-packages/"  # for example fonts that a library keeps open
_TASKS = "/proc/self/task"


@dataclass(frozen=True)
class OpenThings:
    """Open resources of this process. On systems without ``/proc``, threads only."""

    threads: frozenset[threading.Thread]
    descriptors: frozenset[tuple[int, int, int]]  # number, and device and inode of the target
    children: frozenset[int]

    def beyond(self, before: OpenThings) -> list[str]:
        """Descriptions of the resources that are open now and were not open ``before``."""
        return [
            *(f"thread {thread.name}" for thread in self.threads - before.threads),
            *_named(self.descriptors - before.descriptors),
            *(f"process {child}: {_command(child)}" for child in self.children - before.children),
        ]


def open_things() -> OpenThings:
    return OpenThings(frozenset(threading.enumerate()), _descriptors(), _children())


def left_open(before: OpenThings, *, timeout_s: float = 30.0) -> list[str]:
    """Resources that are open beyond ``before`` for at least ``timeout_s``.

    Garbage is collected, so that an object that was not closed warns now and not in a later test.
    """
    deadline_s = time.monotonic() + timeout_s
    while (left := open_things().beyond(before)) and time.monotonic() < deadline_s:
        gc.collect()
        time.sleep(0.005)
    return left


def _descriptors() -> frozenset[tuple[int, int, int]]:
    found = set()
    for name in _listed(_DESCRIPTORS):
        number = int(name)
        with suppress(OSError):  # the descriptor of the listing itself
            target = os.fstat(number)
            found.add((number, target.st_dev, target.st_ino))
    return frozenset(found)


def _named(descriptors: frozenset[tuple[int, int, int]]) -> Iterator[str]:
    """Descriptions of these descriptors, without those of libraries; reads their links, which takes long."""
    for number, _, _ in descriptors:
        with suppress(FileNotFoundError):  # closed since then
            target = os.readlink(f"{_DESCRIPTORS}/{number}")
            if _OF_LIBRARIES not in target:
                yield f"descriptor {number}: {target}"


def _children() -> frozenset[int]:
    found: set[int] = set()
    for task in _listed(_TASKS):
        # A thread may have ended.
        with (
            suppress(FileNotFoundError, ProcessLookupError),
            open(f"{_TASKS}/{task}/children", encoding="ascii") as file,
        ):
            found.update(map(int, file.read().split()))
    return frozenset(found)


def _listed(folder: str) -> list[str]:
    """Names in a folder of ``/proc``; none on systems without it."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "ended"
