"""Who may connect to a daemon, and what each client may do there.

A daemon's folder of allowed clients holds a ``NAME.key`` for each. The file's metadata say the role of the
client, the catalogues that it may use, and which of these a writer may change. A file without a role, as all
were before there were roles, is that of a reader of all catalogues.
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
"""How often the folder is looked at, with or without traffic."""

STALE_S = 1.0
"""No call is executed on what the folder held longer ago than this."""

_YOUNG_NS = 2 * 10**9
"""What changed so recently is read again: the next change may get the same time of the file system."""


class Access(IntEnum):
    """What a method does with the catalogue of its call; numbers as in ``rpc.proto``."""

    NO_CATALOGUE = 0
    READS_CATALOGUE = 1
    CHANGES_CATALOGUE = 2


class Role(StrEnum):
    """What a client may do with the catalogues that it may use."""

    READER = "reader"
    WRITER = "writer"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and what it may do."""

    name: str
    """Of its key file."""
    key: str
    """Its public key in Z85."""
    role: Role = Role.READER
    """Whether it may change catalogues."""
    catalogues: tuple[str, ...] = ()
    """Which ones it may use; empty: all."""
    writes: tuple[str, ...] = ()
    """Which of these a writer may change; empty: all."""

    def sees(self, catalogue: str) -> bool:
        """Whether it may know of a catalogue."""
        return not self.catalogues or catalogue in self.catalogues

    def may_all_of(self, other: Caller) -> bool:
        """Whether it may do whatever the other may."""
        changes = self.role is Role.WRITER and _within(other.writes or other.catalogues, self.writes)
        return (changes or other.role is Role.READER) and _within(other.catalogues, self.catalogues)

    def catalogue_of(self, access: Access, wanted: str) -> str:
        """The catalogue that its call is about; the only one that it may use if none is named.

        Raises
        ------
        PermissionDenied
            If it may not do that.
        InvalidArgument
            If it names none of several.
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
                f"the key {self.name!r} is a reader's: it may not change {what}",
                advice=replace(self, role=Role.WRITER).command(),
            )
        if access is Access.CHANGES_CATALOGUE and self.writes and name not in self.writes:
            raise PermissionDenied(
                f"the key {self.name!r} may not change the catalogue {name!r}",
                advice=replace(self, writes=(*self.writes, name)).command(),
            )
        return name

    def command(self) -> str:
        """What allows just this; it says all that the key may do from then on."""
        limits = [f" --catalogue {name}" for name in self.catalogues]
        limits += [f" --writes {name}" for name in self.writes]
        return (
            f"on the server's machine run: nearsight keys allow {self.name}.key --role {self.role}"
            f"{''.join(limits)}"
        )


def _within(names: Sequence[str], limits: Sequence[str]) -> bool:
    """Whether these catalogues are among those; none stands for all."""
    return not limits or (bool(names) and set(names) <= set(limits))


LOCAL = Caller("local", "", Role.WRITER)
"""Whoever calls without keys: only programs of this machine can."""


class ClientEntry(NamedTuple):
    """One file of a folder of keys; a damaged one has its fault in place of the key, and no role."""

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
    """Put a client's public key into a server's folder of allowed clients, or give it another role there.

    Parameters
    ----------
    public_key : str or Path
        The client's ``NAME.key`` file, or the key itself in Z85.
    folder : Path
        The server's folder; created if it is missing.
    name : str
        Name of the client there; by default that of the file.
    role : Role, optional
        What it may do. Default: what it may now; a new client reads.
    catalogues : sequence of str
        Which ones it may use; empty: all, or as it is now if nothing else is given either.
    writes : sequence of str
        Which of these it may change, which makes it a writer; empty: a writer may change all.
    overwrite : bool
        Replace another key of the same name.

    Raises
    ------
    ConfigurationError
        If there is no public key, no name for it, another client has the name, no catalogue can have one of
        the names, or a reader is to write.
    """
    key = read_public_key(public_key)
    name = name or ("" if is_key(public_key) else Path(public_key).stem)
    if not KEY_NAME.fullmatch(name):
        raise ConfigurationError("the client needs a name", advice="give it with --name")
    # Names of catalogues are made of the same characters as those of keys.
    if bad := [one for one in (*catalogues, *writes) if not KEY_NAME.fullmatch(one)]:
        raise ConfigurationError(
            f"{bad[0]!r} cannot name a catalogue", advice="see `nearsight cloud catalogues`"
        )
    if writes and role is Role.READER:
        raise ConfigurationError("a reader changes no catalogue", advice="leave --role out, or --writes")
    target = folder / f"{name}.key"
    before = None
    if target.exists() and not overwrite:
        before = read_caller(target)
        if before.key != key:
            raise ConfigurationError(
                f"another client called {name} is allowed already",
                advice="give this one another --name, or --force",
            )
        if role is None and not catalogues and not writes:
            return before
    given = Role.WRITER if writes else role or (before.role if before else Role.READER)
    metadata = {"role": str(given)}
    for field, names in (("catalogues", catalogues), ("writes", writes)):
        if names:
            metadata[field] = " ".join(dict.fromkeys(names))
    write_key_file(target, "public key of nearsight", {"public-key": key}, metadata)
    return read_caller(target)


def forbid_client(name: str, folder: Path) -> list[str]:
    """Take a client's public key out of a server's folder of allowed clients.

    Returns
    -------
    list of str
        Other names under which the same key is still allowed.

    Raises
    ------
    ConfigurationError
        If it is not in there.
    """
    path = folder / f"{name}.key"
    if not KEY_NAME.fullmatch(name) or not path.is_file():
        raise ConfigurationError(
            f"no client called {name!r} is allowed in {folder}", advice="see `nearsight keys list --dir ...`"
        )
    key = next(entry.public_key for entry in list_key_files(folder) if entry.name == name)
    path.unlink()
    return [entry.name for entry in list_key_files(folder) if entry.public_key == key]


def list_key_files(folder: Path) -> list[ClientEntry]:
    """The public keys in a folder, by name.

    Raises
    ------
    ConfigurationError
        If there is no such folder.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"there is no folder {folder}", advice=KEYS_ADVICE)
    entries = []
    for path in sorted(folder.glob("*.key")):
        secret_here = path.with_suffix(".key_secret").exists()
        try:
            client = read_caller(path)
        except ConfigurationError as error:
            entries.append(ClientEntry(path.stem, f"({error.message})", secret_here, "", (), ()))
        else:
            allowed = (client.role, client.catalogues, client.writes)
            entries.append(ClientEntry(path.stem, client.key, secret_here, *allowed))
    return entries


