"""Keys: who a daemon is and which clients it lets in.

CURVE encrypts every connection and proves both identities: the client knows the server's public key
beforehand, and the server has a folder with the public keys of the clients that it accepts. Key files have
the format of ``zmq.auth``: ``NAME.key`` holds the public key, ``NAME.key_secret`` both.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import zmq
import zmq.auth

from nearsight.common.errors import ConfigurationError
from nearsight.common.logging import get_logger
from nearsight.common.rpc.sockets import is_local

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_Z85_KEY = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")

KEYS_ADVICE = "make one with `nearsight keys generate NAME --dir keys`"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE identity; both keys in Z85."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r}, secret=...)"


class KeyFiles(NamedTuple):
    """Where `generate_keys` wrote an identity."""

    public_file: Path
    secret_file: Path
    public_key: str


class KeyEntry(NamedTuple):
    """One name in a folder of keys."""

    name: str
    public_key: str
    secret_here: bool


@dataclass(frozen=True, slots=True)
class ServerSecurity:
    """What a server needs for CURVE.

    Parameters
    ----------
    secret_key_file : Path
        The server's own ``NAME.key_secret``.
    allowed_clients : Path
        Folder of ``*.key`` files, one per client. It is read again when it changes.
    """

    secret_key_file: Path
    allowed_clients: Path


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """What a client needs for CURVE.

    Parameters
    ----------
    secret_key_file : str or Path
        The client's own ``NAME.key_secret``.
    server_public_key : str or Path
        The server's public key in Z85, or its ``NAME.key`` file.
    """

    secret_key_file: str | Path
    server_public_key: str | Path


def client_security(key: Path | None, server_key: str | None) -> ClientSecurity | None:
    """The keys that the options of a command name; None without them.

    Raises
    ------
    ConfigurationError
        If one of the two is missing.
    """
    if key is None and server_key is None:
        return None
    if key is None or server_key is None:
        raise ConfigurationError(
            "--key and --server-key go together",
            advice="give both, or neither for daemons without encryption",
        )
    return ClientSecurity(key, server_key)


def require_security(endpoint: str, security: ServerSecurity | None) -> None:
    """Refuse to listen beyond this machine without keys.

    Raises
    ------
    ConfigurationError
        If other machines can reach ``endpoint`` and ``security`` is None.
    """
    if security is None and not is_local(endpoint):
        raise ConfigurationError(
            f"{endpoint} can be reached by other machines, which needs keys and a list of allowed clients",
            advice="run `nearsight keys generate NAME --dir keys` and set the secret key file and the folder "
            "of allowed clients, or listen on 127.0.0.1",
        )


def read_secret_key(source: str | Path) -> KeyPair:
    """The identity in a ``.key_secret`` file.

    Raises
    ------
    ConfigurationError
        If there is no readable identity in it, or other users of the machine can read it.
    """
    path = Path(source)
    public, secret = _load(path)
    if secret is None:
        raise ConfigurationError(
            f"{path} holds no secret key", advice="give the NAME.key_secret file, not NAME.key"
        )
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigurationError(
            f"other users can read the secret key {path}", advice=f"run `chmod 600 {path}`"
        )
    return KeyPair(public, secret)


def read_public_key(source: str | Path) -> str:
    """A public key, given itself in Z85 or as a file.

    Raises
    ------
    ConfigurationError
        If it is neither.
    """
    return str(source) if _is_key(source) else _load(Path(source))[0]


def generate_keys(folder: Path, name: str, *, overwrite: bool = False) -> KeyFiles:
    """Create an identity: ``NAME.key`` to hand out and ``NAME.key_secret``, readable by its owner alone.

    Raises
    ------
    ConfigurationError
        If the name is no plain file name, the files exist, or they cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} is no name for a key", advice="use letters, digits, dots, dashes and underscores"
        )
    public_file, secret_file = folder / f"{name}.key", folder / f"{name}.key_secret"
    for path in (public_file, secret_file):
        if path.exists() and not overwrite:
            raise ConfigurationError(
                f"{path} exists", advice="choose another name, or --force to replace the identity for good"
            )
    public, secret = (key.decode() for key in zmq.curve_keypair())
    _write(secret_file, _certificate(public, secret), mode=0o600)
    _write(public_file, _certificate(public), mode=0o644)
    return KeyFiles(public_file, secret_file, public)


