"""Measures the costs of a network: time and memory of its load, of its first and of later executions.

A network is measured in a separate process, where nothing else changes the memory. A file that crashes or
hangs the runtime ends only that process. Therefore each new file is measured before a daemon loads it.
Sources: CremeBrulee, sections II and III; mCache, section 3.2.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from statistics import median
from typing import NamedTuple

from nearsight.common.errors import CorruptStore, InternalError, NearsightError, Unavailable
from nearsight.common.inference.external_data import check_is_one_file
from nearsight.common.inference.process_memory import end_with_parent, own_memory_bytes, return_freed_memory
from nearsight.common.inference.runtime import SAVED_GRAPH, Runtime
from nearsight.common.inference.saved_graphs import prepare, temporary_folder
from nearsight.common.model_cache.policy import ModelCosts

LONGEST_S = 120.0
"""Default time limit of a measurement."""
_FAILED = 3
_SLOW = 1.5


class Cycle(NamedTuple):
    """One load, executions and unload. Memory [bytes] is relative to the process's memory at its start."""

    load_ms: float
    """Duration of the load without the first execution."""
    first_ms: float
    later_ms: tuple[float, ...]
    loaded_bytes: int
    executed_bytes: int
    """Memory after the last execution."""
    unloaded_bytes: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """Costs of a network on this machine, as medians over cycles."""

    memory_bytes: int
    """Memory of the loaded network, including executions."""
    load_ms: float
    """Duration of the load. Includes the first execution if `warms_up`, else its excess over later ones."""
    first_ms: float
    """Duration of the first execution after a load."""
    execution_ms: float
    """Duration of later executions."""
    runtime: str
    """Version of the runtime; see `Runtime.version`."""

    def __post_init__(self) -> None:
        """Raise `ValueError` if a cost is negative or not finite."""
        costs = (self.memory_bytes, self.load_ms, self.first_ms, self.execution_ms)
        if not all(0 <= one < inf for one in costs):
            raise ValueError(f"a cost is negative or not finite: {self}")

    @classmethod
    def of(cls, cycles: Sequence[Cycle], runtime: str) -> Measurement:
        """Medians of cycles. Memory is what an unload frees, so the library's own memory is not counted."""
        memory = [max(one.loaded_bytes, one.executed_bytes) - one.unloaded_bytes for one in cycles]
        first_ms = median(cycle.first_ms for cycle in cycles)
        execution_ms = median(ms for cycle in cycles for ms in (cycle.later_ms or (cycle.first_ms,)))
        extra_ms = max(0.0, first_ms - execution_ms)
        load_ms = median(cycle.load_ms for cycle in cycles)
        measured = cls(max(1, int(median(memory))), load_ms + extra_ms, first_ms, execution_ms, runtime)
        return replace(measured, load_ms=load_ms + first_ms) if measured.warms_up else measured

    @property
    def costs(self) -> ModelCosts:
        """Costs for the model cache."""
        return ModelCosts(self.memory_bytes, self.load_ms, self.execution_ms)

    @property
    def warms_up(self) -> bool:
        """Whether the first execution is slow. It is then executed during the load, before any request."""
        return self.first_ms > _SLOW * self.execution_ms


def measure_here(
    path: Path, name: str, runtime: Runtime, *, cycles: int, executions: int, saved: bool = False
) -> list[Cycle]:
    """Load, execute and unload a network ``cycles`` times in this process, which should do nothing else."""
    return_freed_memory()
    began_bytes, measured = own_memory_bytes(), []
    for _ in range(cycles):
        started_s = time.perf_counter()
        network = runtime.load(path, name, saved=saved)
        loaded_s = time.perf_counter()
        return_freed_memory()
        loaded_bytes = own_memory_bytes()
        inputs, later_ms = network.sample_inputs(), []
        for _ in range(executions):
            before_s = time.perf_counter()
            network.run(inputs)
            later_ms.append((time.perf_counter() - before_s) * 1e3)
        return_freed_memory()
        executed_bytes = own_memory_bytes()
        network.close()
        del network
        measured.append(
            Cycle(
                (loaded_s - started_s) * 1e3,
                later_ms[0],
                tuple(later_ms[1:]),
                loaded_bytes - began_bytes,
                executed_bytes - began_bytes,
                own_memory_bytes() - began_bytes,
            )
        )
    return measured


