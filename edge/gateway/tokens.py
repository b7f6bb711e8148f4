"""Tokens of browsers and other HTTP clients: a file that keeps only their hashes.

A token has 192 random bits, so that a plain SHA-256 of it cannot be inverted. Its holder is a reader (see
`allow_list`) of all catalogues, or of some. Changes replace the file as a whole. A running gateway loads
the changes.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from nearsight.common.errors import ConfigurationError
from nearsight.common.files import write_atomically
from nearsight.common.folder_lock import locked
from nearsight.common.rpc.security import KEY_NAME
from nearsight.common.settings import first_error

DEFAULT_FILE = Path("gateway-tokens.json")


@dataclass(frozen=True, slots=True)
class Token:
    """Permissions of a client; its token is not stored."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # an unknown limit must not mean none

    name: str
    """Name of the client."""
    sha256: str
    """Hash of the token, in hexadecimal digits; empty for a client that needs no token."""
    catalogues: tuple[str, ...] = ()
    """Permitted catalogues; empty: all."""
    rate_per_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Photos per second; None: as in the settings."""

    def sees(self, catalogue: str) -> bool:
        """Whether the holder may use or list a catalogue."""
        return not self.catalogues or catalogue in self.catalogues


_FILE = TypeAdapter(tuple[Token, ...])


def digest_of(token: str) -> str:
    """Hash of a token, as stored in the file."""
    return hashlib.sha256(token.encode()).hexdigest()


def read_tokens(path: Path) -> tuple[Token, ...]:
    """The tokens of a file; none if the file does not exist.

    Raises
    ------
    ConfigurationError
        If the file cannot be read, or is not a token file.
    """
    try:
        return _FILE.validate_json(path.read_bytes())
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the tokens in {path}: {error.strerror}", advice="check the path and its rights"
        ) from error
    except ValidationError as error:
        raise ConfigurationError(
            f"{path} is not a token file: {first_error(error)}",
            advice="correct it, or move it away and add the tokens again",
        ) from error


def add_token(path: Path, name: str, catalogues: Sequence[str] = (), rate_per_s: float | None = None) -> str:
    """Create a token and store its hash.

    Returns
    -------
    str
        The token, which cannot be shown again.

    Raises
    ------
    ConfigurationError
        If the name is in use or invalid, or a catalogue's name or the rate is invalid.
    OSError
        If the file cannot be written.
    """
    for text, what in ((name, "a token"), *((catalogue, "a catalogue") for catalogue in catalogues)):
        if not KEY_NAME.fullmatch(text):
            raise ConfigurationError(
                f"{text!r} cannot name {what}", advice="use letters, digits, dots, dashes and underscores"
            )
    if rate_per_s is not None and not 0 < rate_per_s < math.inf:
        raise ConfigurationError(
            f"a rate of {rate_per_s:g} photos per second is not possible", advice="for example 1000"
        )
    secret = secrets.token_urlsafe(24)
    with _changing(path) as tokens:
        if any(token.name == name for token in tokens):
            raise ConfigurationError(
                f"a token called {name} exists already",
                advice=f"choose another name, or run `nearsight gateway tokens revoke {name}` first",
            )
        tokens.append(Token(name, digest_of(secret), tuple(catalogues), rate_per_s))
    return secret


def revoke_token(path: Path, name: str) -> None:
    """Remove a token; a running gateway ends its streams within seconds.

    Raises
    ------
    ConfigurationError
        If no token has this name.
    """
    with _changing(path) as tokens:
        kept = [token for token in tokens if token.name != name]
        if len(kept) == len(tokens):
            raise ConfigurationError(
                f"there is no token called {name!r} in {path}", advice="see `nearsight gateway tokens list`"
            )
        tokens[:] = kept


@contextmanager
def _changing(path: Path) -> Iterator[list[Token]]:
    """Yields the tokens of a file, to be changed, then writes them; other processes wait meanwhile."""
    with locked(path.parent):
        tokens = [*read_tokens(path)]
        yield tokens
        text = json.dumps([asdict(token) for token in tokens], indent=1)
        write_atomically(path, f"{text}\n".encode(), 0o600)


class TokenFile:
    """The valid tokens, as they are in the file.

    Parameters
    ----------
    path : Path
        The file. If it is removed, no token is valid.

    Raises
    ------
    ConfigurationError
        If the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] | None = ()  # neither a file nor its absence: the first call reads
        self.by_digest: Mapping[str, Token] = {}
        """Tokens by hash."""
        self.refresh()

    def refresh(self) -> None:
        """Load the file if it has changed.

        Raises
        ------
        ConfigurationError
            If it is damaged or cannot be read; then the tokens are unchanged, and the next call loads it.
        """
        try:
            status = self._path.stat()
            seen = (status.st_ctime_ns, status.st_ino, status.st_size)
        except OSError:
            seen = None
        if seen != self._seen:
            self.by_digest = {token.sha256: token for token in read_tokens(self._path)}
            self._seen = seen