def allow_client(public_key: str | Path, folder: Path, *, name: str = "", overwrite: bool = False) -> Path:
    """Put a client's public key into a server's folder of allowed clients.

    Parameters
    ----------
    public_key : str or Path
        The client's ``NAME.key`` file, or the key itself in Z85.
    folder : Path
        The server's folder; created if it is missing.
    name : str
        Name of the client there; by default that of the file.
    overwrite : bool
        Replace another key of the same name.

    Raises
    ------
    ConfigurationError
        If there is no public key, no name for it, or another client has the name.
    """
    key = read_public_key(public_key)
    name = name or ("" if _is_key(public_key) else Path(public_key).stem)
    if not _NAME.fullmatch(name):
        raise ConfigurationError("the client needs a name", advice="give it with --name")
    target = folder / f"{name}.key"
    if target.exists() and not overwrite and _load(target)[0] != key:
        raise ConfigurationError(
            f"another client called {name} is allowed already",
            advice="give this one another --name, or --force",
        )
    _write(target, _certificate(key), mode=0o644)
    return target


def _is_key(source: str | Path) -> bool:
    # A path may well have 40 characters, all of them of Z85; but it ends as our files do.
    return isinstance(source, str) and not source.endswith(".key") and _Z85_KEY.fullmatch(source) is not None


def list_key_files(folder: Path) -> list[KeyEntry]:
    """The public keys in a folder, by name; a damaged file is listed with its fault in place of the key.

    Raises
    ------
    ConfigurationError
        If there is no such folder.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"there is no folder {folder}", advice=KEYS_ADVICE)
    entries = []
    for path in sorted(folder.glob("*.key")):
        try:
            key = read_public_key(path)
        except ConfigurationError as error:
            key = f"({error.message})"
        entries.append(KeyEntry(path.stem, key, path.with_suffix(".key_secret").exists()))
    return entries


def forbid_client(name: str, folder: Path) -> None:
    """Take a client's public key out of a server's folder of allowed clients.

    Raises
    ------
    ConfigurationError
        If it is not in there.
    """
    path = folder / f"{name}.key"
    if not _NAME.fullmatch(name) or not path.is_file():
        raise ConfigurationError(
            f"no client called {name!r} is allowed in {folder}", advice="see `nearsight keys list --dir ...`"
        )
    path.unlink()


def _load(path: Path) -> tuple[str, str | None]:
    if not path.exists():
        raise ConfigurationError(f"there is no key file {path}", advice=KEYS_ADVICE)
    try:
        public, secret = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} is not a key file", advice=KEYS_ADVICE) from error
    keys = [key.decode("ascii", "replace") for key in (public, secret) if key is not None]
    if not all(_Z85_KEY.fullmatch(key) for key in keys):
        raise ConfigurationError(f"{path} holds a damaged key", advice=KEYS_ADVICE)
    return keys[0], keys[1] if len(keys) > 1 else None


def _certificate(public: str, secret: str | None = None) -> str:
    kind = "secret key of nearsight: keep it on this machine" if secret else "public key of nearsight"
    lines = [f"# {kind}", "metadata", "curve", f'    public-key = "{public}"']
    if secret:
        lines.append(f'    secret-key = "{secret}"')
    return "\n".join([*lines, ""])


def _write(path: Path, text: str, *, mode: int) -> None:
    # Created aside with its final mode: never readable by others, never half a file under its name.
    aside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.unlink(missing_ok=True)
        aside.touch(mode=mode, exist_ok=False)
        aside.write_text(text, encoding="ascii")
        aside.chmod(mode)  # touch() obeys the umask
        aside.replace(path)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error


class AllowList:
    """Names of clients by public key (Z85).

    Adding a file lets a client in, and removing it locks the client out, without a restart. A file that
    cannot be read is reported and skipped: one bad file must not lock the others out.

    Parameters
    ----------
    folder : Path
        Holds ``*.key`` files.

    Raises
    ------
    ConfigurationError
        If there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ConfigurationError(
                f"the folder of allowed clients {folder} does not exist",
                advice=f"let a client in with `nearsight keys allow CLIENT.key --dir {folder}`",
            )
        self._folder = folder
        self._log = get_logger("rpc.allow_list")
        self._signature: frozenset[tuple[str, int, int]] = frozenset()
        self.names: Mapping[str, str] = {}
        """Names by public key, as of the last `refresh`."""
        self.refresh()

    def name_of(self, public_key: str) -> str | None:
        """The name of the client with this key, None if it is not allowed. As of the last `refresh`."""
        return self.names.get(public_key)

    def refresh(self) -> None:
        """Read the folder again if a file in it changed."""
        signature = self._look()
        if signature == self._signature:
            return
        names: dict[str, str] = {}
        for file_name, _, _ in sorted(signature):
            try:
                names[read_public_key(self._folder / file_name)] = file_name.removesuffix(".key")
            except ConfigurationError as error:
                self._log.warning("skipped a key file", file=file_name, reason=error.message)
        self.names, self._signature = names, signature
        self._log.info("allowed clients read", folder=str(self._folder), clients=len(names))

    def _look(self) -> frozenset[tuple[str, int, int]]:
        found = set()
        for path in self._folder.glob("*.key"):
            with suppress(OSError):  # removed since it was listed
                status = path.stat()
                found.add((path.name, status.st_mtime_ns, status.st_size))
        return frozenset(found)
