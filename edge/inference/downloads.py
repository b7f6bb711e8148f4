"""Downloads the files of networks from the cloud in chunks. Interrupted downloads are resumed.

One file is downloaded at a time, with one chunk in flight. Requests of devices use another connection. Chunks
are written to a partial file in the repository, whose size is the progress, also after a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import CorruptStore, NearsightError, NotFound, SetupError, as_setup_error
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.repository import ModelRepository, checksum_of
from nearsight.common.logging import get_logger
from nearsight.common.rpc.client import Reply
from nearsight.edge.cloud_client import CloudClient, when_done
from nearsight.protos.inference_pb2 import GetModelChunkRequest, GetModelChunkResponse

CHUNK_BYTES = 1 << 20
_log = get_logger("models")
_TIMEOUT_S = 20.0
_BACK_OFF_S = (1.0, 30.0)
"""Back-off after the first failure, and its maximum."""
_UNUSABLE_S = (30.0, 3600.0)
"""Time until a downloaded file that cannot be used is downloaded again, and its maximum."""


@dataclass(slots=True)
class _Download:
    """A file that is being downloaded, or is queued."""

    manifest: Manifest
    part: Path
    done_bytes: int = 0
    failures: int = 0
    problem: str = ""


@dataclass(eq=False)
class NetworkDownloads:
    """Downloads files into a repository, in the order of the requests."""

    cloud: CloudClient
    """Source of the files."""
    repository: ModelRepository
    """Destination of the files."""
    background: BackgroundWorker
    """Executes everything except the public methods."""
    clock: Clock
    """Must run in real time."""
    on_downloaded: Callable[[str], None]
    """Called with the name of each network whose download is complete."""
    on_missing: Callable[[], None]
    """Called if the cloud does not have a requested file."""
    _queue: deque[_Download] = field(default_factory=deque, init=False)
    _busy: bool = field(default=False, init=False)
    _finished: dict[str, tuple[str, int, float]] = field(default_factory=dict, init=False)
    """By name: checksum of the last download, how often it was downloaded, earliest time of the next [s]."""

    def enqueue(self, manifest: Manifest) -> None:
        """Download this file, unless it is queued or already in the repository. For any thread.

        A file that was in quarantine after its last download is downloaded again only after a while.
        """
        self.background.submit(lambda: self._enqueue(manifest))

    @property
    def progress(self) -> tuple[str, ...]:
        """Progress of each download as text, for the health report. For any thread."""
        return tuple(
            f"{one.manifest.name}: {one.done_bytes / 1e6:.1f} of {one.manifest.size_bytes / 1e6:.1f} MB"
            + (f" ({one.problem})" if one.problem else "")
            for one in tuple(self._queue)
        )

    def problem(self, name: str) -> str:
        """Error of a download; empty if it has none, or is not queued. For any thread."""
        return next((one.problem for one in tuple(self._queue) if one.manifest.name == name), "")

    def _enqueue(self, manifest: Manifest) -> None:
        if self.repository.holds(manifest):
            return
        checksum, _, next_s = self._finished.get(manifest.name, ("", 0, 0.0))
        unusable = checksum == manifest.checksum and manifest.name in self.repository.problems
        if unusable and self.clock.monotonic() < next_s:
            return
        for one in list(self._queue):
            if one.manifest.name == manifest.name:
                if one.manifest.checksum == manifest.checksum:
                    return
                self._queue.remove(one)
        self._queue.append(_Download(manifest, self.repository.path(manifest, "part")))
        _log.info("network download queued", network=manifest.name, mb=round(manifest.size_bytes / 1e6, 1))
        self._next()

    def _next(self) -> None:
        """Request the next chunk of the first file in the queue."""
        if self._busy or not self._queue:
            return
        download = self._queue[0]
        try:
            download.part.parent.mkdir(parents=True, exist_ok=True)
            with download.part.open("ab") as file:  # created if it does not exist
                download.done_bytes = file.tell()
            if download.done_bytes >= download.manifest.size_bytes:
                self._finish(download)
                return
        except (NearsightError, OSError) as error:
            self._failed(download, error)
            return
        self._busy = True
        request = GetModelChunkRequest(
            checksum=bytes.fromhex(download.manifest.checksum), offset=download.done_bytes, length=CHUNK_BYTES
        )
        reply = self.cloud.get_model_chunk(download.manifest.name, request, _TIMEOUT_S)
        when_done(reply, self.background, _chunk_of, lambda chunk: self._received(download, chunk))

    def _received(self, download: _Download, chunk: bytes | memoryview | NearsightError) -> None:
        self._busy = False
        if download not in self._queue:  # replaced by another version meanwhile
            self._next()
            return
        try:
            if isinstance(chunk, NearsightError):
                raise chunk
            with download.part.open("r+b") as file:
                file.seek(download.done_bytes)
                file.write(chunk)
        except NotFound as error:
            _log.warning("network download failed", network=download.manifest.name, error=str(error))
            self._queue.remove(download)
            download.part.unlink(missing_ok=True)
            self._next()
            self.on_missing()
        except (NearsightError, OSError) as error:
            self._failed(download, error)
        else:
            download.failures, download.problem = 0, ""
            self._next()

    def _finish(self, download: _Download) -> None:
        """Verify the checksum of a complete file, and add the network to the repository."""
        if checksum_of(download.part) != download.manifest.checksum:
            download.part.unlink()
            download.done_bytes = 0
            raise CorruptStore(
                f"the downloaded file of {download.manifest.name} is damaged; the download restarts"
            )
        manifest = download.manifest
        self.repository.add(download.part, manifest, move=True)
        self._queue.remove(download)
        checksum, times, _ = self._finished.get(manifest.name, ("", 0, 0.0))
        times = times if checksum == manifest.checksum else 0
        next_s = self.clock.monotonic() + _pause_s(_UNUSABLE_S, times)
        self._finished[manifest.name] = manifest.checksum, times + 1, next_s
        _log.info("network downloaded", network=manifest.name)
        self.on_downloaded(manifest.name)
        self._next()

    def _failed(self, download: _Download, error: NearsightError | OSError) -> None:
        """Continue with the next file, and retry this one after a back-off."""
        if isinstance(error, OSError):
            known = as_setup_error(error)
            error = known or SetupError(f"cannot write to {self.repository.folder}: {error}")
        pause_s = _pause_s(_BACK_OFF_S, download.failures)
        download.failures += 1
        if str(error) != download.problem:
            _log.warning("network download failed", network=download.manifest.name, error=str(error))
        download.problem = str(error)
        self._queue.rotate(-1)
        self.background.submit(self._next, name=f"download {download.manifest.name}", after_s=pause_s)


def _pause_s(limits_s: tuple[float, float], before: int) -> float:
    """Pause that doubles with each time before, from the first limit to the second."""
    return min(limits_s[0] * 2.0 ** min(before, 60), limits_s[1])


def _chunk_of(reply: Reply) -> memoryview:
    """Extract the chunk of a response.

    Raises
    ------
    CorruptStore
        If its digest is wrong.
    """
    response: GetModelChunkResponse = reply.message
    if len(reply.blobs) != 1 or xxhash.xxh3_64_intdigest(reply.blobs[0]) != response.digest:
        raise CorruptStore("a chunk of a network's file is damaged; it is requested again")
    return memoryview(reply.blobs[0])