def measure(
    path: Path,
    name: str,
    *,
    threads: int = 1,
    cycles: int = 1,
    executions: int = 3,
    within_s: float = LONGEST_S,
    prepared: Path | None = None,
) -> tuple[Measurement, list[Cycle]]:
    """Measure a network in a separate process.

    With ``prepared``, the optimised graph is saved in that folder first, and then measured; see
    `saved_graphs`.

    Raises
    ------
    CorruptStore
        If the file is not a network, or not all of it.
    MissingDependency
        If onnxruntime is not installed.
    Unavailable
        If the process cannot be started, crashed, or exceeded the time limit. The cause may be this machine.
    InternalError
        If its output is invalid.
    """
    runtime = Runtime(threads)
    version, size_bytes = runtime.version, path.stat().st_size
    runtime.close()
    arguments = [os.getpid(), path, name, threads, cycles, executions, prepared or ""]
    command = [sys.executable, "-m", __name__, *map(str, arguments)]
    try:
        output = run_measuring_process(command, name, within_s)
    finally:
        if prepared is not None:  # the process may have been ended before it removed this folder
            shutil.rmtree(temporary_folder(prepared), ignore_errors=True)
    measured, all_cycles = _measured(output, version)
    # The process may have had enough free memory for a small network, which then would seem to need none.
    return replace(measured, memory_bytes=max(measured.memory_bytes, size_bytes)), all_cycles


def run_measuring_process(command: Sequence[str], name: str, within_s: float) -> bytes:
    """Run a measuring process and return its output.

    Raises
    ------
    CorruptStore, Unavailable
        As `measure`.
    """
    try:
        done = subprocess.run(command, capture_output=True, timeout=within_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            f"measuring {name} exceeded the time limit of {within_s:g} s",
            advice="raise models.load_limit_s, or check the file",
        ) from error
    except OSError as error:
        raise Unavailable(f"{name} cannot be measured: {error}", advice="try again") from error
    if done.returncode == _FAILED:
        message, _, advice = done.stdout.decode(errors="replace").strip().partition("\n")
        raise CorruptStore(message, advice=advice)
    if done.returncode:
        raise Unavailable(
            f"{name} crashed the process that measured it: {_exit_reason(done)}",
            advice="check the file, and the free memory of this machine",
        )
    return done.stdout


def _exit_reason(done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode < 0:
        number = -done.returncode
        named = number in {one.value for one in signal.Signals}  # most real-time signals have no name
        return signal.Signals(number).name if named else f"signal {number}"
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return f"exit status {done.returncode}{': ' + lines[-1] if lines else ''}"


def _measured(output: bytes, version: str) -> tuple[Measurement, list[Cycle]]:
    try:
        cycles = [Cycle(*row)._replace(later_ms=tuple(row[2])) for row in json.loads(output)]
        return Measurement.of(cycles, version), cycles
    except (ValueError, TypeError) as error:
        raise InternalError("the process that measures a network printed invalid output") from error


def _main(
    parent_pid: str, path: str, name: str, threads: str, cycles: str, executions: str, prepared: str
) -> int:
    """Entry point of the measuring process: prints cycles as JSON, or an error and returns `_FAILED`."""
    end_with_parent(int(parent_pid))  # nothing else would end a network that hangs
    try:
        runtime = Runtime(int(threads))
        check_is_one_file(Path(path), name)
        saved = bool(prepared) and prepare(runtime, Path(path), name, Path(prepared))
        used = Path(prepared) / SAVED_GRAPH if saved else Path(path)
        measured = measure_here(
            used, name, runtime, cycles=int(cycles), executions=int(executions), saved=saved
        )
    except Unavailable as error:  # not the file's fault
        print(error.message, file=sys.stderr)  # noqa: T201
        return 1
    except NearsightError as error:
        print(error.message, error.advice, sep="\n")  # noqa: T201
        return _FAILED
    print(json.dumps(measured))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
