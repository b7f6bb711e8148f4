"""Networks that callers with limited rights see; answers of executions."""

from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.errors import InvalidMessage, NotFound
from nearsight.common.inference.measurement import Measurement
from nearsight.common.inference.model_memory import ModelMemory
from nearsight.common.inference.repository import ModelRepository
from nearsight.common.inference.service import InferenceService, ModelsService
from nearsight.common.inference.settings import ModelSettings
from nearsight.common.inference.tensors import tensors_from_proto, tensors_to_proto
from nearsight.common.rpc.allow_list import Caller
from nearsight.common.rpc.service import CallContext, Deadline
from nearsight.protos import inference_pb2 as pb
from support.networks import add_network, adder_network, lease_of, runtime_version
from support.waiting import LONG_S


@pytest.fixture
def networks(tmp_path: Path) -> Path:
    repository = ModelRepository(tmp_path / "models")
    for name in ("mine", "theirs"):
        added = add_network(repository, name, adder_network(tmp_path / f"{name}.onnx"), ())
        repository.note_measured(added, Measurement(500_000, 5.0, 1.0, 0.5, runtime_version()))
    return tmp_path / "models"


def context(caller: Caller | None = None, **changes: object) -> CallContext:
    known = {"caller": caller} if caller is not None else {}
    return CallContext(Deadline.after(20), **known, **changes)  # type: ignore[arg-type]


def test_callers_see_only_the_networks_that_they_may_use(networks: Path) -> None:
    repository = ModelRepository(networks)
    memory = ModelMemory(repository, ModelSettings(folder=networks), SYSTEM_CLOCK)
    service = ModelsService(repository, memory, lambda name: name == "mine", SYSTEM_CLOCK)
    everything = service.list_models(pb.ListModelsRequest(), context()).models
    assert [(one.name, one.tensors_only) for one in everything] == [("mine", False), ("theirs", True)]
    own = context(Caller("me", "key", catalogues=("mine",)))
    assert [one.name for one in service.list_models(pb.ListModelsRequest(), own).models] == ["mine"]
    memory.close()


def test_callers_see_only_evictions_of_networks_that_they_may_use(networks: Path) -> None:
    repository = ModelRepository(networks)
    memory = ModelMemory(
        repository, ModelSettings(folder=networks, memory_mb=1, policy="lru", reserve_mb=100), SYSTEM_CLOCK
    )
    service = ModelsService(repository, memory, lambda _: True, SYSTEM_CLOCK)
    lease_of(memory, "mine").result(LONG_S).release()
    memory.fit(0)
    memory.fit(10**9)
    lease_of(memory, "theirs").result(LONG_S).release()
    memory.fit(0)
    asked = pb.GetEvictionsRequest()
    assert [one.model for one in service.get_evictions(asked, context()).evictions] == ["mine", "theirs"]
    own = context(Caller("me", "key", catalogues=("theirs",)))
    assert [one.model for one in service.get_evictions(asked, own).evictions] == ["theirs"]
    memory.close()


def test_a_damaged_network_is_not_found(networks: Path) -> None:
    repository = ModelRepository(networks)
    memory = ModelMemory(repository, ModelSettings(folder=networks), SYSTEM_CLOCK)
    for manifest in repository.manifests().values():
        repository.path(manifest).write_bytes(b"x" * manifest.size_bytes)
    answer = InferenceService(memory, "cloud").infer(pb.InferRequest(), context(catalogue="mine"))
    assert isinstance(answer, Future)
    with pytest.raises(NotFound, match="is damaged: checksum"):
        answer.result(LONG_S)
    checksum = bytes.fromhex(repository.get("theirs").checksum)
    chunk = pb.GetModelChunkRequest(checksum=checksum, length=1)
    service = ModelsService(repository, memory, lambda _: True, SYSTEM_CLOCK)
    with pytest.raises(NotFound, match="is damaged: checksum"):
        service.get_model_chunk(chunk, context(catalogue="theirs"))
    memory.close()


def test_matching_tensors_are_executed_and_others_refused(networks: Path) -> None:
    memory = ModelMemory(ModelRepository(networks), ModelSettings(folder=networks), SYSTEM_CLOCK)
    lease_of(memory, "mine").result(LONG_S).release()
    service = InferenceService(memory, "cloud")
    tensor = np.arange(4, dtype=np.float32)[None]
    messages, blobs = tensors_to_proto({"": tensor})
    call = context(catalogue="mine", blobs=tuple(map(memoryview, blobs)))
    response = service.infer(pb.InferRequest(inputs=messages), call)
    assert isinstance(response, pb.InferResponse)
    assert (response.answered_by, response.version) == ("cloud", 1)
    outputs = tensors_from_proto(response.outputs, call.response_blobs)
    np.testing.assert_array_equal(outputs["y"], tensor + 1)
    with pytest.raises(InvalidMessage, match="1 tensors are declared, but 0 blobs were received"):
        service.infer(pb.InferRequest(inputs=messages), context(catalogue="mine"))
    with pytest.raises(NotFound):
        service.infer(pb.InferRequest(inputs=messages), context(catalogue="none"))
    memory.close()
