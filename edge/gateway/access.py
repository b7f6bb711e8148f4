"""Access control of the gateway: clients, catalogues, origins of pages, and request rates."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from starlette.requests import HTTPConnection

from nearsight.common.clock import Clock
from nearsight.common.errors import (
    ConfigurationError,
    Overloaded,
    PermissionDenied,
    Unauthenticated,
)
from nearsight.common.logging import get_logger
from nearsight.edge.gateway.errors import TooFast
from nearsight.edge.gateway.settings import LimitSettings
from nearsight.edge.gateway.tokens import DEFAULT_FILE, Token, TokenFile, digest_of

SUBPROTOCOL_OF_TOKEN = "token."
"""Prefix of the subprotocol with the token: a browser cannot set headers of a WebSocket."""
_MAX_RATES = 10_000
_PORT = re.compile(r":\d*$")


class Access:
    """Checks clients against the settings and the token file. For the event loop.

    Parameters
    ----------
    tokens : TokenFile or None
        Valid tokens; None if no client needs a token.
    origins : sequence of str
        Origins of other sites whose pages may send requests; "*": all.
    limits : LimitSettings
        Limits of rate and memory.
    clock : Clock
        Source of time for the rates.
    """

    def __init__(
        self, tokens: TokenFile | None, origins: Sequence[str], limits: LimitSettings, clock: Clock
    ) -> None:
        self._tokens = tokens
        self._origins = frozenset(origins)
        self._limits = limits
        self._load_error = ""
        self._clock = clock
        self._rates: dict[str, tuple[float, float]] = {}
        self.held_bytes = 0
        """Size of the images of all requests in memory."""
        self._log = get_logger("gateway.access")

    def identify(self, connection: HTTPConnection) -> Token:
        """Identify the client of a request, after checking its origin and token.

        Without a file of tokens each client has all permissions. Its name is its IP address, or "local".

        Raises
        ------
        PermissionDenied
            If the request comes from a page of another site, or could come from one.
        Unauthenticated
            If the request has no valid token.
        """
        self.check_origin(connection)
        if self._tokens is None:
            _check_host(connection.headers.get("host", ""))
            return Token(connection.client.host[:64] if connection.client else "local", sha256="")
        given = _token_of(connection)
        if not given:
            raise Unauthenticated(
                "a token is needed",
                advice="send the header Authorization: Bearer TOKEN, or open the whole link",
            )
        token = self._tokens.by_digest.get(digest_of(given))
        if token is None:
            raise Unauthenticated(
                "this token is invalid or was revoked",
                advice="ask the operator of this gateway for a new one: nearsight gateway tokens add NAME",
            )
        return token

    def check(self, visitor: Token, catalogue: str) -> None:
        """Check that a client may use a catalogue.

        Raises
        ------
        PermissionDenied
            If it may not.
        """
        if not visitor.sees(catalogue):
            raise PermissionDenied(
                f"the token {visitor.name!r} may not use the catalogue {catalogue!r}",
                advice="ask the operator of this gateway for a token of this catalogue",
            )

    def still_allows(self, visitor: Token) -> bool:
        """Whether a client's token is still the same as when it connected."""
        return self._tokens is None or self._tokens.by_digest.get(visitor.sha256) == visitor

    def refresh(self) -> None:
        """Load changes of the token file."""
        if self._tokens is None:
            return
        reason = ""
        try:
            self._tokens.refresh()
        except ConfigurationError as error:
            reason = str(error)
            if reason != self._load_error:
                self._log.error("the token file cannot be loaded; the tokens are unchanged", reason=reason)
        self._load_error = reason

    def charge(self, visitor: Token) -> None:
        """Count one photo of a client.

        Raises
        ------
        TooFast
            If the client exceeds its rate. A token bucket permits the photos of one second at once.
        """
        rate_per_s = visitor.rate_per_s or self._limits.rate_per_s
        size = max(1.0, rate_per_s)
        now_s = self._clock.monotonic()
        left, then_s = self._rates.pop(visitor.name, (size, now_s))
        left = min(size, left + (now_s - then_s) * rate_per_s)
        if len(self._rates) >= _MAX_RATES:
            del self._rates[next(iter(self._rates))]
        self._rates[visitor.name] = (left if left < 1 else left - 1, now_s)
        if left < 1:
            raise TooFast(visitor.name, rate_per_s, (1 - left) / rate_per_s)

    def hold(self, size_bytes: int) -> None:
        """Count an image in memory, until `release`.

        Raises
        ------
        Overloaded
            If all images together exceed the limit.
        """
        if self.held_bytes + size_bytes > self._limits.memory_bytes:
            raise Overloaded("the images in the gateway's memory reach its limit", advice="try again later")
        self.held_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Stop counting an image."""
        self.held_bytes -= size_bytes

    @contextmanager
    def holding(self) -> Iterator[Callable[[int], None]]:
        """Count bytes that arrive in chunks, and release all at the end; yields the function that counts."""
        held = 0

        def hold(size_bytes: int) -> None:
            nonlocal held
            self.hold(size_bytes)
            held += size_bytes

        try:
            yield hold
        finally:
            self.release(held)

    def check_origin(self, connection: HTTPConnection) -> None:
        """Check the origin of a request. It restricts only browsers; other programs may send any origin.

        Raises
        ------
        PermissionDenied
            If the request is from a page of another site that is not listed.
        """
        headers = connection.headers
        origin = headers.get("origin", "")
        if not origin or self._origins & {origin, "*"} or origin.partition("://")[2] == headers.get("host"):
            return
        raise PermissionDenied(
            f"pages of {origin} may not use this gateway",
            advice="add this origin to cors_origins of the gateway, if they should",
        )


def _check_host(host: str) -> None:
    """Check the host name of a request without tokens: only addresses and local names are allowed.

    The page of another site can resolve its own name to this machine, and then has the same origin.

    Raises
    ------
    PermissionDenied
        If another party could control the name in DNS.
    """
    name = _PORT.sub("", host.lower())
    with suppress(ValueError):
        ipaddress.ip_address(name.strip("[]"))
        return
    if "." in name and not name.endswith(".localhost"):
        raise PermissionDenied(
            f"without tokens this gateway cannot be used as {name[:100]}",
            advice="create tokens with `nearsight gateway tokens add NAME` and start it with "
            f"--tokens {DEFAULT_FILE}, or use the name localhost",
        )


def _token_of(connection: HTTPConnection) -> str:
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    offered: Sequence[str] = connection.scope.get("subprotocols", ())
    for name in offered:
        if name.startswith(SUBPROTOCOL_OF_TOKEN):
            return name.removeprefix(SUBPROTOCOL_OF_TOKEN)
    return ""
