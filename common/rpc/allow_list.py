"""Allowed clients of a daemon, and the rights of each.

A daemon's folder of allowed clients holds one ``NAME.key`` file per client. The metadata of the file state
the role of the client, the catalogues that it may use, and which of these a writer may change. A file without
a role, as written by versions without roles, gives the rights of a reader of all catalogues.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import ConfigurationError, InvalidArgument, PermissionDenied
from nearsight.common.logging import get_logger
from nearsight.common.rpc.security import (
    KEY_NAME,
    KEYS_ADVICE,
    is_key,
    read_key_file,
    read_public_key,
    write_key_file,
)

REFRESH_S = 0.5
"""Interval between checks of the folder, with or without traffic."""

STALE_S = 1.0
"""Maximum age of the folder's content when a call is executed."""

_RECENT_NS = 2 * 10**9
"""Files changed more recently than this are read again: their next change may get the same timestamp."""


class Access(IntEnum):
    """How a method uses the catalogue of its call; numbers as in ``rpc.proto``."""

    NO_CATALOGUE = 0
    READS_CATALOGUE = 1
    CHANGES_CATALOGUE = 2


class Role(StrEnum):
    """Rights of a client on the catalogues that it may use."""

    READER = "reader"
    WRITER = "writer"


@dataclass(frozen=True, slots=True)
class Caller:
    """A client and its rights."""

    name: str
    """Name of its key file, without the suffix."""
    key: str
    """Its public key in Z85."""
    role: Role = Role.READER
    """Whether it may change catalogues."""
    catalogues: tuple[str, ...] = ()
    """Catalogues that it may use; empty: all."""
    writes: tuple[str, ...] = ()
    """Catalogues, of these, that a writer may change; empty: all."""

    def sees(self, catalogue: str) -> bool:
        """Whether it may see a catalogue."""
        return not self.catalogues or catalogue in self.catalogues

    def has_rights_of(self, other: Caller) -> bool:
        """Whether it has at least the rights of the other caller."""
        changes = self.role is Role.WRITER and _within(other.writes or other.catalogues, self.writes)
        return (changes or other.role is Role.READER) and _within(other.catalogues, self.catalogues)

    def catalogue_of(self, access: Access, wanted: str) -> str:
        """The catalogue of its call; if none is named, the only one that it may use.

        Raises
        ------
        PermissionDenied
            If it has no right to this access.
        InvalidArgument
            If it may use several catalogues and names none.
        """
        if access is Access.NO_CATALOGUE:
            return wanted
        own = (self.writes if access is Access.CHANGES_CATALOGUE else ()) or self.catalogues
        if not wanted and len(own) > 1:
            raise InvalidArgument("no catalogue was named", advice=f"choose one of: {', '.join(own)}")
        name = wanted or next(iter(own), "")
        if not self.sees(name):
            raise PermissionDenied(
                f"the key {self.name!r} may not use the catalogue {name!r}",
                advice=replace(self, catalogues=(*self.catalogues, name)).command(),
            )
        if access is Access.CHANGES_CATALOGUE and self.role is not Role.WRITER:
            what = f"the catalogue {name!r}" if name else "a catalogue"
            raise PermissionDenied(
                f"the key {self.name!r} has the role reader: it may not change {what}",
                advice=replace(self, role=Role.WRITER).command(),
            )
        if access is Access.CHANGES_CATALOGUE and self.writes and name not in self.writes:
            raise PermissionDenied(
                f"the key {self.name!r} may not change the catalogue {name!r}",
                advice=replace(self, writes=(*self.writes, name)).command(),
            )
        return name

    def command(self) -> str:
        """The command that gives exactly these rights to the key, for an error's advice."""
        limits = [f" --catalogue {name}" for name in self.catalogues]
        limits += [f" --writes {name}" for name in self.writes]
        return (
            "in the server's folder of allowed clients run: "
            f"nearsight keys allow {self.name}.key --dir . --role {self.role}{''.join(limits)}"
        )


def _within(names: Sequence[str], limits: Sequence[str]) -> bool:
    """Whether all these catalogues are within the limits; an empty sequence means all catalogues."""
    return not limits or (bool(names) and set(names) <= set(limits))


LOCAL = Caller("local", "", Role.WRITER)
"""The caller without keys: a program on this machine."""


class ClientEntry(NamedTuple):
    """One file of a folder of keys. A damaged file has the error in place of the key, and no role."""

    name: str
    public_key: str
    secret_here: bool
    role: str
    catalogues: tuple[str, ...]
    writes: tuple[str, ...]


