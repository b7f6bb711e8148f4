"""The gateway daemon: creates and connects all components in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.config.base import SecuritySettings
from nearsight.common.errors import ConfigurationError, NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.metrics import DaemonMetrics, parse_listen
from nearsight.common.rpc.client import Channel
from nearsight.common.rpc.endpoints import is_local
from nearsight.edge.gateway.access import Access
from nearsight.edge.gateway.api import build_app
from nearsight.edge.gateway.certificates import address_here, self_signed, warn_if_not_valid
from nearsight.edge.gateway.edge_client import EdgeClient
from nearsight.edge.gateway.metrics import GatewayMetrics
from nearsight.edge.gateway.server import GatewayServer
from nearsight.edge.gateway.services import GatewayServices
from nearsight.edge.gateway.settings import GatewaySettings, TlsSettings
from nearsight.edge.gateway.streams import Streams
from nearsight.edge.gateway.tokens import DEFAULT_FILE, TokenFile


class GatewayDaemon:
    """Serves browsers and other HTTP clients as a client of one edge.

    Parameters
    ----------
    settings : GatewaySettings
        Settings of the daemon.
    metrics : DaemonMetrics
        Registry of the metrics.
    show : callable
        Receives the addresses of the page for phones, after the start.

    Raises
    ------
    ConfigurationError
        If a setting is invalid: no tokens although other machines have access, unusable keys, certificates or
        tokens.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        metrics: DaemonMetrics,
        show: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        self._host, _ = parse_listen(settings.listen, "listen")
        self._local = is_local(f"tcp://[{self._host}]:0" if ":" in self._host else f"tcp://{self._host}:0")
        self._show = show
        _require_tokens(settings, local=self._local)
        tls = _tls_files(settings.tls, self._host)
        if tls is None and not self._local:
            get_logger("gateway").warning(
                "no encryption: tokens can be intercepted, and browsers do not permit the camera",
                advice="--self-signed, or tls.cert and tls.key, or a reverse proxy with TLS on this machine",
            )
        tokens = TokenFile(settings.tokens) if settings.tokens is not None else None
        if tokens is not None and not tokens.by_digest:
            get_logger("gateway").warning(
                "no client has access: there are no tokens in the file",
                file=str(settings.tokens),
                advice=f"`nearsight gateway tokens add NAME --tokens {settings.tokens}`",
            )
        keys = SecuritySettings(secret_key_file=settings.secret_key_file)
        security = keys.towards(
            settings.edge_public_key, setting="edge_public_key", own_setting="secret_key_file"
        )
        channel = Channel(settings.edge, client_id=settings.client_id, security=security)
        self._edge = EdgeClient(channel, settings.limits.timeout_s)
        access = Access(tokens, settings.cors_origins, settings.limits, SYSTEM_CLOCK)
        counts = GatewayMetrics(metrics.registry)
        services = GatewayServices(
            self._edge, access, settings.limits, counts, settings.client_id, SYSTEM_CLOCK
        )
        streams = Streams(services)

        def sweep() -> None:
            access.refresh()
            streams.sweep()

        app = build_app(services, streams, settings.cors_origins)
        self._server = GatewayServer(settings, app, streams, sweep, tls, counts)
        counts.watch("streams", "Open streams.", lambda: len(streams))
        counts.watch("waiting_frames", "Waiting frames.", lambda: len(streams.turns))
        counts.watch("places", "Maximum number of frames at the edge.", lambda: streams.turns.places)
        counts.watch("connections", "Open connections.", lambda: len(self._server.connections))
        counts.watch("held_bytes", "Size of the images of unanswered requests.", lambda: access.held_bytes)

    @property
    def endpoint(self) -> str:
        """Address for browsers, with the bound port."""
        return self._server.url(self._host)

    def start(self) -> None:
        """Start the server.

        Raises
        ------
        AddressInUse, ConfigurationError
            As in `GatewayServer.start`.
        """
        try:
            self._server.start()
        except NearsightError:
            self._edge.close()
            raise
        if not self._local:
            self._show([self._server.url(address_here(self._host)) + "/"])

    def stop(self, grace_s: float) -> None:
        """Finish requests in progress within ``grace_s`` seconds, then release all resources."""
        self._server.stop(grace_s)
        self._edge.close()


def _require_tokens(settings: GatewaySettings, *, local: bool) -> None:
    """Require tokens if other machines have access, as other daemons require keys."""
    if settings.tokens is None and not local:
        raise ConfigurationError(
            f"other machines can reach {settings.listen}: this needs tokens",
            advice=f"run `nearsight gateway tokens add visitors` and give --tokens {DEFAULT_FILE}, "
            "or listen on 127.0.0.1",
        )


def _tls_files(settings: TlsSettings, host: str) -> tuple[Path, Path] | None:
    """Certificate and key; None for plain HTTP."""
    if settings.self_signed:
        if settings.cert is not None:
            raise ConfigurationError("tls.self_signed and tls.cert exclude each other", advice="give one")
        return self_signed(settings.folder, host)
    if (settings.cert is None) != (settings.key is None):
        raise ConfigurationError("tls.cert and tls.key go together", advice="give both, or neither")
    if settings.cert is None or settings.key is None:
        return None
    warn_if_not_valid(settings.cert)
    return settings.cert, settings.key
