"""The HTTP server: uvicorn in its own thread and event loop, with limits that uvicorn lacks."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from nearsight.common.errors import ConfigurationError
from nearsight.common.logging import get_logger
from nearsight.common.metrics import parse_listen
from nearsight.common.rpc.sockets import cannot_listen
from nearsight.edge.gateway.connections import Connections, HttpConnection, StreamConnection, TlsConnection
from nearsight.edge.gateway.metrics import GatewayMetrics
from nearsight.edge.gateway.settings import GatewaySettings
from nearsight.edge.gateway.streams import Streams

_SWEEP_S = 0.5
_BACKLOG = 1024
_KEEP_ALIVE_S = 30
_LIBRARIES = ("asyncio", "uvicorn", "python_multipart")
"""Libraries whose warnings go to the daemon's log."""
_EVERY_S, _REMEMBERED_WARNINGS = 10.0, 256
"""Interval in which the same warning is logged once, and number of different ones that are known."""
_TICK_S, _ENDING_S = 0.1, 0.5
"""Interval in which uvicorn checks for a stop and for ended connections, and time for both."""


class _DaemonLogHandler(logging.Handler):
    """Handler that writes warnings of libraries to the daemon's log, so that clients cannot fill it."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[str, tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, unless the same was logged recently; the next line counts the omitted ones."""
        text = record.getMessage().strip().lower()
        warning = f"{text} {record.exc_info[1]!r}" if record.exc_info else text
        now_s = time.monotonic()
        next_s, omitted = self._logged.pop(warning, (now_s, 0))
        again = now_s < next_s
        self._logged[warning] = (next_s, omitted + 1) if again else (now_s + _EVERY_S, 0)
        if len(self._logged) > _REMEMBERED_WARNINGS:
            del self._logged[next(iter(self._logged))]
        if not again:
            before = {"times_before": omitted} if omitted else {}
            get_logger("gateway.http").log(record.levelno, text, exc_info=record.exc_info, **before)


class _Listening(socket.socket):
    """A listening socket that limits the connections."""

    def __init__(self, descriptor: int, connections: Connections) -> None:
        super().__init__(fileno=descriptor)
        self._connections = connections

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection, as described in `Connections.accept`."""
        return self._connections.accept(super().accept)


class GatewayServer:
    """Runs an ASGI application with uvicorn.

    Parameters
    ----------
    settings : GatewaySettings
        Settings with address and limits.
    app : callable
        The application.
    streams : Streams
        Streams, which are ended first when the server stops.
    sweep : callable
        Called every half second, on the loop.
    tls : tuple of Path, optional
        Certificate and private key, PEM.
    metrics : GatewayMetrics
        Counts the ended connections.

    Attributes
    ----------
    connections : Connections
        Open connections.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        app: Any,
        streams: Streams,
        sweep: Callable[[], None],
        tls: tuple[Path, Path] | None,
        metrics: GatewayMetrics,
    ) -> None:
        self._settings = settings
        self._streams = streams
        self._sweep = sweep
        self._scheme = "https" if tls else "http"
        limits = settings.limits
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                app,
                http=HttpConnection,
                ws=StreamConnection,
                ws_max_size=limits.max_frame_bytes,
                ws_ping_interval=limits.ping_s,
                ws_ping_timeout=limits.ping_s,
                ws_per_message_deflate=False,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                ssl_certfile=tls[0] if tls else None,
                ssl_keyfile=tls[1] if tls else None,
                proxy_headers=bool(settings.trusted_proxies),
                forwarded_allow_ips=list(settings.trusted_proxies),
            )
        )
        self.connections = Connections(self._uvicorn.server_state, limits, metrics)
        self._listening: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Future[float]

    def url(self, host: str) -> str:
        """Address of the server for a host of this machine, with the bound port. Valid once started."""
        port = self._listening.getsockname()[1] if self._listening is not None else 0
        return f"{self._scheme}://[{host}]:{port}" if ":" in host else f"{self._scheme}://{host}:{port}"

    def start(self) -> None:
        """Bind the address and serve.

        Raises
        ------
        AddressInUse, ConfigurationError
            If the address is in use or does not belong to this machine, or the certificate is unusable.
        """
        try:
            self._uvicorn.config.load()
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"the certificate cannot be used: {error.strerror or error}",
                advice="check tls.cert and tls.key: PEM, the key of this certificate, without a password",
            ) from error
        if self._uvicorn.config.ssl is not None:
            self._uvicorn.config.ssl.sslobject_class = TlsConnection
        for library in _LIBRARIES:
            logger = logging.getLogger(library)
            logger.handlers, logger.propagate, logger.level = [_DaemonLogHandler()], False, logging.WARNING
        self._listening = _Listening(_listen(self._settings.listen).detach(), self.connections)
        started = threading.Event()
        serve = self._serve(self._listening, started)
        self._thread = threading.Thread(target=asyncio.run, args=(serve,), name="gateway", daemon=True)
        self._thread.start()
        started.wait()

    def stop(self, grace_s: float) -> None:
        """Finish requests and streams within ``grace_s`` seconds; may be called twice."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None:
            return
        self._loop.call_soon_threadsafe(self._stop.set_result, grace_s)
        thread.join()

    async def _serve(self, listening: socket.socket, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = self._loop.create_future()
        started.set()
        serving = asyncio.create_task(self._uvicorn.serve([listening]))
        sweeping = asyncio.create_task(self._sweep_always())
        grace_s = await self._stop
        sweeping.cancel()
        until_s = time.monotonic() + grace_s
        await self._streams.stop(grace_s)
        # uvicorn closes idle connections at once, and the others after their response. Its own timeout is not
        # used: it has a resolution of seconds, responds with 500, and logs an error even if no request is
        # left.
        self._uvicorn.should_exit = True
        await asyncio.wait([serving], timeout=max(_ENDING_S, until_s - time.monotonic()))
        while not serving.done():
            self.connections.end_idle()
            await asyncio.wait([serving], timeout=_TICK_S)
            for request in self._uvicorn.server_state.tasks:
                request.cancel()
        await serving

    async def _sweep_always(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                self._sweep()
                self.connections.sweep(asyncio.get_running_loop().time())
            except Exception:  # noqa: BLE001  revoked tokens and slow clients must be noticed all the same
                get_logger("gateway").exception("the check of connections failed")


def _listen(address: str) -> socket.socket:
    host, port = parse_listen(address, "listen")
    try:
        listening = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=_BACKLOG
        )
        # Accepted connections inherit this option. asyncio sets it for sockets that it creates, but not for
        # connections of this one. Without it, the body of a response would follow its headers after 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, UnicodeError) as error:  # UnicodeError: no name can be spelled like this
        raised = error if isinstance(error, OSError) else OSError(str(error))
        raise cannot_listen(address, raised, "127.0.0.1:8080") from error
    return listening
