"""Brings the files of networks from the cloud, piece by piece; a file that was begun is gone on with.

One file at a time, one piece in flight: requests of devices have a connection of their own. The pieces are
written to a file beside the others, whose length says how far it is, also after a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import xxhash

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.errors import CorruptStore, NearsightError, NotFound, SetupError, refusal_of_machine
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.repository import ModelRepository, checksum_of
from nearsight.common.logging import get_logger
from nearsight.common.rpc.call import message_of
from nearsight.common.rpc.client import Reply
from nearsight.edge.cloud_client import CloudClient, when_done
from nearsight.protos.inference_pb2 import GetModelChunkRequest, GetModelChunkResponse

CHUNK_BYTES = 1 << 20
_TIMEOUT_S = 20.0
_PAUSES_S = (1.0, 30.0)
"""The first and the longest pause after a failure."""


@dataclass(slots=True)
class _Fetch:
    """A file on its way."""

    manifest: Manifest
    part: Path
    done_bytes: int = 0
    failures: int = 0
    problem: str = ""


class ModelFetching:
    """Fetches files into a repository, in the order in which they were wanted.

    Parameters
    ----------
    cloud : CloudClient
        Where from.
    repository : ModelRepository
        Where to.
    background : BackgroundWorker
        Runs everything here but `want` and `progress`.
    came : callable
        Told the name of each network that is here now.
    gone : callable
        Told that the cloud does not have what was wanted.
    """

    def __init__(
        self,
        cloud: CloudClient,
        repository: ModelRepository,
        background: BackgroundWorker,
        *,
        came: Callable[[str], None],
        gone: Callable[[], None],
    ) -> None:
        self._cloud = cloud
        self._repository = repository
        self._background = background
        self._came = came
        self._gone = gone
        self._log = get_logger("models")
        self._queue: deque[_Fetch] = deque()
        self._busy = False

    def want(self, manifest: Manifest) -> None:
        """Fetch this file, unless it is wanted already, or here."""
        self._background.submit(lambda: self._enter(manifest))

    @property
    def progress(self) -> tuple[str, ...]:
        """How far each file is, for a person."""
        return tuple(
            f"{one.manifest.name}: {one.done_bytes / 1e6:.1f} of {one.manifest.size_bytes / 1e6:.1f} MB"
            + (f" ({one.problem})" if one.problem else "")
            for one in tuple(self._queue)
        )

    def problem(self, name: str) -> str:
        """Why a file does not come; empty if it does, or is not wanted."""
        return next((one.problem for one in tuple(self._queue) if one.manifest.name == name), "")

    def _enter(self, manifest: Manifest) -> None:
        if self._repository.holds(manifest):
            return
        for one in list(self._queue):
            if one.manifest.name == manifest.name:
                if one.manifest.checksum == manifest.checksum:
                    return
                self._queue.remove(one)
        self._queue.append(_Fetch(manifest, self._repository.path(manifest, "part")))
        self._log.info("network wanted", network=manifest.name, mb=round(manifest.size_bytes / 1e6, 1))
        self._next()

    def _next(self) -> None:
        """Ask for the next piece of the first file."""
        if self._busy or not self._queue:
            return
        fetch = self._queue[0]
        try:
            fetch.done_bytes = self._begun(fetch)
            if fetch.done_bytes >= fetch.manifest.size_bytes:
                self._finish(fetch)
                return
        except (NearsightError, OSError) as error:
            self._failed(fetch, error)
            return
        self._busy = True
        request = GetModelChunkRequest(
            checksum=bytes.fromhex(fetch.manifest.checksum), offset=fetch.done_bytes, length=CHUNK_BYTES
        )
        reply = self._cloud.get_model_chunk(fetch.manifest.name, request, _TIMEOUT_S)
        when_done(reply, self._background, _piece_of, lambda piece: self._arrived(fetch, piece))

    def _arrived(self, fetch: _Fetch, piece: bytes | memoryview | NearsightError) -> None:
        self._busy = False
        if fetch not in self._queue:  # another version is wanted now
            self._next()
            return
        try:
            if isinstance(piece, NearsightError):
                raise piece
            with fetch.part.open("r+b") as file:
                file.seek(fetch.done_bytes)
                file.write(piece)
        except NotFound as error:
            self._log.warning("network not fetched", network=fetch.manifest.name, error=str(error))
            self._drop(fetch)
            self._gone()
        except (NearsightError, OSError) as error:
            self._failed(fetch, error)
        else:
            fetch.failures, fetch.problem = 0, ""
            self._next()

    def _begun(self, fetch: _Fetch) -> int:
        """How much of a file is here; an empty one is begun."""
        fetch.part.parent.mkdir(parents=True, exist_ok=True)
        with fetch.part.open("ab"):
            pass
        return fetch.part.stat().st_size

    def _finish(self, fetch: _Fetch) -> None:
        """All is here: compare the checksum, and take it into use."""
        if checksum_of(fetch.part) != fetch.manifest.checksum:
            fetch.part.unlink()
            fetch.done_bytes = 0
            raise CorruptStore(f"the file of network {fetch.manifest.name} came damaged: fetched again")
        self._repository.add(fetch.part, fetch.manifest, move=True)
        self._queue.remove(fetch)
        self._log.info("network fetched", network=fetch.manifest.name)
        self._came(fetch.manifest.name)
        self._next()

    def _failed(self, fetch: _Fetch, error: NearsightError | OSError) -> None:
        """Try the next file, and this one after a while."""
        if isinstance(error, OSError):
            known = refusal_of_machine(error)
            error = known or SetupError(f"cannot write to {self._repository.folder}: {error}")
        pause_s = min(_PAUSES_S[0] * 2**fetch.failures, _PAUSES_S[1])
        fetch.failures += 1
        if str(error) != fetch.problem:
            self._log.warning("network not fetched", network=fetch.manifest.name, error=str(error))
        fetch.problem = str(error)
        self._queue.rotate(-1)
        self._background.submit(self._next, name=f"fetch {fetch.manifest.name}", after_s=pause_s)

    def _drop(self, fetch: _Fetch) -> None:
        self._queue.remove(fetch)
        fetch.part.unlink(missing_ok=True)
        self._next()


def _piece_of(reply: Reply) -> memoryview:
    """The piece in an answer.

    Raises
    ------
    CorruptStore
        If it is not what was sent.
    """
    response = message_of(reply, GetModelChunkResponse)
    if len(reply.blobs) != 1 or xxhash.xxh3_64_intdigest(reply.blobs[0]) != response.digest:
        raise CorruptStore("a piece of a network came damaged: asked for again")
    return memoryview(reply.blobs[0])
