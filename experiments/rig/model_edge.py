"""Sends requests for networks to a real edge: a separate daemon, reached over loopback, without a cloud.

The result has the same form as the simulator's, so that the same requests can be compared one by one.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import NearsightError
from nearsight.common.inference.measurement import measure
from nearsight.common.inference.repository import ModelRepository
from nearsight.common.inference.runtime import Runtime
from nearsight.common.inference.tensors import Tensor
from nearsight.common.model_cache.policy import ModelCosts
from nearsight.device.recognizer import Recognizer
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.experiments.model_serving.simulation import Served
from nearsight.experiments.rig.conditions import machine_busy_s
from nearsight.experiments.rig.processes import ManagedProcess, ProcessGroup
from nearsight.experiments.rig.tiers import START_TIMEOUT_S, endpoint_of, metric_samples, start_daemon
from nearsight.experiments.traces.model_requests import ModelRequests

UNUSED_ENDPOINT = "tcp://127.0.0.1:9"
_TIMEOUT_S = 60.0
_IN_FLIGHT = 64
_EXECUTIONS = 4
CORES = os.cpu_count() or 1


def prepared_copy(source: Path, names: Sequence[str], folder: Path) -> dict[str, int]:
    """Make a folder of networks that an edge can load without preparation; returns their memory [bytes].

    Files are symbolic links.
    """
    source_models, target_models = ModelRepository(source), ModelRepository(folder)
    folder.mkdir(parents=True)
    sizes = {}
    for name in names:
        manifest = source_models.get(name)
        path = target_models.path(manifest)
        path.symlink_to(source_models.checked_path(manifest).resolve())
        found, _ = measure(
            path, name, executions=_EXECUTIONS, prepared=target_models.path(manifest, "prepared")
        )
        (folder / f"{name}.json").write_text(replace(manifest, measured=found).to_json())
        sizes[name] = found.memory_bytes
    return sizes


class EdgeCosts(NamedTuple):
    """Costs of networks at an edge.

    Attributes
    ----------
    models : dict of str to ModelCosts
        Loads without unloading.
    unload_ms : dict of str to float
        Time by which a load is longer if it evicts this network.
    """

    models: dict[str, ModelCosts]
    unload_ms: dict[str, float]


class ModelEdge:
    """A running edge and its clients. See `model_edge`."""

    def __init__(
        self,
        process: ManagedProcess,
        clients: Mapping[str, Recognizer],
        inputs: Mapping[str, Mapping[str, Tensor]],
    ) -> None:
        self._process = process
        self._metrics = str(process.wait_ready(START_TIMEOUT_S)["metrics"])
        self._last_times = self._cpu_times()
        self._clients = clients
        self._inputs = inputs

    def warm_up(self, names: Iterable[str]) -> None:
        """Request each of these networks once, in the order of their names."""
        for name in sorted(names):
            infer_once(self._clients[name], self._inputs[name])

    def costs(self, sizes: Mapping[str, int], rounds: int) -> EdgeCosts:
        """Costs of networks at this edge, whose memory has room for the largest one only.

        Each load unloads one other network: all take turns with the largest one. The edge measures loads and
        unloading. The execution time includes the way to the client and back. Results are medians. If other
        processes left less than one core, they are scaled down to exclude their effect.

        Parameters
        ----------
        sizes : mapping of str to int
            Memory of the networks [bytes], at least two.
        rounds : int
            Number of loads of each network.
        """
        self.warm_up(sizes)  # so that files are read and checked before the measurement
        self.other_cores()
        largest = max(sizes, key=sizes.__getitem__)
        loads_ms, unloads_ms, executions_ms = (defaultdict[str, list[float]](list) for _ in range(3))
        self._clients[largest].infer(self._inputs[largest])
        for _ in range(rounds):
            for other in (name for name in sizes if name != largest):
                for name, unloaded in ((other, largest), (largest, other)):
                    before_s = self._load_times()
                    self._clients[name].infer(self._inputs[name])
                    load_s, unload_s = self._load_times() - before_s
                    loads_ms[name].append(1e3 * (load_s - unload_s))
                    unloads_ms[unloaded].append(1e3 * unload_s)
                    for _ in range(_EXECUTIONS):
                        executions_ms[name].append(self._clients[name].infer(self._inputs[name]).latency_ms)
        speed = min(1.0, CORES / (1.0 + self.other_cores()))
        costs = {
            name: ModelCosts(size_bytes, speed * median(loads_ms[name]), speed * median(executions_ms[name]))
            for name, size_bytes in sizes.items()
        }
        return EdgeCosts(costs, {name: speed * median(unloads_ms[name]) for name in sizes})

    def other_cores(self) -> float:
        """Mean number of cores that other processes used since the last call."""
        (began_s, busy_s, used_s), self._last_times = self._last_times, self._cpu_times()
        now_s, busy_now_s, used_now_s = self._last_times
        lasted_s, others_s = now_s - began_s, busy_now_s - busy_s - (used_now_s - used_s)
        return min(CORES, max(0.0, others_s / max(lasted_s, 1e-9)))

    def _cpu_times(self) -> tuple[float, float, float]:
        """Current time, busy time of all cores, and CPU time of the edge [s]."""
        return time.monotonic(), machine_busy_s(), self._process.cpu_s()

    def serve(self, requests: ModelRequests, clients: int = 0) -> Served:
        """Send requests at their times, or with ``clients`` concurrent clients as in `serve_with_loader`.

        A request that fails counts as refused.
        """
        count = len(requests)
        names = [requests.names[model] for model in requests.models.tolist()]
        served = Served(
            np.zeros(count), np.zeros(count, bool), np.zeros(count, bool), np.zeros(count), np.zeros(count)
        )

        def ask(place: int) -> None:
            name = names[place]
            try:
                answer = self._clients[name].infer(self._inputs[name])
            except NearsightError:
                served.refused[place] = True
                return
            served.load_ms[place], served.missed[place] = answer.load_ms, answer.load_ms > 0
            served.queue_ms[place] = answer.hops[-1].queue_ms
            served.execution_ms[place] = answer.latency_ms - answer.load_ms - served.queue_ms[place]

        with ThreadPoolExecutor(clients or _IN_FLIGHT) as pool:
            began_s = time.monotonic()
            asked = []
            for place, at_s in enumerate(requests.times_s.tolist()):
                if not clients:
                    time.sleep(max(0.0, began_s + at_s - time.monotonic()))
                asked.append(pool.submit(ask, place))
        for one in asked:
            one.result()
        return served

    def evictions(self) -> int:
        """Number of networks evicted so far."""
        return int(self._counter("evictions"))

    def _load_times(self) -> NDArray[np.float64]:
        """Total time of loads, and of the unloading in them [s]."""
        return np.array([self._counter("load_seconds"), self._counter("unload_seconds")])

    def _counter(self, name: str) -> float:
        wanted = f"nearsight_models_{name}_total"
        return sum(one.value for one in metric_samples(self._metrics) if one.name == wanted)


def infer_once(device: Recognizer, inputs: Tensor | Mapping[str, Tensor]) -> None:
    """Request a network of an edge without a cloud.

    Early requests fail while the edge still waits for its cloud; they are retried until the edge detects that
    it has none.
    """
    until_s = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            device.infer(inputs)
            return
        except NearsightError:
            if time.monotonic() > until_s:
                raise


@contextmanager
def model_edge(
    folder: Path, models: Path, policy: str, budget_bytes: int, window_s: float = 600.0
) -> Iterator[ModelEdge]:
    """Start an edge with its own networks, for a ``with`` block.

    Parameters
    ----------
    folder : Path
        For logs.
    models : Path
        From `prepared_copy`.
    policy : str
        Eviction policy.
    budget_bytes : int
        Memory budget [bytes], rounded down to MB.
    window_s : float
        Window of policies that use one [s].

    Raises
    ------
    SetupError
        If the edge does not start.
    """
    repository, runtime = ModelRepository(models), Runtime()
    inputs = {}
    for name, manifest in repository.manifests().items():
        network = runtime.load(repository.checked_path(manifest), name)
        inputs[name] = network.sample_inputs()
        network.close()
    runtime.close()
    settings = {
        "cloud": UNUSED_ENDPOINT,
        "metrics_listen": "127.0.0.1:0",
        "poll_s": 3600,
        "server.queue_timeout_s": _TIMEOUT_S,
        "models.folder": str(models),
        "models.policy": policy,
        "models.memory_mb": budget_bytes // 10**6,
        "models.window_s": window_s,
        "models.reserve_mb": 0,
        "models.most_evictions": 10_000,
    }
    device = RecognizerSettings(timeout_s=_TIMEOUT_S, prefetch=PrefetchSettings(enabled=False))
    with ProcessGroup(folder) as group, ExitStack() as opened:
        edge = start_daemon(group, "edge", "edge", settings)
        edge.wait_ready(START_TIMEOUT_S)
        clients = {
            name: opened.enter_context(Recognizer(endpoint_of(edge), None, name, settings=device))
            for name in inputs
        }
        yield ModelEdge(edge, clients, inputs)