def allow_client(
    public_key: str | Path,
    folder: Path,
    *,
    name: str = "",
    role: Role | None = None,
    catalogues: Sequence[str] = (),
    writes: Sequence[str] = (),
    overwrite: bool = False,
) -> Caller:
    """Put a client's public key into a server's folder of allowed clients, or change its rights there.

    Parameters
    ----------
    public_key : str or Path
        The client's ``NAME.key`` file, or the key itself in Z85.
    folder : Path
        The server's folder; created if it is missing.
    name : str
        Name of the client there; by default that of the file.
    role : Role, optional
        Its role. Default: its current role; a new client is a reader.
    catalogues : sequence of str
        Catalogues that it may use; empty: all. If no right is given, its current rights stay.
    writes : sequence of str
        Catalogues, of these, that it may change, which makes it a writer. Empty: its current ones; with a
        role, a writer may change all.
    overwrite : bool
        Replace another key of the same name.

    Raises
    ------
    ConfigurationError
        If there is no public key, no name for it, another client has the name, the key is allowed under
        another name, a name is not valid for a catalogue, ``writes`` is given for a reader, or it would name
        catalogues that the client may not use.
    """
    key = read_public_key(public_key)
    name = name or ("" if is_key(public_key) else Path(public_key).stem)
    if not KEY_NAME.fullmatch(name):
        raise ConfigurationError("the client needs a name", advice="give it with --name")
    # Catalogue names and key names have the same valid characters.
    if bad := [one for one in (*catalogues, *writes) if not KEY_NAME.fullmatch(one)]:
        raise ConfigurationError(
            f"{bad[0]!r} is not a valid catalogue name", advice="see `nearsight cloud catalogues`"
        )
    if writes and role is Role.READER:
        raise ConfigurationError("a reader cannot change catalogues", advice="omit --role or --writes")
    entries = list_key_files(folder) if folder.is_dir() else ()
    if other := next((one.name for one in entries if one.public_key == key and one.name != name), None):
        raise ConfigurationError(
            f"this key is allowed already, under the name {other}",
            advice=f"change its rights with --name {other}, or first run `nearsight keys forbid {other}`",
        )
    target = folder / f"{name}.key"
    before = None
    if target.exists() and not overwrite:
        before = read_caller(target)
        if before.key != key:
            raise ConfigurationError(
                f"another client called {name} is allowed already",
                advice="give this client another --name, or use --force",
            )
        if role is None and not catalogues and not writes:
            return before
        if role is None and not writes:
            writes = before.writes
    if writes and not _within(writes, catalogues):
        raise ConfigurationError(
            f"{name} would change {', '.join(writes)}, and may use {', '.join(catalogues)} only",
            advice="give each --writes also as --catalogue, or --role to replace the former --writes",
        )
    given = Role.WRITER if writes else role or (before.role if before else Role.READER)
    metadata = {"role": str(given)}
    for field, names in (("catalogues", catalogues), ("writes", writes)):
        if names:
            metadata[field] = " ".join(dict.fromkeys(names))
    write_key_file(target, "public key of nearsight", {"public-key": key}, metadata)
    return read_caller(target)


def forbid_client(name: str, folder: Path) -> list[str]:
    """Remove a client's public key from a server's folder of allowed clients.

    Returns
    -------
    list of str
        Other names under which the same key is still allowed.

    Raises
    ------
    ConfigurationError
        If the folder has no client of that name.
    """
    path = folder / f"{name}.key"
    if not KEY_NAME.fullmatch(name) or not path.is_file():
        raise ConfigurationError(
            f"no client called {name!r} is allowed in {folder}", advice="see `nearsight keys list --dir ...`"
        )
    key = next(entry.public_key for entry in list_key_files(folder) if entry.name == name)
    path.unlink()
    # A damaged file, which allows nobody, has no role; its error is in the place of the key.
    return [entry.name for entry in list_key_files(folder) if entry.role and entry.public_key == key]


