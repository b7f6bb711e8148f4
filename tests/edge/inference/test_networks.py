"""Decisions of an edge about its networks, without a cloud."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.inference.leases import Absent
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.measurement import Measurement
from nearsight.common.inference.repository import ModelRepository, manifest_of_file
from nearsight.common.inference.settings import ModelSettings
from nearsight.common.rpc.call import Reply
from nearsight.edge.inference.networks import EdgeNetworks, _listing_of
from nearsight.protos.inference_pb2 import ListModelsResponse, ModelSummary
from support.networks import COLOURS, add_network, colour_network, lease_of, runtime_version
from support.waiting import LONG_S

MB = 10**6


def networks_in(folder: Path, **settings: Any) -> EdgeNetworks:
    cloud: Any = None  # it is not called
    return EdgeNetworks(ModelSettings(folder=folder, **settings), cloud, lambda: False, 60.0, SYSTEM_CLOCK)


def test_a_network_whose_listed_manifest_cannot_be_read_is_kept(tmp_path: Path) -> None:
    """A newer cloud may list manifests with values that this edge does not know."""
    repository = ModelRepository(tmp_path / "models")
    for name in ("newer", "gone"):
        add_network(repository, name, colour_network(tmp_path / f"{name}.onnx"))
    manifest = json.loads(repository.get("newer").to_json(shared=True)) | {"unknown": 1}
    networks = networks_in(repository.folder)
    listed = ListModelsResponse(models=[ModelSummary(name="newer", manifest=json.dumps(manifest))])
    networks._listed(_listing_of(Reply(listed, (), (), 0, 0)))
    assert [*networks.repository.manifests()] == ["newer"]
    assert not networks.knows("newer"), "the cloud answers"
    networks.memory.close()


def test_a_request_whose_stand_in_is_removed_meanwhile_waits_for_its_own_network(tmp_path: Path) -> None:
    repository = ModelRepository(tmp_path / "models")
    for name, accuracy, stands_in_for in (("large", 0.8, ""), ("small", 0.7, "large")):
        source = colour_network(tmp_path / f"{name}.onnx")
        stated = replace(manifest_of_file(source, name), labels=COLOURS, accuracy=accuracy)
        added = repository.add(source, replace(stated, stands_in_for=stands_in_for))
        repository.note_measured(added, Measurement(MB, 50.0, 0.5, 0.5, runtime_version()))
    networks = networks_in(repository.folder, memory_mb=2, policy="lru", accuracy_loss=0.5)
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
