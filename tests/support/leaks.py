"""Resources that a test leaves open: threads, descriptors (files, sockets, ZeroMQ contexts), processes."""

from __future__ import annotations

import gc
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")
_OF_LIBRARIES = "/site-packages/"  # for example fonts that a library keeps open
_TASKS = Path("/proc/self/task")


@dataclass(frozen=True)
class OpenThings:
    """Open resources of this process. On systems without ``/proc``, threads only."""

    threads: frozenset[threading.Thread]
    descriptors: frozenset[tuple[str, str]]  # number and target
    children: frozenset[int]

    def beyond(self, before: OpenThings) -> list[str]:
        """Descriptions of the resources that are open now and were not open ``before``."""
        return [
            *(f"thread {thread.name}" for thread in self.threads - before.threads),
            *(f"descriptor {number}: {target}" for number, target in self.descriptors - before.descriptors),
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


def _descriptors() -> frozenset[tuple[str, str]]:
    if not _DESCRIPTORS.is_dir():
        return frozenset()
    found = set()
    for entry in _DESCRIPTORS.iterdir():
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            target = str(entry.readlink())
            if _OF_LIBRARIES not in target:
                found.add((entry.name, target))
    return frozenset(found)


def _children() -> frozenset[int]:
    found: set[int] = set()
    for task in _TASKS.glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
            found.update(map(int, task.read_text().split()))
    return frozenset(found)


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "ended"
