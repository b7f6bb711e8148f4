"""The gateway daemon: all parts, wired together in one place."""

from __future__ import annotations

from collections.abc import Sequence

from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.config.base import SecuritySettings
from nearsight.common.errors import NearsightError
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.rpc.client import Channel
from nearsight.common.rpc.security import ClientSecurity
from nearsight.edge.gateway.access import Access
from nearsight.edge.gateway.api import build_app
from nearsight.edge.gateway.edge_client import EdgeClient
from nearsight.edge.gateway.metrics import GatewayMetrics
from nearsight.edge.gateway.server import GatewayServer
from nearsight.edge.gateway.services import GatewayServices
from nearsight.edge.gateway.settings import GatewaySettings
from nearsight.edge.gateway.streams import Streams
from nearsight.edge.gateway.tokens import TokenFile


class GatewayDaemon:
    """Serves browsers and other HTTP clients as a client of one edge.

    Parameters
    ----------
    settings : GatewaySettings
        What to do.
    metrics : DaemonMetrics
        Where to count it.

    Raises
    ------
    ConfigurationError
        If a setting cannot work.
    """

    def __init__(self, settings: GatewaySettings, metrics: DaemonMetrics) -> None:
        tokens = TokenFile(settings.tokens) if settings.tokens is not None else None
        self._edge = EdgeClient(
            Channel(settings.edge, client_id=settings.client_id, security=_security(settings)),
            settings.limits.timeout_s,
        )
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
        self._server = GatewayServer(settings, app, streams, sweep)
        counts.watch("streams", "Streams that are open.", lambda: len(streams))
        counts.watch("connections", "Connections that are open.", lambda: self._server.connections)
        counts.watch("held_bytes", "Images of requests that are not answered.", lambda: access.held_bytes)

    @property
    def endpoint(self) -> str:
        """Where browsers are served, with the port that was bound."""
        return self._server.url

    def start(self) -> None:
        """Serve.

        Raises
        ------
        AddressInUse, ConfigurationError
            See `GatewayServer.start`.
        """
        try:
            self._server.start()
        except NearsightError:
            self._edge.close()
            raise

    def stop(self, grace_s: float) -> None:
        """Finish what is in progress within ``grace_s`` seconds, then release everything."""
        self._server.stop(grace_s)
        self._edge.close()

    def ready(self) -> bool:
        """Whether it serves; `/readyz` asks the edge."""
        return True

    def details(self) -> Sequence[tuple[str, str]]:
        """Facts for a person."""
        return ()


def _security(settings: GatewaySettings) -> ClientSecurity | None:
    keys = SecuritySettings(secret_key_file=settings.secret_key_file)
    return keys.towards(settings.edge_public_key, setting="edge_public_key")
