"""Repository of networks: a folder with one file and one manifest per network.

::

    models/birds.json          the manifest
    models/birds-<sum>.onnx    the network that it describes
    models/birds-<sum>.part    a file that is being uploaded or downloaded
    models/birds-<sum>.prepared, .segments
                               made from the network: its saved graph, and its segments for video
    models/quarantine/         damaged files, kept for inspection

Files are written under a temporary name and then renamed, the manifest last. After a crash either the old or
the new network is present. Other processes may add and remove networks: `refresh` reads the folder again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path

from nearsight.common.database.places import sync_folder
from nearsight.common.errors import (
    CorruptStore,
    InvalidArgument,
    NotFound,
    SetupError,
    Unavailable,
    as_setup_error,
)
from nearsight.common.files import write_atomically
from nearsight.common.inference.external_data import check_is_one_file
from nearsight.common.inference.manifest import Manifest, check_name
from nearsight.common.inference.measurement import Measurement
from nearsight.common.logging import get_logger

_QUARANTINE = "quarantine"

_FileState = tuple[int, int, int]
"""State of a file when it was last read: time of its last change, also of its rights [ns], size, inode."""


class ModelRepository:
    """Networks in a folder. Thread-safe.

    Parameters
    ----------
    folder : Path
        Created when the first network is added.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = get_logger("models")
        self._lock = threading.Lock()
        self._manifests: dict[str, Manifest] = {}
        self._read_states: dict[str, _FileState] = {}
        self._checked: dict[str, _FileState] = {}
        self.problems: dict[str, str] = {}
        """Errors of networks that cannot be used, by name."""
        self.refresh()

    def refresh(self) -> bool:
        """Read manifests that other processes wrote; returns whether anything changed."""
        changed = False
        with self._lock:  # otherwise a network that is added after the folder was read would count as removed
            try:
                paths = sorted(self.folder.iterdir())
            except FileNotFoundError:
                paths = []
            except OSError as error:  # keep known networks: an edge deletes what its cloud does not list
                if str(self.folder) not in self.problems:
                    self._note_problem(str(self.folder), f"the folder cannot be read: {error.strerror}")
                return False
            self.problems.pop(str(self.folder), None)
            # Hidden files are manifests that are being written.
            found = {one.stem: one for one in paths if one.suffix == ".json" and one.name[0] != "."}
            for name in (self._manifests.keys() | self._read_states.keys()) - found.keys():
                self._remove_entry(name)
                self.problems.pop(name, None)
                changed = True
            for name, path in found.items():
                seen = _state_of(path)
                if seen is None or self._read_states.get(name) == seen:
                    continue
                self._read_states[name] = seen
                changed = True
                try:
                    manifest = Manifest.from_json(path.read_text())
                    if manifest.name != name:
                        raise CorruptStore(f"{path} is the manifest of {manifest.name!r}")
                except OSError as error:  # keep a known network, and read its manifest again
                    self._read_states[name] = (0, 0, 0)
                    if self.problems.get(name) != str(error):
                        self._note_problem(name, str(error))
                except (CorruptStore, UnicodeDecodeError) as error:
                    self._manifests.pop(name, None)
                    self._note_problem(name, str(error))
                else:
                    self._manifests[name] = manifest
                    self.problems.pop(name, None)
        return changed

    def manifests(self) -> Mapping[str, Manifest]:
        """All manifests, by the networks' names."""
        with self._lock:
            return dict(sorted(self._manifests.items()))

    def has(self, name: str) -> bool:
        """Whether there is a network of this name."""
        return name in self._manifests

    def holds(self, manifest: Manifest) -> bool:
        """Whether the network of this name has the file of this manifest."""
        ours = self._manifests.get(manifest.name)
        return ours is not None and ours.checksum == manifest.checksum

    def get(self, name: str) -> Manifest:
        """The manifest of a network.

        Raises
        ------
        NotFound
            If there is no network of that name.
        """
        with self._lock:
            manifest = self._manifests.get(name)
        if manifest is None:
            raise NotFound(
                f"there is no network {name!r}"
                + (f": {self.problems[name]}" if name in self.problems else ""),
                advice="see `nearsight models list`",
            )
        return manifest

    def path(self, manifest: Manifest, ending: str = "onnx") -> Path:
        """Path of a network's file, of a partial file (``part``), or of its saved graph (``prepared``)."""
        return self.folder / f"{manifest.name}-{manifest.checksum[:16]}.{ending}"

    def checked_path(self, manifest: Manifest) -> Path:
        """Path of a network's file, with the checksum verified since the file was last written.

        Raises
        ------
        CorruptStore
            If the file is missing, its checksum is wrong, or its weights are in another file. The network is
            then moved to quarantine.
        Unavailable
            If another process has just replaced or removed the network.
        """
        path, name = self.path(manifest), manifest.name
        seen = _state_of(path)
        if seen is not None and self._checked.get(name) == seen:
            return path
        try:
            if seen is None:
                why = f"the file of network {name!r} is missing: {path}"
                raise CorruptStore(why, advice="add the model again")
            found = checksum_of(path)
            if found != manifest.checksum:
                why = f"{path} is damaged: checksum {found[:12]}…, not {manifest.checksum[:12]}…"
                raise CorruptStore(why, advice="add the model again")
            check_is_one_file(path, name)
        except CorruptStore as error:
            self.refresh()
            if not self.quarantine(manifest, error.message):
                raise _gone(name) from error
            raise
        self._checked[name] = seen
        return path

    def quarantine(self, manifest: Manifest, why: str) -> bool:
        """Remove a damaged network from use, and move its files to the quarantine folder.

        Returns False if the network was removed, or replaced by another file.
        """
        name = manifest.name
        with self._lock:
            if not self.holds(manifest):
                return False
            self._remove_entry(name)
            self._note_problem(name, why)
        with suppress(OSError):
            self.folder.joinpath(_QUARANTINE).mkdir(exist_ok=True)
            for path in (self.folder / f"{name}.json", self.path(manifest)):
                if path.exists():
                    path.replace(self.folder / _QUARANTINE / path.name)
        return True

    def add(
        self, source: Path, wanted: Manifest, *, move: bool = False, prepared: Path | None = None
    ) -> Manifest:
        """Add a network's file and manifest. The version increases if file or manifest changed.

        Parameters
        ----------
        source : Path
        wanted : Manifest
            Describes this file.
        move : bool
            The file is already in this folder, under another name; it is renamed instead of copied.
        prepared : Path, optional
            Folder with the saved graph, which is moved if it exists; see `saved_graphs`.

        Returns
        -------
        The manifest with the new version.

        Raises
        ------
        InvalidArgument
            If the file is not the one that ``wanted`` describes, because another program writes to it.
        SetupError
            If writing fails, for example on a full disk. In both cases the repository is unchanged.
        """
        check_name(wanted.name)
        former = self.manifests().get(wanted.name)
        manifest = wanted
        if former is not None:
            same = replace(former, version=wanted.version, measured=wanted.measured) == wanted
            manifest = replace(wanted, version=max(wanted.version, former.version + (not same)))
        path = self.path(wanted)
        temporary = source if move else path.with_suffix(f".{os.getpid()}.new")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not move:
                shutil.copyfile(source, temporary)
                if checksum_of(temporary) != wanted.checksum:
                    temporary.unlink()
                    raise InvalidArgument(
                        f"{source} changed while network {wanted.name!r} was added",
                        advice="wait until the file is complete, and add it again",
                    )
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
            if prepared is not None and prepared.exists():
                shutil.rmtree(path.with_suffix(".prepared"), ignore_errors=True)
                shutil.move(prepared, path.with_suffix(".prepared"))
            with self._lock:
                self._write(manifest)
            self._drop_files(manifest.name, path)
        except OSError as error:
            if not move:
                temporary.unlink(missing_ok=True)
            raise _storage_error(
                error, f"network {wanted.name!r} cannot be stored in {self.folder}"
            ) from error
        return manifest

    def relabel(self, wanted: Manifest) -> None:
        """Replace the manifest of the same file, unless it is gone; keep the measurement of this machine.

        Raises
        ------
        SetupError
            If the manifest cannot be written.
        """
        try:
            with self._lock:
                former = self._manifests.get(wanted.name)
                if former is not None:
                    self._write(replace(wanted, measured=former.measured))
        except OSError as error:
            raise _storage_error(error, f"network {wanted.name!r} cannot be changed") from error

    def note_measured(self, manifest: Manifest, measured: Measurement) -> Manifest:
        """Store the costs of a network. If writing fails, they are kept in this process only.

        Returns
        -------
        The manifest with these costs. Its other values may have changed since the measurement began.

        Raises
        ------
        Unavailable
            If the network was removed, or replaced by another file, since the measurement began.
        """
        name = manifest.name
        with self._lock:
            try:  # another process may have changed it
                current = Manifest.from_json((self.folder / f"{name}.json").read_text())
            except (OSError, UnicodeDecodeError, CorruptStore) as error:
                raise _gone(name) from error
            if current.checksum != manifest.checksum:
                raise _gone(name)
            current = self._manifests[name] = replace(current, measured=measured)
            try:
                self._write(current)
            except OSError as error:
                self._log.warning("a measurement cannot be stored", network=name, error=str(error))
        return current

    def remove(self, name: str) -> None:
        """Remove a network, and unfinished files of its name.

        Raises
        ------
        InvalidArgument
            If no network may have this name.
        NotFound
            If there is no network and no unfinished file of that name.
        SetupError
            If its files cannot be removed.
        """
        check_name(name)
        unfinished = [*self._files_of(name, "part"), *self._files_of(name, "*new")]
        if not unfinished and not (self.folder / f"{name}.json").exists():
            self.get(name)
        try:
            (self.folder / f"{name}.json").unlink(missing_ok=True)
            self._drop_files(name)
        except OSError as error:
            raise _storage_error(error, f"network {name!r} cannot be removed") from error
        with self._lock:
            self._remove_entry(name)
            self.problems.pop(name, None)

    def remove_parts(self, *, before_s: float = inf, kept: Collection[Manifest] = ()) -> None:
        """Remove partial files last written before a time [s since the epoch], except those of ``kept``."""
        for path in {*self.folder.glob("*.part")} - {self.path(one, "part") for one in kept}:
            with suppress(OSError):  # another process may have removed it
                if path.stat().st_mtime < before_s:
                    path.unlink()
                    self._log.info("an abandoned partial file was removed", file=path.name)

    def _drop_files(self, name: str, kept: Path | None = None) -> None:
        """Delete files of former versions, segments for video included, and what killed processes left."""
        for ending in ("onnx", "part", "prepared", "segments", "*new"):
            for path in self._files_of(name, ending):
                if path.is_dir() and (kept is None or path.stem != kept.stem):
                    shutil.rmtree(path, ignore_errors=True)
                elif path.is_file() and path != kept:
                    path.unlink(missing_ok=True)

    def _files_of(self, name: str, ending: str) -> Iterator[Path]:
        """Files of all versions of a network. The 16 digits exclude networks with a similar name."""
        return self.folder.glob(f"{name}-{'[0-9a-f]' * 16}.{ending}")

    def _remove_entry(self, name: str) -> None:
        for known in (self._manifests, self._read_states, self._checked):
            known.pop(name, None)

    def _note_problem(self, name: str, why: str) -> None:
        self.problems[name] = why
        self._log.error("a network cannot be used", network=name, error=why)

    def _write(self, manifest: Manifest) -> None:
        """Write a manifest; the lock is held."""
        path = self.folder / f"{manifest.name}.json"
        write_atomically(path, manifest.to_json().encode())
        sync_folder(self.folder)
        self._manifests[manifest.name] = manifest
        seen = _state_of(path)
        if seen is not None:
            self._read_states[manifest.name] = seen
        self.problems.pop(manifest.name, None)


def checksum_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def manifest_of_file(source: Path, name: str) -> Manifest:
    """Create a manifest for a new file.

    Raises
    ------
    NotFound, InvalidArgument
        If the file does not exist, is empty, or the name is not allowed.
    SetupError
        If the file cannot be read.
    """
    check_name(name)
    if not source.is_file():
        raise NotFound(f"there is no file {str(source)!r}", advice="check the path")
    size_bytes = source.stat().st_size
    if not size_bytes:
        raise InvalidArgument(f"{source} is empty", advice="give an ONNX file")
    try:
        return Manifest(name, 1, size_bytes, checksum_of(source))
    except OSError as error:
        raise _storage_error(error, f"{source} cannot be read") from error


def _state_of(path: Path) -> _FileState | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ctime_ns, status.st_size, status.st_ino


def _gone(name: str) -> Unavailable:
    return Unavailable(f"network {name!r} has just been replaced or removed", advice="try again")


def _storage_error(error: OSError, what: str) -> SetupError:
    known = as_setup_error(error)
    return SetupError(
        f"{what}: {error.strerror or error}", advice=known.advice if known else "check the folder"
    )
