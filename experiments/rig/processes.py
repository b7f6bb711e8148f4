"""Processes of experiments. The `agent` starts, awaits, meters and stops them on every machine.

A `Place` is where processes run; it forwards orders to the agent there. A `Process` is one process at a
place. `ProcessGroup` is the place for processes of this machine that run within a ``with`` block. However the
block ends, all its processes are stopped. Each process has its own session, so that Ctrl-C in the terminal
reaches only the parent, which then stops its children in order. On Linux, children are also killed when their
parent dies by SIGKILL. The nodes of a testbed are other places.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

from nearsight.common.errors import NearsightError, SetupError, Unavailable
from nearsight.experiments.rig import agent

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DaemonState:
    """State of one daemon, as the agent reports it."""

    running: bool
    """Whether its process runs."""
    pid: int
    """Process id at its place."""
    announced: dict[str, Any] | None
    """Its announcement; None before it was ready."""
    log: str
    """The end of its log, on one line."""
    cpu_s: float
    """CPU time used so far [s]."""
    memory_bytes: int
    """Resident memory [bytes]."""


class Place(ABC):
    """A place where processes run, with access to the agent there."""

    @abstractmethod
    def order(self, command: str, /, **order: object) -> Any:
        """Let the agent execute a command; ``order`` has the parameters.

        Raises
        ------
        SetupError
            If the agent reports an error.
        Unavailable
            If the place cannot be reached.
        """

    @abstractmethod
    def path(self, name: str) -> str:
        """Path at the place of a file that belongs to its processes, such as ``NAME.log``."""

    @abstractmethod
    def describe(self, daemon: str) -> str:
        """Name of a daemon of this place in messages."""

    def log_place(self, daemon: str) -> str:
        """Where the log of a daemon is, in messages."""
        return f"{self.path(daemon)}.log"


class Process:
    """One process at a place."""

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        """The place where it was started."""
        self.name = name
        """Its name at the place."""

    @property
    def output(self) -> Iterator[str]:
        """Lines of its standard output; empty if its output goes to its log."""
        return iter(())

    def wait_ready(self, timeout_s: float = 60.0) -> dict[str, Any]:
        """Wait until the process announces itself; returns the announcement.

        Raises
        ------
        SetupError
            If it ends first, or does not announce itself in time; with its last log lines.
        """
        state = self._waited(timeout_s=timeout_s)
        if state.announced is not None:
            return state.announced
        if not state.running:
            raise self._failure(f"{self._ended()} before it was ready")
        raise self._failure(f"was not ready within {timeout_s:.0f} s")

    def wait(self, timeout_s: float) -> None:
        """Wait for the end of the process.

        Raises
        ------
        SetupError
            If it does not end in time; with its last log lines.
        """
        state = self._waited(timeout_s=timeout_s, until="ended")
        if state.running:
            raise self._failure(f"did not end within {timeout_s:.0f} s")

    def write_line(self, line: str) -> None:
        """Write a line to its standard input."""
        self.place.order("write_line", name=self.name, line=line)

    def _waited(self, **order: object) -> DaemonState:
        return DaemonState(**self.place.order("wait", name=self.name, **order))

    def _ended(self) -> str:
        return "ended"

    def last_lines(self) -> str:
        """The end of its log on one line; only the last line if that is an error message."""
        return self._waited(timeout_s=0.0).log or "its log is empty"

    def _failure(self, message: str, kind: type[NearsightError] = SetupError) -> NearsightError:
        return kind(
            f"{self.place.describe(self.name)} {message}: {self.last_lines()}",
            advice=f"its log is {self.place.log_place(self.name)}",
        )


class ManagedProcess(Process):
    """One child process. Created by `ProcessGroup.start`."""

    def __init__(self, group: ProcessGroup, name: str, process: subprocess.Popen[str]) -> None:
        super().__init__(group, name)
        self._process = process
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
        return iter(self._process.stdout or ())

    def wait(self, timeout_s: float) -> None:
        """Wait for a successful end.

        Raises
        ------
        SetupError
            If it fails or does not end in time; with its last log lines.
        """
        super().wait(timeout_s)
        if self.exit_code != 0:
            raise self._failure(self._ended())

    def check_alive(self) -> None:
        """Raise `Unavailable` if the process has ended."""
        if self.exit_code is not None:
            raise self._failure(self._ended(), Unavailable)

    def cpu_s(self) -> float:
        """CPU seconds used so far, user and system, with its children, also ended ones.

        After its end, the last value.
        """
        try:
            process = psutil.Process(self.pid)
            times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
        except psutil.Error:
            return self._cpu_s
        # The first four are the times of a process, and those of its ended children.
        self._cpu_s = max(self._cpu_s, sum(sum(one[:4]) for one in times))
        return self._cpu_s

    def write_line(self, line: str) -> None:
        """Write a line to its standard input; ignored if the process has ended."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to this process alone."""
        self._process.send_signal(number)

    def stop(self, grace_s: float = 5.0) -> int:
        """Stop the process, kill it after ``grace_s`` seconds, and return its exit status."""
        self.cpu_s()
        self.place.order("stop", names=[self.name], grace_s=grace_s)
        if self.exit_code is None:  # its record was deleted
            self._process.kill()
        code = self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        return code

    def _ended(self) -> str:
        code = self._process.wait()
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit status {code}"


class ProcessGroup(Place):
    """Processes of this machine that run within a ``with`` block.

    Parameters
    ----------
    folder : Path
        For logs (``NAME.log``) and announcements (``NAME.json``).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """The folder of logs and announcements."""
        self._processes: list[ManagedProcess] = []

    def order(self, command: str, /, **order: object) -> Any:
        """Call the agent; see `Place`."""
        return self._call(agent.COMMANDS[command], order)

    def path(self, name: str) -> str:
        """Path of a file of the processes."""
        return str(self.folder / name)

    def describe(self, daemon: str) -> str:
        """The name of the daemon itself."""
        return daemon

    def start(
        self, name: str, arguments: Sequence[str], *, capture: bool = False, prefix: Sequence[str] = ()
    ) -> ManagedProcess:
        """Start ``python ARGUMENTS --announce FILE``; see `ManagedProcess.wait_ready`.

        Parameters
        ----------
        name : str
            Name of the process and its log file; unique in this group.
        arguments : sequence of str
            Arguments of the interpreter, e.g. ``("-m", "nearsight", "cloud")``.
        capture : bool
            Whether its standard input and output are pipes, for `ManagedProcess.write_line` and
            `ManagedProcess.output`.
        prefix : sequence of str
            Words before the command, of a program that replaces itself with the command, such as
            ``ip netns exec NAME``.

        Raises
        ------
        SetupError
            If there is no such program.
        """
        order = start_order(self, name, [*prefix, sys.executable, *arguments])
        process = self._call(agent.launch, {**order, "capture": capture, "leash": True})
        managed = ManagedProcess(self, name, process)
        self._processes.append(managed)
        return managed

    def _call(self, command: Callable[[dict[str, Any]], T], order: Mapping[str, object]) -> T:
        try:
            return command({"folder": str(self.folder), **order})
        except (agent.AgentError, OSError) as error:
            raise SetupError(str(error)) from error

    def stop(self, grace_s: float = 5.0) -> None:
        """Stop all processes, the last started first, so that clients end before their servers."""
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


def start_order(place: Place, name: str, command: Sequence[str]) -> dict[str, Any]:
    """The order that starts a daemon with the option ``--announce``, and one thread per library."""
    announced = ["--announce", place.path(f"{name}.json")]
    added = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return {"name": name, "command": [*command, *announced], "environment": added}
