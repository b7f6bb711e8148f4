"""Full and read-only disks. A test that mounts one needs ``@pytest.mark.needs("mounts")``."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def full_disk() -> Iterator[None]:
    """Limit all files of this process to 8 kB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """Mount a disk of 1 MB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill_up(place: Path) -> None:
    """Write until the disk is full."""
    with (place / "filled").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def refuse_writes(place: Path, disk: str) -> None:
    """Make a small disk "full" or "read-only"."""
    if disk == "full":
        fill_up(place)
    else:
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)


def allow_writes(place: Path, disk: str) -> None:
    """Undo `refuse_writes`."""
    if disk == "full":
        (place / "filled").unlink()
    else:
        subprocess.run(["mount", "-o", "remount,rw", place], check=True)
