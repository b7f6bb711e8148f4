"""Measures each network in a process of its own before it is loaded here (`measurement.py`).

A damaged file is moved to quarantine. If measuring or loading fails for another reason, such as a time limit,
requests for the network fail with that error until the retry interval has passed.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import CorruptStore, InternalError, NearsightError, as_setup_error
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.measurement import measure
from nearsight.common.inference.repository import ModelRepository
from nearsight.common.inference.settings import ModelSettings
from nearsight.common.logging import get_logger

_RETRY_S = 30.0

OnMeasured = Callable[[Manifest | NearsightError], None]
"""Callback that receives the manifest with its measurement, or the error."""


class MeasurementQueue:
    """Measures networks one after the other, and stores which networks cannot be loaded. Thread-safe.

    Parameters
    ----------
    repository : ModelRepository
        The networks' files.
    settings : ModelSettings
        Threads of an execution, and the time limit of a measurement.
    clock : Clock
        Clock of the retry interval; must run in real time.
    """

    def __init__(self, repository: ModelRepository, settings: ModelSettings, clock: Clock) -> None:
        self._repository = repository
        self._settings = settings
        self._clock = clock
        self._log = get_logger("models")
        self._lock = threading.Lock()
        self._waiting: dict[str, list[OnMeasured]] = {}
        self._problems: dict[str, tuple[Manifest, float, NearsightError]] = {}
        """By name: the manifest of the failed file, the end of the retry interval [s], and the error."""
        self._worker = BackgroundWorker(clock, "nearsight-measure")

    def start(self) -> None:
        """Start the background thread."""
        self._worker.start()

    def stop(self, error: NearsightError, grace_s: float) -> None:
        """Pass this error to all waiting callbacks, and stop the background thread."""
        with self._lock:
            waiting = [callback for callbacks in self._waiting.values() for callback in callbacks]
            self._waiting.clear()
        for callback in waiting:
            callback(error)
        self._worker.stop(grace_s)

    @property
    def measuring(self) -> tuple[str, ...]:
        """Names of the networks that are being measured or queued for it."""
        with self._lock:
            return tuple(self._waiting)

    def submit(self, manifest: Manifest, on_measured: OnMeasured) -> None:
        """Measure a network in the background, then call ``on_measured`` on the background thread.

        Calls for a network that is already queued or being measured share one measurement.
        """
        with self._lock:
            first = manifest.name not in self._waiting
            self._waiting.setdefault(manifest.name, []).append(on_measured)
        if first:
            self._worker.submit(lambda: self._measure(manifest))

    def check(self, manifest: Manifest) -> None:
        """Raise the error of the last failed measurement or load while its retry interval lasts."""
        with self._lock:
            known = self._problems.get(manifest.name)
            if known is None:
                return
            of, until_s, error = known
            if manifest.same_network(of) and self._clock.monotonic() < until_s:
                raise type(error)(error.message, advice=error.advice)
            del self._problems[manifest.name]

    def failed(self, manifest: Manifest, error: NearsightError) -> None:
        """Record that a network cannot be measured or loaded; a damaged file is moved to quarantine."""
        if isinstance(error, CorruptStore):
            self._repository.quarantine(manifest, error.message)
            return
        if not self._repository.holds(manifest):  # it was removed or replaced meanwhile
            return
        self._log.error("network not loaded", network=manifest.name, error=str(error))
        with self._lock:
            self._problems[manifest.name] = (manifest, self._clock.monotonic() + _RETRY_S, error)

    def problem(self, name: str) -> str:
        """Error that prevents a network from being loaded; empty if there is none."""
        with self._lock:
            known = self._problems.get(name)
        return str(known[2]) if known is not None else ""

    def refresh(self, manifests: Mapping[str, Manifest]) -> None:
        """Delete the recorded errors of networks that were replaced or removed."""
        with self._lock:
            self._problems = {
                name: known
                for name, known in self._problems.items()
                if known[0].same_network(manifests.get(name))
            }

    def _measure(self, manifest: Manifest) -> None:
        outcome: Manifest | NearsightError
        prepared = self._repository.path(manifest, "prepared")
        try:
            measured, _ = measure(
                self._repository.checked_path(manifest),
                manifest.name,
                threads=self._settings.threads,
                within_s=self._settings.load_limit_s,
                prepared=prepared,
            )
            outcome = self._repository.note_measured(manifest, measured)
        except NearsightError as error:
            outcome = error
        except Exception as error:  # noqa: BLE001  such as of a file that disappears; requests wait for it
            known = as_setup_error(error) if isinstance(error, OSError) else None
            outcome = known or InternalError(f"network {manifest.name} cannot be measured: {error}")
        if isinstance(outcome, NearsightError):
            shutil.rmtree(prepared, ignore_errors=True)  # it would stay if the network was removed meanwhile
            self.failed(manifest, outcome)
        with self._lock:
            waiting = self._waiting.pop(manifest.name, [])
        for callback in waiting:
            callback(outcome)
