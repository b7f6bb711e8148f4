"""Daemons as users start them: in separate processes, which always end with the test."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.leash import leashed
from support.waiting import LONG_S, wait_until


@dataclass(frozen=True)
class DaemonProcess:
    process: subprocess.Popen[bytes]
    announcement: Path
    log_file: Path

    @property
    def endpoint(self) -> str:
        return str(json.loads(self.announcement.read_text())["endpoint"])

    @property
    def log(self) -> str:
        """Its standard error so far."""
        return self.log_file.read_text(errors="replace")

    def kill(self) -> None:
        """Kill it with SIGKILL: it can neither write nor send anything."""
        self.process.kill()
        self.process.wait(LONG_S)

    def stop(self) -> int:
        """Stop it with SIGTERM; return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LONG_S)

    def wait_ready(self) -> None:
        """Wait until it has announced itself."""
        wait_until(
            lambda: self.announcement.exists() or self.process.poll() is not None,
            what="the announcement",
        )
        assert self.process.poll() is None, self.log


@contextmanager
def starting_daemon(
    folder: Path, tier: str, *flags: str, name: str = "", listen: str = "tcp://127.0.0.1:0"
) -> Iterator[DaemonProcess]:
    """Start `nearsight TIER` with its files in this folder, under a name; it may not be ready yet."""
    announcement, log_file = (folder / f"{name or tier}.{ending}" for ending in ("json", "log"))
    announcement.unlink(missing_ok=True)
    command = leashed("-m", "nearsight", tier, "--listen", listen, "--announce", str(announcement), *flags)
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command, stderr=log, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
    daemon = DaemonProcess(process, announcement, log_file)
    try:
        yield daemon
    finally:
        daemon.kill()


@contextmanager
def daemon_process(
    folder: Path, tier: str, *flags: str, listen: str = "tcp://127.0.0.1:0"
) -> Iterator[DaemonProcess]:
    """Start `nearsight TIER` with its files in this folder, and wait until it is ready."""
    with starting_daemon(folder, tier, *flags, listen=listen) as daemon:
        daemon.wait_ready()
        yield daemon