def read_caller(path: Path) -> Caller:
    """The client of a file in a folder of allowed clients.

    Raises
    ------
    ConfigurationError
        If it holds no key, or a role that does not exist.
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
        If there is none.
    """
    if name not in list(Role):
        raise ConfigurationError(f"there is no role {name!r}", advice=f"use one of: {', '.join(Role)}")
    return Role(name)


class _KeyFile(NamedTuple):
    signature: tuple[int, ...]
    """Empty: to be read again in any case."""
    caller: Caller | None


class AllowList:
    """Clients by public key (Z85). Safe to use from several threads.

    Adding a file lets a client in, and removing it locks the client out, without a restart. A file that
    cannot be read is reported and skipped: one bad file must not lock the others out.

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
        """As of the last `refresh`; replaced by another mapping if anything changed. A client whose file is
        unchanged stays the same object."""
        self.stale_at_s = 0.0
        """When `refresh` must have been called again, on the clock's monotonic time."""
        self.refresh()

    def refresh(self) -> None:
        """Read again what changed in the folder."""
        with self._lock:
            self.stale_at_s = self._clock.monotonic() + STALE_S
            before = self._files
            try:
                found = self._look()
            except OSError as error:  # such as too many open files: no reason to lock everybody out
                self._log.warning("the folder of allowed clients cannot be read", reason=str(error))
                return
            self._files = {name: self._read(name, signature) for name, signature in found.items()}
            clients: dict[str, Caller] = {}
            for name in sorted(self._files):
                if (caller := self._files[name].caller) is not None:
                    clients.setdefault(caller.key, caller)
            if clients != self.clients or not before:
                self.clients = MappingProxyType(clients)
                self._log.info("allowed clients read", folder=str(self._folder), clients=len(clients))

    def still_allows(self, caller: Caller) -> bool:
        """Whether a client may do all that it was allowed to do when its call arrived."""
        now = self.clients.get(caller.key)
        return now is caller or (now is not None and now.may_all_of(caller))

    def notice_new(self) -> None:
        """As `refresh`, for next to nothing unless a file came, went or was replaced: for unknown keys."""
        with suppress(OSError):
            if self._folder_changed_ns == self._folder.stat().st_ctime_ns:
                return
        self.refresh()

    def _look(self) -> dict[str, tuple[int, ...]]:
        """The files and what changes with their content: a time of change that no program can set."""
        found: dict[str, tuple[int, ...]] = {}
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            changed_ns = self._folder.stat().st_ctime_ns  # before the files are listed
            self._folder_changed_ns = changed_ns if self._settled(changed_ns) else 0
            for entry in entries:
                if entry.name.endswith(".key"):
                    with suppress(FileNotFoundError):  # removed since it was listed
                        status = entry.stat()
                        found[entry.name] = (
                            status.st_ctime_ns,
                            status.st_ino,
                            status.st_size,
                            status.st_mtime_ns,
                        )
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
        return changed_ns < int(self._clock.wall() * 1e9) - _YOUNG_NS