def list_key_files(folder: Path) -> list[ClientEntry]:
    """The public keys in a folder, sorted by name.

    Raises
    ------
    ConfigurationError
        If there is no such folder.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"there is no folder {folder}", advice=KEYS_ADVICE)
    entries = []
    for path in sorted(filter(_holds_key, folder.iterdir())):
        secret_here = path.with_suffix(".key_secret").exists()
        try:
            client = read_caller(path)
        except ConfigurationError as error:
            entries.append(ClientEntry(path.stem, f"({error.message})", secret_here, "", (), ()))
        else:
            allowed = (client.role, client.catalogues, client.writes)
            entries.append(ClientEntry(path.stem, client.key, secret_here, *allowed))
    return entries


def _holds_key(file: Path | os.DirEntry[str]) -> bool:
    """Whether it is the file of a client by its name; files that are being written begin with a dot."""
    return file.name.endswith(".key") and not file.name.startswith(".")


def read_caller(path: Path) -> Caller:
    """Read one file of a folder of allowed clients.

    Raises
    ------
    ConfigurationError
        If it holds no key, or an unknown role.
    """
    fields = read_key_file(path)
    role = role_named(fields.get("role", Role.READER))
    catalogues, writes = (tuple(fields.get(name, "").split()) for name in ("catalogues", "writes"))
    return Caller(path.stem, fields["public-key"], role, catalogues, writes)


def role_named(name: str) -> Role:
    """The role of that name.

    Raises
    ------
    ConfigurationError
        If there is no such role.
    """
    if name not in list(Role):
        raise ConfigurationError(f"there is no role {name!r}", advice=f"use one of: {', '.join(Role)}")
    return Role(name)


class _KeyFile(NamedTuple):
    signature: tuple[int, ...]
    """Metadata that change with the content; empty if the file must be read again."""
    caller: Caller | None


class AllowList:
    """Allowed clients by public key (Z85). Safe to use from several threads.

    A new file allows a client and a deleted file forbids it, without a restart. A file that cannot be read is
    logged and skipped: one damaged file must not exclude the other clients.

    Parameters
    ----------
    folder : Path
        Holds ``*.key`` files.
    clock : Clock
        For `stale_at_s` and the age of files.

    Raises
    ------
    ConfigurationError
        If there is no such folder.
    """

    def __init__(self, folder: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        if not folder.is_dir():
            raise ConfigurationError(
                f"the folder of allowed clients {folder} does not exist",
                advice=f"let a client in with `nearsight keys allow CLIENT.key --dir {folder}`",
            )
        self._folder = folder
        self._clock = clock
        self._log = get_logger("rpc.allow_list")
        self._lock = threading.Lock()
        self._files: dict[str, _KeyFile] = {}
        self._folder_changed_ns = 0
        self.clients: Mapping[str, Caller] = MappingProxyType({})
        """State at the last `refresh`; replaced by another mapping if anything changed. A client whose file
        did not change stays the same object."""
        self.stale_at_s = 0.0
        """Time by which `refresh` must be called again, on the clock's monotonic time."""
        self.refresh()

    def refresh(self) -> None:
        """Read the changed files of the folder."""
        with self._lock:
            self.stale_at_s = self._clock.monotonic() + STALE_S
            try:
                found = self._look()
            except OSError as error:  # such as too many open files: the current clients stay allowed
                self._log.warning("the folder of allowed clients cannot be read", reason=str(error))
                return
            self._files = {name: self._read(name, signature) for name, signature in found.items()}
            clients: dict[str, Caller] = {}
            for name in sorted(self._files):
                if (caller := self._files[name].caller) is not None:
                    clients.setdefault(caller.key, caller)
            if clients != self.clients:
                self.clients = MappingProxyType(clients)
                self._log.info("allowed clients read", folder=str(self._folder), clients=len(clients))

    def still_allows(self, caller: Caller) -> bool:
        """Whether a client still has all rights that it had when its call arrived."""
        now = self.clients.get(caller.key)
        return now is caller or (now is not None and now.has_rights_of(caller))

    def refresh_if_changed(self) -> None:
        """Do a `refresh` only if a file was added, deleted or replaced; cheap, for unknown keys."""
        with suppress(OSError):
            if self._folder_changed_ns == self._folder.stat().st_ctime_ns:
                return
        self.refresh()

    def _look(self) -> dict[str, tuple[int, ...]]:
        """Key files with the metadata that change with their content; programs cannot set the ctime."""
        found: dict[str, tuple[int, ...]] = {}
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            changed_ns = self._folder.stat().st_ctime_ns  # read before the files are listed
            self._folder_changed_ns = changed_ns if self._settled(changed_ns) else 0
            for entry in entries:
                if _holds_key(entry):
                    try:
                        status = entry.stat()
                        found[entry.name] = (status.st_ctime_ns, status.st_ino, status.st_size)
                    except FileNotFoundError:  # deleted after it was listed
                        continue
                    except OSError:  # such as a link into a private folder; `_read` reports it
                        found[entry.name] = (0, 0, 0)
        return found

    def _read(self, name: str, signature: tuple[int, ...]) -> _KeyFile:
        before = self._files.get(name)
        if before is not None and before.signature == signature:
            return before
        caller: Caller | None = None
        try:
            caller = read_caller(self._folder / name)
        except ConfigurationError as error:
            if before is None or before.caller is not None:
                self._log.warning("skipped a key file", file=name, reason=error.message)
        if before is not None and before.caller == caller:
            caller = before.caller
        return _KeyFile(signature if self._settled(signature[0]) else (), caller)

    def _settled(self, changed_ns: int) -> bool:
        return changed_ns < int(self._clock.wall() * 1e9) - _RECENT_NS
