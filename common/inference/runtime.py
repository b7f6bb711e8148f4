"""The runtime that executes networks. Only this module uses onnxruntime, which is imported on first use.

Networks are loaded into the daemon's process. glibc keeps memory that a network frees, in the worst case all
of it. `return_freed_memory` returns it to the system (decision 046), and is called at every load and unload.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

import numpy as np
import xxhash

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import (
    CorruptStore,
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    MissingDependency,
    Unavailable,
)
from nearsight.common.inference.process_memory import return_freed_memory
from nearsight.common.inference.tensors import DTYPES, Tensor, TensorSpec, check_inputs

if TYPE_CHECKING:
    from nearsight.common.background.worker import BackgroundWorker

_OTHER_NAMES = MappingProxyType({"float": "float32", "double": "float64"})
_FATAL = 4
_STOP_S = 5.0
SAVED_GRAPH, SAVED_WEIGHTS = "graph.onnx", "weights"
_SEPARATE_WEIGHTS = MappingProxyType(
    {
        "session.optimized_model_external_initializers_file_name": SAVED_WEIGHTS,
        "session.optimized_model_external_initializers_min_size_in_bytes": "16384",
    }
)
"""The library maps a separate file of weights into memory. Smaller weights are stored in the graph's file."""
_PROCESSOR = ("model name", "flags", "CPU part", "Features")
"""Lines of /proc/cpuinfo that identify the processor."""
ANY_SIDE_PX, _LENGTH = 224, 20
"""Sizes of open axes in sample inputs: side of an image [px], and length of a sentence [words]."""


class Place(NamedTuple):
    """Memory that an execution reads or writes."""

    name: str
    tensor: Tensor
    """In C order. The caller keeps it alive."""
    shape: tuple[int, ...]
    """Shape that the network declares. The library may store the elements in another order."""


class Runtime:
    """Loads networks. Close it after all its networks are closed.

    Parameters
    ----------
    threads : int
        Number of threads of one execution.
    clock : Clock
        Clock of time limits; must run in real time.

    Raises
    ------
    MissingDependency
        If onnxruntime is not installed.
    """

    def __init__(self, threads: int = 1, *, clock: Clock = SYSTEM_CLOCK) -> None:
        # Otherwise the import writes a database to the home folder and reports to Microsoft. The library's
        # own `disable_telemetry_events` takes effect too late (onnxruntime 1.32).
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"
        try:
            import onnxruntime  # noqa: PLC0415  optional
        except ImportError as error:
            raise MissingDependency(
                "networks need the library onnxruntime, which is not installed",
                advice="pip install 'nearsight[inference]'",
            ) from error
        self._library: Any = onnxruntime
        self.threads = threads
        self._stopper = _Stopper(clock)

    @property
    def version(self) -> str:
        """Library version and processor digest. Measurements and saved graphs are valid for these only."""
        return f"{self._library.__version__} {_processor()}"

    def load(
        self,
        path: Path,
        name: str,
        *,
        saved: bool = False,
        pooled: bool = False,
        save_in: Path | None = None,
        sizes: Mapping[str, int] = MappingProxyType({}),
    ) -> Network:
        """Load a network. Call `Network.warm_up` before its first request.

        Parameters
        ----------
        path : Path
        name : str
            Name in error messages.
        saved : bool
            The file is a saved optimised graph, which is not optimised again.
        pooled : bool
            Keep the memory of intermediate tensors for the next execution, in a pool that all such networks
            of the process share: 2 to 3 % faster. Otherwise it is freed after each execution.
        save_in : Path, optional
            Save the optimised graph in this folder: `SAVED_GRAPH` and `SAVED_WEIGHTS`. See
            `saved_graphs.save_optimised`.
        sizes : mapping of str to int
            Sizes of named axes; see `Network.axis_sizes`.

        Raises
        ------
        CorruptStore
            If the library cannot load the file as a network.
        Unavailable
            If this process cannot get the memory for it.
        """
        options = self._library.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = self.threads
        options.log_severity_level = _FATAL  # errors are raised; the library would also print them
        options.enable_cpu_mem_arena = options.enable_mem_pattern = pooled
        if pooled:
            _make_pool(self._library)
            options.add_session_config_entry("session.use_env_allocators", "1")
        if saved:
            options.graph_optimization_level = self._library.GraphOptimizationLevel.ORT_DISABLE_ALL
        for axis, size in sizes.items():
            options.add_free_dimension_override_by_name(axis, size)
        if save_in is not None:
            options.optimized_model_filepath = str(save_in / SAVED_GRAPH)
            for key, value in _SEPARATE_WEIGHTS.items():
                options.add_session_config_entry(key, value)
        try:
            session = self._library.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            if self.threads > 1:
                _WITH_THREADS.add(session)
            return Network(name, session, self._library.RunOptions, self._stopper)
        except Exception as error:  # the library's errors have no common base class
            return_freed_memory()
            why, advice = _first_line(error), "add a complete ONNX file"
            if "bad_alloc" in why:
                raise Unavailable(
                    f"there is not enough memory to load {name}",
                    advice="check the free memory of this machine",
                ) from error
            if not os.access(path, os.R_OK):
                why, advice = "its file cannot be read", "check that it exists, and give access to it"
            raise CorruptStore(f"{name} cannot be loaded: {why}", advice=advice) from error

    def stop_executions(self) -> None:
        """Stop all executions that have a time limit, and later ones at once, between two operators."""
        self._stopper.stop_all()

    def close(self) -> None:
        """Stop the thread that enforces time limits."""
        self._stopper.close()


