"""Daemons as child processes: started, awaited, metered and stopped, with nothing left behind.

`ProcessGroup` is a context manager. However its block ends, every process that it started is gone
afterwards: asked by SIGTERM, then killed by its own id. Each child has a session of its own, so that Ctrl-C
in the terminal reaches only the parent, which then stops its children in order; on Linux a child also dies
with a parent that was killed outright (`leash`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import psutil

from nearsight.common.errors import SetupError, Unavailable
from nearsight.experiments.rig.agent import last_lines

POLL_S = 0.02
_LEASH = Path(__file__).with_name("leash.py")


class ManagedProcess:
    """One child process. Made by `ProcessGroup.start`."""

    def __init__(
        self, name: str, process: subprocess.Popen[str], log_path: Path, announce_path: Path
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._process = process
        self._announce_path = announce_path
        self._cpu_s = 0.0

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def output(self) -> Iterator[str]:
        """Lines of its standard output, if it was started with ``capture=True``."""
        if self._process.stdout is None:
            raise SetupError(f"the output of {self.name} goes to {self.log_path}")
        return iter(self._process.stdout)

    def wait_ready(self, timeout_s: float = 60.0) -> dict[str, object]:
        """Wait for the announcement file and return what it says.

        Raises
        ------
        SetupError
            If the process ends first, or does not announce itself in time; with its last log lines.
        """
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            # Whether it ended is asked first: it may announce itself between the two questions.
            ended = self.exit_code is not None
            if self._announce_path.exists():
                announcement: dict[str, object] = json.loads(self._announce_path.read_text())
                return announcement
            if ended:
                raise self._failure(f"{self.name} {_describe(self.exit_code)} before it was ready")
            time.sleep(POLL_S)
        raise self._failure(f"{self.name} was not ready within {timeout_s:.0f} s")

    def wait(self, timeout_s: float) -> None:
        """Wait for a successful end.

        Raises
        ------
        SetupError
            If it fails or runs for longer; with its last log lines.
        """
        deadline_s = time.monotonic() + timeout_s
        while self.exit_code is None and time.monotonic() < deadline_s:
            self.cpu_s()
            time.sleep(POLL_S)
        if self.exit_code is None:
            raise self._failure(f"{self.name} did not end within {timeout_s:.0f} s")
        if self.exit_code != 0:
            raise self._failure(f"{self.name} {_describe(self.exit_code)}")

    def check_alive(self) -> None:
        """Raise `Unavailable` if a daemon that should run has ended."""
        if self.exit_code is not None:
            raise Unavailable(
                f"{self.name} {_describe(self.exit_code)}: {self.last_lines()}",
                advice=f"its log is {self.log_path}",
            )

    def cpu_s(self) -> float:
        """CPU seconds used so far, user and system, with its children; kept when it ends."""
        try:
            process = psutil.Process(self.pid)
            times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
        except psutil.Error:
            return self._cpu_s
        self._cpu_s = max(self._cpu_s, sum(one.user + one.system for one in times))
        return self._cpu_s

    def tell(self, line: str) -> None:
        """Write a line to its standard input; a process that has ended does not mind."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to this process alone."""
        self._process.send_signal(number)

    def last_lines(self) -> str:
        """The end of its log on one line: its error message if it ends with one."""
        return last_lines(str(self.log_path)) or "its log is empty"

    def stop(self, grace_s: float = 5.0) -> int:
        """Ask it to end, kill it if it does not, and return its exit status."""
        self.cpu_s()
        if self.exit_code is None:
            self._process.terminate()
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        code = self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        return code

    def _failure(self, message: str) -> SetupError:
        return SetupError(f"{message}: {self.last_lines()}", advice=f"its log is {self.log_path}")


def _describe(exit_code: int | None) -> str:
    if exit_code is None:
        return "is running"
    return f"was ended by signal {-exit_code}" if exit_code < 0 else f"ended with exit status {exit_code}"


class ProcessGroup:
    """Processes that live no longer than a ``with`` block.

    Parameters
    ----------
    folder : Path
        Where logs (``NAME.log``) and announcements (``NAME.json``) go.
    environment : mapping, optional
        The environment of every child; without it that of this process.

    Attributes
    ----------
    folder : Path
        As given.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._environment = dict(os.environ if environment is None else environment)
        self._processes: list[ManagedProcess] = []

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        capture: bool = False,
        prefix: Sequence[str] = (),
    ) -> ManagedProcess:
        """Start ``python ARGUMENTS --announce FILE``; see `ManagedProcess.wait_ready`.

        Parameters
        ----------
        name : str
            Names the log file; unique in this group.
        arguments : sequence of str
            After the interpreter, e.g. ``("-m", "nearsight", "cloud")``.
        capture : bool
            Give it a standard input (`ManagedProcess.tell`) and output (`ManagedProcess.output`).
        prefix : sequence of str
            Words before the command, of a program that becomes it, such as ``ip netns exec NAME``.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        log_path = self.folder / f"{name}.log"
        announce_path = self.folder / f"{name}.json"
        announce_path.unlink(missing_ok=True)
        command = [*prefix, *leashed(*arguments), "--announce", str(announce_path)]
        with log_path.open("w") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if capture else subprocess.DEVNULL,
                stdout=subprocess.PIPE if capture else log,
                stderr=log,
                text=True,
                env=self._environment,
                start_new_session=True,
            )
        managed = ManagedProcess(name, process, log_path, announce_path)
        self._processes.append(managed)
        return managed

    def stop(self, grace_s: float = 5.0) -> None:
        """Stop all, the last started first: clients before the servers that they use."""
        for process in reversed(self._processes):
            process.stop(grace_s)

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        try:
            self.stop(grace_s=5.0 if kind is None else 2.0)
        finally:
            for process in self._processes:
                if process.exit_code is None:  # a second Ctrl-C during the stop
                    process.stop(grace_s=0.0)


def leashed(*arguments: str) -> list[str]:
    """The command ``python ARGUMENTS``, which ends with this process, however that ends."""
    return [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid()), *arguments]


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP raise `KeyboardInterrupt`, so that clean-up code runs.

    Only the main thread may receive signals; elsewhere this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
