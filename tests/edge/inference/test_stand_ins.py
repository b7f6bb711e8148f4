"""A network that stands in for one that is being loaded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.inference.leases import Absent
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.measurement import Measurement
from nearsight.common.inference.repository import ModelRepository, manifest_of_file
from nearsight.common.inference.settings import ModelSettings
from nearsight.edge.inference.networks import EdgeNetworks
from support.networks import COLOURS, colour_network, lease_of, runtime_version
from support.waiting import LONG_S

MB = 10**6


def test_a_request_whose_stand_in_is_removed_meanwhile_waits_for_its_own_network(tmp_path: Path) -> None:
    repository = ModelRepository(tmp_path / "models")
    for name, accuracy, stands_in_for in (("large", 0.8, ""), ("small", 0.7, "large")):
        source = colour_network(tmp_path / f"{name}.onnx")
        stated = replace(manifest_of_file(source, name), labels=COLOURS, accuracy=accuracy)
        added = repository.add(source, replace(stated, stands_in_for=stands_in_for))
        repository.note_measured(added, Measurement(MB, 50.0, 0.5, 0.5, runtime_version()))
    settings = ModelSettings(folder=repository.folder, memory_mb=2, policy="lru", accuracy_loss=0.5)
    cloud: Any = None  # it is not called
    networks = EdgeNetworks(settings, cloud, lambda: False, 60.0, SYSTEM_CLOCK)
    lease_of(networks.memory, "small").result(LONG_S).release()

    def removed_meanwhile(_wanted: Manifest, other: Manifest) -> bool:
        networks.repository.remove(other.name)
        return True

    found = networks.admit("large", removed_meanwhile)
    assert isinstance(found, Absent)
    found.lease.result(LONG_S).release()
    assert networks.counts() == {"waited": 1}
    networks.memory.limit(0)
    assert networks.memory.state.resident == {}, "nobody uses the network any more"
    networks.memory.close()