class Network:
    """A network in memory. Thread-safe: executions may run concurrently.

    Attributes
    ----------
    name : str
    inputs, outputs : tuple of TensorSpec
    """

    def __init__(self, name: str, session: Any, options: Any, stopper: _Stopper) -> None:
        self.name = name
        self.inputs = tuple(map(_spec, session.get_inputs()))
        self.outputs = tuple(map(_spec, session.get_outputs()))
        self._output_names = [spec.name for spec in self.outputs]
        self._session = session
        self._options = options
        self._stopper = stopper

    def run(self, inputs: Mapping[str, Tensor], *, within_s: float = math.inf) -> dict[str, Tensor]:
        """Execute the network; returns the outputs by name.

        Parameters
        ----------
        inputs : mapping of str to ndarray
            By input name. The name "" refers to the only input.
        within_s : float
            Time limit. The execution is stopped between two operators.

        Raises
        ------
        InvalidArgument
            If the inputs do not match the declared ones.
        DeadlineExceeded
            If the time limit was reached.
        Unavailable
            If `Runtime.stop_executions` was called.
        InternalError
            If the library fails.
        """
        checked = check_inputs(self.name, self.inputs, inputs)
        if within_s == math.inf:  # given options, the library looks for GPU options, which takes 0.05 ms
            return self.run_checked(checked)
        options = self._options()
        self._stopper.stop_after(within_s, options)
        try:
            return self.run_checked(checked, options)
        except InternalError as error:
            if self._stopper.stopped:
                raise Unavailable(f"execution of {self.name} was stopped", advice="try again") from error
            if options.terminate:
                raise DeadlineExceeded(
                    f"execution of {self.name} exceeded the time limit of {within_s:.2f} s",
                    advice="allow more time",
                ) from error
            raise
        finally:
            self._stopper.ended(options)

    def run_checked(self, inputs: Mapping[str, Tensor], options: Any = None) -> dict[str, Tensor]:
        """As `run`, without checking the inputs; ``options`` are the library's ``RunOptions``."""
        try:
            values = self._session.run(self._output_names, inputs, options)
        except Exception as error:  # as above
            raise InternalError(f"execution of {self.name} failed: {_first_line(error)}") from error
        return dict(zip(self._output_names, values, strict=True))

    def bind(self, inputs: Sequence[Place], outputs: Sequence[Place]) -> Callable[[], None]:
        """Prepare an execution that reads and writes the given memory, without copies and without checks.

        Raises
        ------
        InternalError
            If the library fails, here or when the returned function is called.
        """
        session = self._session
        binding = session.io_binding()

        def run() -> None:
            try:
                session.run_with_iobinding(binding)  # without options, for the reason given in `run`
            except Exception as error:  # as above
                raise InternalError(f"execution of {self.name} failed: {_first_line(error)}") from error

        try:
            for name, tensor, shape in inputs:
                binding.bind_input(name, "cpu", 0, tensor.dtype.type, shape, tensor.ctypes.data)
            for name, tensor, shape in outputs:
                binding.bind_output(name, "cpu", 0, tensor.dtype.type, shape, tensor.ctypes.data)
        except Exception as error:  # as above
            raise InternalError(f"{self.name} cannot use the given memory: {_first_line(error)}") from error
        return run

    def axis_sizes(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """Sizes of the named axes of the inputs, given the inputs' shapes.

        Raises
        ------
        InvalidArgument
            If axes of the same name have different sizes.
        """
        sizes: dict[str, int] = {}
        for node in self._session.get_inputs():
            for axis, size in zip(node.shape, shapes.get(node.name, ()), strict=False):
                if isinstance(axis, str) and sizes.setdefault(axis, size) != size:
                    raise InvalidArgument(
                        f"the axis {axis!r} of {self.name} cannot have the sizes {sizes[axis]} and {size}"
                    )
        return sizes

    def warm_up(self, *, within_s: float = math.inf) -> None:
        """Execute once on noise. The first execution is slow, and no request should wait for it."""
        self.run(self.sample_inputs(), within_s=within_s)

    def sample_inputs(self) -> dict[str, Tensor]:
        """Sample inputs, always the same. Integers are 0, since they may be indices with an unknown bound."""
        rng = np.random.default_rng(0)
        return {
            spec.name: rng.random(shape, np.float32).astype(spec.dtype)
            if spec.dtype.startswith("float")
            else np.zeros(shape, spec.dtype)
            for spec in self.inputs
            for shape in [sample_shape(spec)]
        }

    def close(self) -> None:
        """Drop the network and free its memory. No execution may be running."""
        self._session = None
        return_freed_memory()


def sample_shape(spec: TensorSpec) -> tuple[int, ...]:
    """A shape that an input accepts: batch size 1, open axes with the size of a usual image or sentence."""
    any_size = ANY_SIDE_PX if len(spec.shape) == 4 else _LENGTH
    return tuple(
        (1 if axis == 0 else any_size) if size is None else size for axis, size in enumerate(spec.shape)
    )


class _Stopper:
    """Stops executions that exceed their time limit, on one thread that starts with the first limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._worker: BackgroundWorker | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._running = set[Any]()
        """Options of the executions."""
        self.stopped = False
        """Whether `stop_all` was called."""

    def stop_after(self, within_s: float, options: Any) -> None:
        """Stop the execution that uses these options after ``within_s``; no effect if it has ended."""
        with self._lock:
            self._running.add(options)
            if self.stopped:
                options.terminate = True
            if self._worker is None and not self._closed:
                self._worker = _started_worker(self._clock)
            worker = self._worker
        if worker is not None:
            worker.submit(lambda: setattr(options, "terminate", True), after_s=within_s)

    def ended(self, options: Any) -> None:
        """Note the end of an execution."""
        with self._lock:
            self._running.discard(options)

    def stop_all(self) -> None:
        """Stop all executions, and later ones at once."""
        with self._lock:
            self.stopped = True
            for options in self._running:
                options.terminate = True

    def close(self) -> None:
        with self._lock:
            self._closed = True
        if self._worker is not None:
            self._worker.stop(_STOP_S)


def _started_worker(clock: Clock) -> BackgroundWorker:
    # The process that measures a network has no time limits, and starts in half the time without logs.
    from nearsight.common.background.worker import BackgroundWorker  # noqa: PLC0415

    worker = BackgroundWorker(clock, "nearsight-stopper")
    worker.start()
    return worker


_WITH_THREADS = WeakSet[Any]()


def _keep_after_fork() -> None:
    """Never free these sessions in a forked process: the library would wait for threads that are not there.

    The interpreter frees objects at its end, unless a reference is left.
    """
    for session in _WITH_THREADS:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))


os.register_at_fork(after_in_child=_keep_after_fork)


@cache
def _make_pool(library: Any) -> None:
    """Create the shared memory pool, once per process. It grows by the requested size, not by powers of 2."""
    place = library.OrtMemoryInfo(
        "Cpu", library.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, library.OrtMemType.DEFAULT
    )
    grows = {"max_mem": 0, "arena_extend_strategy": 1, "initial_chunk_size_bytes": -1}
    library.create_and_register_allocator(
        place, library.OrtArenaCfg(grows | {"max_dead_bytes_per_chunk": -1})
    )


@cache
def _processor() -> str:
    """Digest (8 hexadecimal digits) of the processor's type and features."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else [platform.processor()]
    said = {line for line in lines if line.split("\t")[0].strip() in _PROCESSOR or not cpu.exists()}
    return f"{xxhash.xxh3_64_intdigest(''.join(sorted(said)).encode()) >> 32:08x}"


def _spec(node: Any) -> TensorSpec:
    """Convert the library's description, such as ``tensor(float)``, ``['batch', 3, 224, 224]``."""
    element = str(node.type).removeprefix("tensor(").removesuffix(")")
    dtype = _OTHER_NAMES.get(element, element)
    if dtype not in DTYPES:
        raise CorruptStore(f"{node.name!r} is of type {node.type}, which is not supported")
    shape = tuple(size if isinstance(size, int) and size >= 0 else None for size in node.shape)
    return TensorSpec(str(node.name), dtype, shape)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
