"""Loads the networks of a repository within a time limit, from saved graphs where available."""

from __future__ import annotations

import shutil
from functools import partial

from nearsight.common.background.futures import in_thread
from nearsight.common.errors import (
    CorruptStore,
    InternalError,
    NearsightError,
    Unavailable,
)
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.process_memory import return_freed_memory
from nearsight.common.inference.repository import ModelRepository
from nearsight.common.inference.runtime import Network, Runtime
from nearsight.common.inference.saved_graphs import SavedGraphs
from nearsight.common.logging import get_logger


class NetworkLoader:
    """Loads the networks of a repository.

    Parameters
    ----------
    repository : ModelRepository
    runtime : Runtime
    limit_s : float
        Time limit of a load.
    """

    def __init__(self, repository: ModelRepository, runtime: Runtime, limit_s: float) -> None:
        self._repository = repository
        self._runtime = runtime
        self._limit_s = limit_s
        self._log = get_logger("models")
        self._saved = SavedGraphs(runtime.version)

    def load(self, manifest: Manifest) -> Network:
        """Load a network, and execute it once if its first execution is slow.

        Raises
        ------
        CorruptStore
            If its file is damaged.
        Unavailable
            If the library cannot load an undamaged file now. Or if the time limit is exceeded; the load then
            continues on its thread, since the library cannot interrupt it.
        InternalError
            After any other failure.
        """
        name = manifest.name
        loading = in_thread(partial(self._load, manifest), f"nearsight-load-{name}")
        try:
            return loading.result(self._limit_s)
        except TimeoutError as error:
            raise Unavailable(
                f"loading network {name} exceeded the time limit of {self._limit_s:g} s", advice="see the log"
            ) from error
        except NearsightError:
            raise
        except Exception as error:
            raise InternalError(f"network {name} cannot be loaded: {error}") from error

    def _load(self, manifest: Manifest) -> Network:
        return self._warm(self._from_saved_graph(manifest) or self._from_file(manifest), manifest)

    def _from_saved_graph(self, manifest: Manifest) -> Network | None:
        """Load the saved graph; None if there is none, or it cannot be loaded. A damaged one is removed."""
        folder, name = self._repository.path(manifest, "prepared"), manifest.name
        try:
            graph = self._saved.find(folder)
        except CorruptStore as error:
            shutil.rmtree(folder, ignore_errors=True)
            self._log.warning("a saved graph was removed", network=name, error=str(error))
            return None
        try:
            return self._runtime.load(graph, name, saved=True) if graph is not None else None
        except CorruptStore as error:  # its digests are right
            self._log.warning("a saved graph cannot be loaded now", network=name, error=error.message)
            return None

    def _from_file(self, manifest: Manifest) -> Network:
        path = self._repository.checked_path(manifest)
        try:
            return self._runtime.load(path, manifest.name)
        except CorruptStore as error:
            # Its checksum is right, and this runtime has loaded it before, to measure it. So the reason is
            # this machine, for example a shortage of memory.
            advice = "check the free memory and the number of open files of this machine"
            raise Unavailable(error.message, advice=advice) from error

    def _warm(self, network: Network, manifest: Manifest) -> Network:
        try:
            if manifest.measured is None or manifest.measured.warms_up:
                network.warm_up(within_s=self._limit_s)
        finally:
            return_freed_memory()
        return network
