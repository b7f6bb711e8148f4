"""Networks are proven before they are loaded: measured, each in a process of its own (`measurement.py`).

A damaged file is put aside. A network that cannot be measured or loaded for another reason is not tried again
for a while, and requests are told why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import CorruptStore, NearsightError
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.measurement import measure
from nearsight.common.inference.repository import ModelRepository
from nearsight.common.inference.settings import ModelSettings
from nearsight.common.logging import get_logger

_RETRY_S = 30.0

Proven = Callable[[Manifest | NearsightError], None]
"""Gets the manifest with its measurement, or why there is none."""


class NetworkProver:
    """Measures networks one after the other, and knows which cannot be loaded. For all threads.

    Parameters
    ----------
    repository : ModelRepository
        Their files.
    settings : ModelSettings
        Threads of an execution, and the time limit of a measurement.
    clock : Clock
        Of retries; must run in real time.
    """

    def __init__(self, repository: ModelRepository, settings: ModelSettings, clock: Clock) -> None:
        self._repository = repository
        self._settings = settings
        self._clock = clock
        self._log = get_logger("models")
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Proven]] = {}
        self._problems: dict[str, tuple[Manifest, float, NearsightError]] = {}
        """By name: of which file, until when, and what it is."""
        self._worker = BackgroundWorker(clock, "nearsight-measure")

    def start(self) -> None:
        """Start the thread."""
        self._worker.start()

    def stop(self, error: NearsightError, grace_s: float) -> None:
        """Give this error to all who wait, and stop."""
        with self._lock:
            waiting = [proven for many in self._waiting.values() for proven in many]
            self._waiting.clear()
        for proven in waiting:
            proven(error)
        self._worker.stop(grace_s)

    @property
    def measuring(self) -> tuple[str, ...]:
        """Names of networks that are being measured, or wait for it."""
        with self._lock:
            return tuple(self._waiting)

    def prove(self, manifest: Manifest, proven: Proven) -> None:
        """Measure a network, once for all who ask meanwhile; ``proven`` is called on the thread for it."""
        with self._lock:
            first = manifest.name not in self._waiting
            self._waiting.setdefault(manifest.name, []).append(proven)
        if first:
            self._worker.submit(lambda: self._measure(manifest))

    def check(self, manifest: Manifest) -> None:
        """Raise what prevents the load of a network, if it was found lately."""
        with self._lock:
            known = self._problems.get(manifest.name)
            if known is None:
                return
            of, until_s, error = known
            if manifest.same_network(of) and self._clock.monotonic() < until_s:
                raise type(error)(error.message, advice=error.advice)
            del self._problems[manifest.name]

    def failed(self, manifest: Manifest, error: NearsightError) -> None:
        """A network cannot be measured or loaded."""
        if isinstance(error, CorruptStore):
            self._repository.quarantine(manifest, error.message)
            return
        self._log.error("network not loaded", network=manifest.name, error=str(error))
        with self._lock:
            self._problems[manifest.name] = (manifest, self._clock.monotonic() + _RETRY_S, error)

    def problem(self, name: str) -> str:
        """Why a network cannot be loaded; empty if it can."""
        with self._lock:
            known = self._problems.get(name)
        return str(known[2]) if known is not None else ""

    def refresh(self, manifests: Mapping[str, Manifest]) -> None:
        """Forget problems of networks that were replaced or removed."""
        with self._lock:
            self._problems = {
                name: known
                for name, known in self._problems.items()
                if known[0].same_network(manifests.get(name))
            }

    def _measure(self, manifest: Manifest) -> None:
        outcome: Manifest | NearsightError
        try:
            measured, _ = measure(
                self._repository.checked_path(manifest),
                manifest.name,
                threads=self._settings.threads,
                within_s=self._settings.load_limit_s,
                prepared=self._repository.path(manifest, "prepared"),
            )
            outcome = self._repository.note_measured(manifest, measured)
        except NearsightError as error:
            self.failed(manifest, error)
            outcome = error
        with self._lock:
            waiting = self._waiting.pop(manifest.name, [])
        for proven in waiting:
            proven(outcome)
