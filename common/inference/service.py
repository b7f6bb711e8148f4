"""RPC services of a tier with networks: execution on tensors, and download of the networks' files."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import ClassVar

import xxhash
from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.clock import Clock
from nearsight.common.errors import CorruptStore, InvalidArgument, NotFound
from nearsight.common.inference.leases import Absent, Lease
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.model_memory import ModelMemory
from nearsight.common.inference.repository import ModelRepository
from nearsight.common.inference.tensors import tensors_from_proto, tensors_to_proto
from nearsight.common.rpc.service import CallContext, Service
from nearsight.protos import inference_pb2 as pb

MOST_CHUNK_BYTES = 4 << 20


class InferenceService(Service):
    """Executes networks on tensors.

    Parameters
    ----------
    memory : ModelMemory
        The networks.
    tier : str
        Name of this tier, stated in responses.
    """

    descriptor: ClassVar[ServiceDescriptor] = pb.DESCRIPTOR.services_by_name["Inference"]

    def __init__(self, memory: ModelMemory, tier: str) -> None:
        self._memory = memory
        self._tier = tier

    def infer(
        self, request: pb.InferRequest, context: CallContext
    ) -> pb.InferResponse | Future[pb.InferResponse]:
        """Execute the network that the call names: at once if it is in memory, else after it is loaded."""
        found = self._memory.request(context.catalogue)
        if isinstance(found, Absent):
            return self._memory.jobs.when_loaded(
                found,
                lambda lease: self._executed(lease, request, context),
                context.deadline.remaining_s(),
            )
        with found:
            return self._executed(found, request, context)

    def _executed(self, lease: Lease, request: pb.InferRequest, context: CallContext) -> pb.InferResponse:
        inputs = tensors_from_proto(request.inputs, context.blobs)
        outputs, blobs = tensors_to_proto(lease.run(inputs, context.deadline.remaining_s()))
        context.response_blobs.extend(blobs)
        manifest = lease.manifest
        return pb.InferResponse(
            outputs=outputs,
            answered_by=self._tier,
            version=manifest.version,
            network=manifest.name if lease.stands_in else "",
            load_ms=lease.waited_ms,
        )


class ModelsService(Service):
    """Lists networks, sends their files in chunks, and reports recent evictions from memory.

    Parameters
    ----------
    repository : ModelRepository
        The files.
    memory : ModelMemory
        The networks that are in memory.
    takes_photos : callable
        Takes a name; returns whether this network answers requests with photos.
    clock : Clock
        Used to compute the age of an eviction.
    """

    descriptor: ClassVar[ServiceDescriptor] = pb.DESCRIPTOR.services_by_name["Models"]
    own_worker: ClassVar[bool] = True  # downloads must not wait in the queue behind photos

    def __init__(
        self,
        repository: ModelRepository,
        memory: ModelMemory,
        takes_photos: Callable[[str], bool],
        clock: Clock,
    ) -> None:
        self._repository = repository
        self._memory = memory
        self._takes_photos = takes_photos
        self._clock = clock

    def list_models(self, request: pb.ListModelsRequest, context: CallContext) -> pb.ListModelsResponse:
        """List all networks that the caller may use, by name."""
        del request
        manifests = self._repository.manifests()
        return pb.ListModelsResponse(
            models=[self._summary(one) for name, one in manifests.items() if context.caller.sees(name)]
        )

    def get_model_chunk(
        self, request: pb.GetModelChunkRequest, context: CallContext
    ) -> pb.GetModelChunkResponse:
        """Return a chunk of a network's file, which must have the checksum that the caller states."""
        manifest = self._repository.get(context.catalogue)
        if bytes.fromhex(manifest.checksum) != request.checksum:
            raise NotFound(f"network {manifest.name} has been replaced", advice="list the networks again")
        if not 0 < request.length <= MOST_CHUNK_BYTES:
            raise InvalidArgument(f"invalid chunk length {request.length}: 1 to {MOST_CHUNK_BYTES} bytes")
        if request.offset >= manifest.size_bytes:
            raise InvalidArgument(
                f"offset {request.offset} is not in the file of {manifest.size_bytes} bytes"
            )
        try:
            path = self._repository.checked_path(manifest)
        except CorruptStore as error:
            raise NotFound(error.message, advice=error.advice) from error
        with path.open("rb") as file:
            chunk = os.pread(file.fileno(), request.length, request.offset)
        if not chunk:
            raise CorruptStore(f"the file of network {manifest.name} is truncated")
        context.response_blobs.append(chunk)
        return pb.GetModelChunkResponse(digest=xxhash.xxh3_64_intdigest(chunk))

    def get_evictions(self, request: pb.GetEvictionsRequest, context: CallContext) -> pb.GetEvictionsResponse:
        """Return the most recent evictions of networks that the caller may use."""
        del request
        sees: Callable[[str], bool] = context.caller.sees
        now_s = self._clock.monotonic()
        return pb.GetEvictionsResponse(
            evictions=[
                pb.EvictionMessage(
                    age_s=max(0.0, now_s - one.at_s),
                    model=one.model,
                    score=one.score,
                    size_bytes=one.size_bytes,
                    load_ms=one.load_ms,
                    made_room_for=one.made_room_for if sees(one.made_room_for) else "",
                )
                for one in self._memory.evictions()
                if sees(one.model)
            ]
        )

    def _summary(self, manifest: Manifest) -> pb.ModelSummary:
        measured = manifest.measured
        return pb.ModelSummary(
            name=manifest.name,
            manifest=manifest.to_json(shared=True),
            memory_bytes=measured.memory_bytes if measured else 0,
            load_ms=measured.load_ms if measured else 0.0,
            execution_ms=measured.execution_ms if measured else 0.0,
            resident=self._memory.is_resident(manifest.name),
            problem=self._memory.problem(manifest.name),
            tensors_only=not self._takes_photos(manifest.name),
        )
