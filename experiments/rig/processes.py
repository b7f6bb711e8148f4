"""Processes of experiments: started, awaited, metered and stopped by the `agent`, wherever they live.

A `Place` is where processes live: it passes orders on to the agent there. A `Process` is one of a
place. `ProcessGroup` is the place for processes of this machine that live no longer than a ``with`` block:
however its block ends, every process that it started is gone afterwards. Each has a session of its own, so
that Ctrl-C in the terminal reaches only the parent, which then stops its children in order; on Linux a child
also dies with a parent that was killed outright. Nodes of a testbed are other places.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any, TypeVar

import psutil

from nearsight.common.errors import SetupError, Unavailable
from nearsight.experiments.rig import agent

T = TypeVar("T")
ENVIRONMENT = MappingProxyType({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"})
"""Environment of all processes, beside this one's own without a person's settings: one thread per library."""


@dataclass(frozen=True, slots=True)
class DaemonState:
    """State of one daemon, as the agent says."""

    running: bool
    """Whether its process lives."""
    pid: int
    """Process id at its place."""
    announced: dict[str, Any] | None
    """Its announcement when it was ready."""
    log: str
    """The end of its log, on one line."""
    cpu_s: float
    """CPU time that it used [s]."""
    memory_bytes: int
    """Memory that it occupies."""


class Place(ABC):
    """Where processes live, and how the agent there gets its orders."""

    @abstractmethod
    def order(self, command: str, /, **order: object) -> Any:
        """Let the agent carry out an order.

        Raises
        ------
        SetupError
            What the agent says that is wrong at the place.
        Unavailable
            If the place cannot be reached.
        """

    @abstractmethod
    def path(self, name: str) -> str:
        """Path at the place of a file of its processes: ``NAME.log``, and what they read and write."""

    @abstractmethod
    def called(self, daemon: str) -> str:
        """A daemon of the place in a message."""


class Process:
    """One process at a place."""

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        """Where it was started."""
        self.name = name
        """Its name there."""

    @property
    def output(self) -> Iterator[str]:
        """Lines of its standard output, where that does not go to its log."""
        return iter(())

    def wait_ready(self, timeout_s: float = 60.0) -> dict[str, Any]:
        """Wait until it announces itself; returns what it says.

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
        """Wait for its end.

        Raises
        ------
        SetupError
            If it runs for longer; with its last log lines.
        """
        state = self._waited(timeout_s=timeout_s, until="ended")
        if state.running:
            raise self._failure(f"did not end within {timeout_s:.0f} s")

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        self.place.order("say", name=self.name, line=line)

    def _waited(self, **order: object) -> DaemonState:
        return DaemonState(**self.place.order("wait", name=self.name, **order))

    def _ended(self) -> str:
        return "ended"

    def last_lines(self) -> str:
        """The end of its log on one line: its error message if it ends with one."""
        return self._waited(timeout_s=0.0).log or "its log is empty"

    def _failure(self, message: str) -> SetupError:
        return SetupError(
            f"{self.place.called(self.name)} {message}: {self.last_lines()}",
            advice=f"its log is {self.place.path(self.name)}.log",
        )


class ManagedProcess(Process):
    """One child process. Made by `ProcessGroup.start`."""

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
            If it fails or runs for longer; with its last log lines.
        """
        super().wait(timeout_s)
        if self.exit_code != 0:
            raise self._failure(self._ended())

    def check_alive(self) -> None:
        """Raise `Unavailable` if a daemon that should run has ended."""
        if self.exit_code is not None:
            failure = self._failure(self._ended())
            raise Unavailable(failure.message, advice=failure.advice)

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

    def stop(self, grace_s: float = 5.0) -> int:
        """Ask it to end, kill it if it does not, and return its exit status."""
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
    """Processes of this machine that live no longer than a ``with`` block.

    Parameters
    ----------
    folder : Path
        Where logs (``NAME.log``) and announcements (``NAME.json``) go.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """As given."""
        self._processes: list[ManagedProcess] = []

    def order(self, command: str, /, **order: object) -> Any:
        """Call the agent; see `Place`."""
        return self._call(agent.COMMANDS[command], order)

    def path(self, name: str) -> str:
        """Path of a file of the processes."""
        return str(self.folder / name)

    def called(self, daemon: str) -> str:
        """Its name."""
        return daemon

    def start(
        self, name: str, arguments: Sequence[str], *, capture: bool = False, prefix: Sequence[str] = ()
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


def start_order(place: Place, name: str, command: Sequence[str]) -> dict[str, Any]:
    """The order to start a daemon that announces itself."""
    announced = ["--announce", place.path(f"{name}.json")]
    return {"name": name, "command": [*command, *announced], "environment": dict(ENVIRONMENT)}


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
