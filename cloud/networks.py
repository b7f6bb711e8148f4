"""The cloud's networks: a folder of files, which other processes may change, and the loaded networks."""

from __future__ import annotations

from collections.abc import Sequence

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.inference.model_memory import ModelMemory
from nearsight.common.inference.repository import ModelRepository
from nearsight.common.inference.settings import ModelSettings

_UPLOAD_S = 24 * 3600.0
"""An interrupted upload can be resumed for this time; then the next start of the cloud removes it."""


class CloudNetworks:
    """The networks that the cloud serves.

    Parameters
    ----------
    settings : ModelSettings
        Folder and memory budget.
    poll_interval_s : float
        Interval of polling the folder for changes.
    clock : Clock
        Must run in real time.

    Attributes
    ----------
    repository : ModelRepository
    memory : ModelMemory
    """

    def __init__(self, settings: ModelSettings, poll_interval_s: float, clock: Clock) -> None:
        self.repository = ModelRepository(settings.folder)
        self.repository.remove_parts(before_s=clock.wall() - _UPLOAD_S)
        self.memory = ModelMemory(self.repository, settings, clock)
        self._poll_interval_s = poll_interval_s
        self._background = BackgroundWorker(clock, "nearsight-models")

    def start(self) -> None:
        """Start watching the folder and load pinned networks."""
        self._background.start()
        self.memory.refresh()
        self._background.submit(self._poll, name="poll", after_s=self._poll_interval_s)
        self._background.submit(lambda: self.memory.keep_fitting(self._background))

    def stop(self, grace_s: float) -> None:
        """Stop watching the folder and unload all networks."""
        self._background.stop(grace_s)
        self.memory.close(grace_s)

    def facts(self) -> Sequence[tuple[str, str]]:
        """Lines for the status; empty if there are no networks."""
        manifests = self.repository.manifests()
        problems = [
            (f"network {name}", f"CANNOT BE USED: {why}") for name, why in self.repository.problems.items()
        ]
        if not manifests:
            return problems
        return [
            ("networks", f"{len(manifests)} in {self.repository.folder}: {', '.join(manifests)}"),
            ("networks in memory", self.memory.state.why),
            *problems,
        ]

    def _poll(self) -> None:
        self._background.submit(self._poll, name="poll", after_s=self._poll_interval_s)
        if self.repository.refresh():
            self.memory.refresh()
