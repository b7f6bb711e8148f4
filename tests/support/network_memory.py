"""A repository of tiny networks whose measured sizes a test sets, and the memories that load them."""

from pathlib import Path

import numpy as np

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.measurement import Measurement
from nearsight.common.inference.model_memory import ModelMemory
from nearsight.common.inference.repository import ModelRepository
from nearsight.common.inference.settings import ModelSettings
from support.networks import add_network, adder_network, lease_of, runtime_version
from support.waiting import LONG_S

MB = 1_000_000
ONES = np.ones((1, 4), np.float32)


class Place:
    """A repository and the memories of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = ModelRepository(folder / "models")
        self.open: list[ModelMemory] = []

    def add(self, name: str, mb: float | None = 10, addend: float = 1.0) -> Manifest:
        """Add a network with a measured size; None: without a measurement."""
        manifest = add_network(self.repository, name, adder_network(self.folder / f"{name}.onnx", addend), ())
        if mb is None:
            return manifest
        measured = Measurement(int(mb * MB), 5.0, 1.0, 0.5, runtime_version())
        return self.repository.note_measured(manifest, measured)

    def memory(self, mb: int = 30, clock: Clock = SYSTEM_CLOCK, **changes: object) -> ModelMemory:
        settings = ModelSettings(folder=self.repository.folder, memory_mb=mb, policy="lru", **changes)  # type: ignore[arg-type]
        memory = ModelMemory(self.repository, settings, clock)
        self.open.append(memory)
        return memory


def use(memory: ModelMemory, name: str) -> float:
    """The network's output for the input 1; waits until it is loaded."""
    with lease_of(memory, name).result(LONG_S) as lease:
        return float(lease.run({"": ONES}, LONG_S)["y"][0, 0])
