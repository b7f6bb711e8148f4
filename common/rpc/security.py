"""Key files: the identity of a daemon and the clients that it allows.

CURVE encrypts every connection and proves both identities. The client has the server's public key beforehand,
and the server has a folder with the public keys of the clients that it accepts. Key files have the format of
``zmq.auth``: ``NAME.key`` holds the public key, ``NAME.key_secret`` both. The server's folder also defines
the rights of each client; see `allow_list`.
"""

from __future__ import annotations

import re
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import zmq
from zmq.utils import z85

from nearsight.common.errors import ConfigurationError, InvalidArgument
from nearsight.common.files import write_atomically
from nearsight.common.rpc.endpoints import is_local

KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

KEYS_ADVICE = "make one with `nearsight keys generate NAME --dir keys`"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE identity; both keys in Z85."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r}, secret=...)"


class KeyFiles(NamedTuple):
    """The files that `generate_keys` wrote, and the public key in Z85."""

    public_file: Path
    secret_file: Path
    public_key: str


@dataclass(frozen=True, slots=True)
class ServerSecurity:
    """Files that a server needs for CURVE."""

    secret_key_file: Path
    """The server's own ``NAME.key_secret``."""
    allowed_clients: Path
    """Folder of ``*.key`` files, one per client. It is read again when it changes."""


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """Keys that a client needs for CURVE.

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
    """The keys given by the options of a command; None if both are missing.

    Raises
    ------
    InvalidArgument
        If one of the two is missing.
    """
    if key is None and server_key is None:
        return None
    if key is None or server_key is None:
        raise keys_incomplete()
    return ClientSecurity(key, server_key)


def keys_incomplete() -> InvalidArgument:
    """The error if a command has only one of the options --key and --server-key."""
    return InvalidArgument(
        "--key and --server-key go together",
        advice="give both, or neither for daemons without encryption",
    )


def require_security(endpoint: str, security: ServerSecurity | None) -> None:
    """Refuse an address that other machines can reach if there are no keys.

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
        If it holds no readable identity, or other users of the machine can read it.
    """
    path = Path(source)
    fields = read_key_file(path)
    if "secret-key" not in fields:
        raise ConfigurationError(
            f"{path} holds no secret key", advice="give the NAME.key_secret file, not NAME.key"
        )
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigurationError(
            f"other users can read the secret key {path}", advice=f"run `chmod 600 {path}`"
        )
    return KeyPair(fields["public-key"], fields["secret-key"])


def read_public_key(source: str | Path) -> str:
    """A public key, given as Z85 text or as a file.

    Raises
    ------
    ConfigurationError
        If it is neither.
    """
    return str(source) if is_key(source) else read_key_file(Path(source))["public-key"]


def is_key(source: str | Path) -> bool:
    """Whether the value is a key itself and not the path of a file."""
    # A path may consist of 40 characters of Z85 as well, but then it ends in ``.key``.
    return isinstance(source, str) and not source.endswith(".key") and _is_z85_key(source)


def _is_z85_key(text: str) -> bool:
    """Whether it is the Z85 text of 32 bytes; not every 5 characters of the alphabet are 4 bytes."""
    try:
        return len(z85.decode(text)) == 32
    except (KeyError, ValueError, struct.error):
        return False


def read_key_file(path: Path) -> Mapping[str, str]:
    """All pairs ``name = "value"`` of a key file; ``public-key`` is among them.

    Raises
    ------
    ConfigurationError
        If it is not a key file, or a key in it is damaged.
    """
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except FileNotFoundError as error:
        raise ConfigurationError(f"there is no key file {path}", advice=KEYS_ADVICE) from error
    except OSError as error:
        raise ConfigurationError(f"{path} is not a key file: {error.strerror}", advice=KEYS_ADVICE) from error
    pairs = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith("#"))
    fields = {name.strip(): value.strip("\"' \t") for name, equals, value in pairs if equals}
    if "public-key" not in fields:
        raise ConfigurationError(f"{path} is not a key file", advice=KEYS_ADVICE)
    if not all(_is_z85_key(fields[name]) for name in ("public-key", "secret-key") if name in fields):
        raise ConfigurationError(f"{path} holds a damaged key", advice=KEYS_ADVICE)
    return fields


def generate_keys(folder: Path, name: str, *, overwrite: bool = False) -> KeyFiles:
    """Create an identity: ``NAME.key`` to hand out and ``NAME.key_secret``, readable by its owner only.

    Raises
    ------
    ConfigurationError
        If the name is not a plain file name, or the files exist.
    OSError
        If they cannot be written.
    """
    if not KEY_NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} is not a valid key name", advice="use letters, digits, dots, dashes and underscores"
        )
    public_file, secret_file = folder / f"{name}.key", folder / f"{name}.key_secret"
    for path in (public_file, secret_file):
        if path.exists() and not overwrite:
            raise ConfigurationError(
                f"{path} exists", advice="choose another name, or use --force to replace the key"
            )
    public, secret = (key.decode() for key in zmq.curve_keypair())
    keys = {"public-key": public, "secret-key": secret}
    write_key_file(secret_file, "secret key of nearsight: keep it on this machine", keys, mode=0o600)
    write_key_file(public_file, "public key of nearsight", {"public-key": public})
    return KeyFiles(public_file, secret_file, public)


def write_key_file(
    path: Path,
    title: str,
    keys: Mapping[str, str],
    metadata: Mapping[str, str] | None = None,
    mode: int = 0o644,
) -> None:
    """Write a key file, in the format of ``zmq.auth``; raises `OSError` if it cannot be written."""
    lines = [f"# {title}"]
    for section, fields in (("metadata", metadata or {}), ("curve", keys)):
        lines += [section, *(f'    {name} = "{value}"' for name, value in fields.items())]
    write_atomically(path, "\n".join([*lines, ""]).encode("ascii"), mode)
