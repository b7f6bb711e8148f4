"""Intake of networks into a cloud: from a local file, or over the network in chunks.

Each network is first loaded and executed in a separate process on the cloud's machine (decision 046). An
interrupted upload is resumed: the length of the partial file at the cloud says how much has arrived.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, NamedTuple

import xxhash
from google.protobuf.descriptor import ServiceDescriptor

from nearsight.cloud.access import BACK_OFF_S
from nearsight.cloud.networks import CloudNetworks
from nearsight.common.background.futures import pending
from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.catalogue.store import Author, CatalogueStore
from nearsight.common.clock import Clock
from nearsight.common.errors import (
    CorruptStore,
    InvalidArgument,
    NotFound,
    PeerError,
    SetupError,
    Unavailable,
)
from nearsight.common.inference.classification import check_pixels_fit, image_layout
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.measurement import measure
from nearsight.common.inference.repository import ModelRepository, checksum_of
from nearsight.common.inference.runtime import Runtime
from nearsight.common.inference.service import MOST_CHUNK_BYTES
from nearsight.common.inference.settings import ModelSettings
from nearsight.common.logging import get_logger
from nearsight.common.operation.status import format_bytes
from nearsight.common.rpc.allow_list import Access
from nearsight.common.rpc.client import Channel, Stub
from nearsight.common.rpc.service import CallContext, Service
from nearsight.protos import inference_pb2 as pb

CHUNK_BYTES = 1 << 20
_EXECUTIONS = 10
_CALL_S, _PROOF_S = 20.0, 900.0


class AddedNetwork(NamedTuple):
    """Result of adding a network to a cloud."""

    manifest: Manifest
    """Manifest with the network's version and its costs on the cloud's machine."""
    done: str
    """ "added", "replaced" or "unchanged"."""
    use: str
    """Inputs and purpose of the network, as text for the user."""


def measure_and_add(
    repository: ModelRepository,
    settings: ModelSettings,
    file: Path,
    wanted: Manifest,
    *,
    move: bool = False,
    cycles: int = 3,
) -> AddedNetwork:
    """Measure a file in a separate process, and add it to the repository.

    Raises
    ------
    CorruptStore, MissingDependency, Unavailable
        As in `measure`.
    InvalidArgument
        If the labels do not match the network's inputs and outputs.
    SetupError
        If the repository cannot be written.
    """
    with TemporaryDirectory() as place:
        prepared = Path(place) / "prepared"
        measured, _ = measure(
            file,
            wanted.name,
            threads=settings.threads,
            cycles=cycles,
            executions=_EXECUTIONS,
            within_s=settings.load_limit_s * cycles,
            prepared=prepared,
        )
        use, before = _use_of(file, wanted, settings), repository.manifests().get(wanted.name)
        added = repository.add(file, replace(wanted, measured=measured), move=move, prepared=prepared)
    done = "added" if before is None else "unchanged" if before.version == added.version else "replaced"
    return AddedNetwork(added, done, use)


def costs_in_words(added: Manifest) -> str:
    """Costs of a measured network, as text for the user."""
    measured = added.measured
    if measured is None:
        return f"{format_bytes(added.size_bytes)} on disk"
    return (
        f"{format_bytes(added.size_bytes)} on disk, {format_bytes(measured.memory_bytes)} in memory; "
        f"loads in {measured.load_ms:.0f} ms, executes in {measured.execution_ms:.1f} ms"
    )


class NetworkIntake(Service):
    """Service that adds and removes networks over the network.

    Parameters
    ----------
    networks : CloudNetworks
        Destination of the networks.
    settings : ModelSettings
        Settings for the measurement.
    store : CatalogueStore
        Its log records the author of each change.
    clock : Clock
        Must run in real time.
    """

    descriptor: ClassVar[ServiceDescriptor] = pb.DESCRIPTOR.services_by_name["NetworkIntake"]
    own_worker: ClassVar[bool] = True  # files must not wait behind photos

    def __init__(
        self, networks: CloudNetworks, settings: ModelSettings, store: CatalogueStore, clock: Clock
    ) -> None:
        self._networks = networks
        self._repository = networks.repository
        self._settings = settings
        self._store = store
        self._log = get_logger("models")
        self._checking: list[Path] = []
        """Files that are being checked and measured, or are queued for it. They must not change."""
        self._background = BackgroundWorker(clock, "nearsight-network-intake")
        self._background.start()

    def stop(self, grace_s: float) -> None:
        """Start no further measurement."""
        self._background.stop(grace_s)

    def put_model_chunk(
        self, request: pb.PutModelChunkRequest, context: CallContext
    ) -> pb.PutModelChunkResponse:
        """Append a chunk, if it is the next one; the response says how much of the file has arrived."""
        wanted = Manifest(context.catalogue, 1, request.size_bytes, request.checksum.hex())
        if self._repository.holds(wanted):
            return pb.PutModelChunkResponse(done_bytes=wanted.size_bytes)
        part = self._repository.path(wanted, "part")
        try:
            done_bytes = self._received_bytes(part, wanted)
            if context.blobs and part not in self._checking:
                piece = context.blobs[0]
                if len(piece) > min(MOST_CHUNK_BYTES, wanted.size_bytes - request.offset):
                    raise InvalidArgument(f"a chunk of {len(piece)} bytes at {request.offset} is too long")
                if request.offset == done_bytes and request.digest == xxhash.xxh3_64_intdigest(piece):
                    with part.open("ab") as file:
                        file.write(piece)
                    done_bytes += len(piece)
        except OSError as error:
            raise Unavailable(
                f"the cloud cannot store the file: {error.strerror}", advice="make room there"
            ) from error
        return pb.PutModelChunkResponse(done_bytes=done_bytes)

    def add_model(self, request: pb.AddModelRequest, context: CallContext) -> Future[pb.AddModelResponse]:
        """Measure the uploaded file in another thread, and put it into service."""
        try:
            wanted = replace(Manifest.from_json(request.manifest), version=1, measured=None)
        except CorruptStore as error:
            raise InvalidArgument(error.message) from error
        if wanted.name != context.catalogue:
            raise InvalidArgument(
                f"the manifest is of {wanted.name!r}, the call is about {context.catalogue!r}"
            )
        if wanted.stands_in_for:  # then it answers requests for that name as well
            context.caller.catalogue_of(Access.CHANGES_CATALOGUE, wanted.stands_in_for)
        self._store.check_writable()
        by = Author(context.caller.name, context.caller.key)
        part = self._repository.path(wanted, "part")
        answer: Future[pb.AddModelResponse] = pending()

        def work() -> None:
            try:
                answer.set_result(self._add(wanted, part, by))
            except Exception as error:  # noqa: BLE001  whatever it is, somebody waits for it
                answer.set_exception(error)
            finally:
                self._checking.remove(part)

        self._checking.append(part)
        self._background.submit(work)
        return answer

    def remove_model(self, request: pb.RemoveModelRequest, context: CallContext) -> pb.RemoveModelResponse:
        """Remove a network, or what has arrived of it. The request must name it."""
        del request
        name = context.named_catalogue()
        self._store.check_writable()
        manifest = self._repository.manifests().get(name)
        self._repository.remove(name)
        if manifest is not None:
            self._note_change(Author(context.caller.name, context.caller.key), manifest, "removed")
        return pb.RemoveModelResponse()

    def _received_bytes(self, part: Path, wanted: Manifest) -> int:
        """Number of bytes that have arrived; an empty file is created if the disk has room for all of it."""
        if part.exists():
            return part.stat().st_size
        folder = self._repository.folder
        folder.mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(folder).free
        if wanted.size_bytes > free_bytes:
            raise Unavailable(
                f"the file has {wanted.size_bytes / 1e6:.1f} MB, and the cloud's disk room for "
                f"{free_bytes / 1e6:.1f} MB",
                advice="make room there",
            )
        part.touch()
        return 0

    def _add(self, wanted: Manifest, part: Path, by: Author) -> pb.AddModelResponse:
        """Check, measure and add an uploaded file. Runs in the background thread.

        Raises
        ------
        InvalidArgument, NotFound, Unavailable
            If the file is unusable, is incomplete, or cannot be added now.
        """
        try:
            if self._repository.holds(wanted):
                file = self._repository.checked_path(self._repository.get(wanted.name))
            elif not part.exists() or part.stat().st_size < wanted.size_bytes:
                raise NotFound(
                    f"the file of {wanted.name!r} has not arrived yet", advice="send all of it first"
                )
            elif checksum_of(part) != wanted.checksum:
                part.unlink()
                raise Unavailable(f"the file of {wanted.name!r} arrived damaged", advice="send it again")
            else:
                file = part
            taken = measure_and_add(self._repository, self._settings, file, wanted, move=True)
        except CorruptStore as error:
            part.unlink(missing_ok=True)
            raise InvalidArgument(error.message, advice=error.advice) from error
        except SetupError as error:
            raise Unavailable(f"at the cloud: {error.message}", advice=error.advice) from error
        if taken.done != "unchanged":
            self._note_change(by, taken.manifest, taken.done)
        return pb.AddModelResponse(manifest=taken.manifest.to_json(), done=taken.done, use=taken.use)

    def _note_change(self, by: Author, manifest: Manifest, done: str) -> None:
        self._networks.memory.refresh()
        self._store.note_network(by, manifest.name, manifest.version, done)
        self._log.info(f"network {done}", network=manifest.name, version=manifest.version, by=by.name)


class RemoteNetworks:
    """The networks of a running cloud, for clients that may change them.

    Parameters
    ----------
    channel : Channel
        Connection to the cloud.
    """

    def __init__(self, channel: Channel) -> None:
        self._stub = Stub(channel, NetworkIntake.descriptor)

    def add(self, file: Path, wanted: Manifest, progress: Callable[[int], None]) -> AddedNetwork:
        """Upload a file, and put it into service.

        Parameters
        ----------
        file : Path
        wanted : Manifest
            Manifest of this file.
        progress : callable
            Receives the number of bytes that arrived since the last call.

        Raises
        ------
        NearsightError
            If the cloud rejects it, or all retries fail. The partial file stays at the cloud.
        """
        self._send(file, wanted, progress)
        reply = self._stub.add_model(
            pb.AddModelRequest(manifest=wanted.to_json(shared=True)),
            timeout_s=_PROOF_S,
            catalogue=wanted.name,
        )
        response: pb.AddModelResponse = reply.message
        return AddedNetwork(Manifest.from_json(response.manifest), response.done, response.use)

    def remove(self, name: str) -> None:
        """Remove a network."""
        self._stub.remove_model(pb.RemoveModelRequest(), timeout_s=_CALL_S, catalogue=name)

    def _send(self, file: Path, wanted: Manifest, progress: Callable[[int], None]) -> None:
        done_bytes, pauses, reached = 0, iter(BACK_OFF_S), False
        piece: bytes | None = None  # the first call sends no chunk, and asks how much has arrived
        with file.open("rb") as opened:
            while done_bytes < wanted.size_bytes:
                try:
                    now_bytes = self._put(wanted, done_bytes, piece)
                    if piece is not None and now_bytes <= done_bytes:
                        raise Unavailable(f"a chunk of {file} does not arrive undamaged", advice="try again")
                except PeerError as error:
                    pause_s = next(pauses, None)
                    never_reached = isinstance(error, Unavailable) and not reached
                    if pause_s is None or never_reached:
                        raise
                    time.sleep(pause_s)
                    piece = None
                    continue
                reached = True
                if piece is not None:
                    pauses = iter(BACK_OFF_S)
                progress(now_bytes - done_bytes)
                done_bytes = now_bytes
                opened.seek(done_bytes)
                piece = opened.read(CHUNK_BYTES)

    def _put(self, wanted: Manifest, offset: int, piece: bytes | None) -> int:
        request = pb.PutModelChunkRequest(
            checksum=bytes.fromhex(wanted.checksum), size_bytes=wanted.size_bytes, offset=offset
        )
        if piece is not None:
            request.digest = xxhash.xxh3_64_intdigest(piece)
        blobs = () if piece is None else (piece,)
        reply = self._stub.put_model_chunk(request, timeout_s=_CALL_S, blobs=blobs, catalogue=wanted.name)
        response: pb.PutModelChunkResponse = reply.message
        return response.done_bytes


def _use_of(path: Path, manifest: Manifest, settings: ModelSettings) -> str:
    """Inputs and purpose of the network, as text for the user; `InvalidArgument` if labels do not match."""
    runtime = Runtime(settings.threads)
    try:
        network = runtime.load(path, manifest.name)
        inputs, outputs = network.inputs, network.outputs
        network.close()
    finally:
        runtime.close()
    name, labels = manifest.name, manifest.labels
    if labels:
        if len(inputs) != 1:
            raise InvalidArgument(
                f"{name} has {len(inputs)} inputs, so it cannot process photos", advice="leave out --labels"
            )
        image_layout(inputs[0])
        check_pixels_fit(inputs[0], manifest.pixels)
        classes = outputs[0].shape[-1] if outputs[0].shape else None
        if classes not in (None, len(labels)):
            raise InvalidArgument(
                f"{name} has {classes} classes, but there are {len(labels)} labels",
                advice="give one line per class",
            )
    takes = ", ".join(f"{one.name!r} {one}" for one in inputs)
    return f"{f'{len(labels)} classes of photos' if labels else 'only tensors'}; input {takes}"
