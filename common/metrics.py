"""Prometheus metrics of one daemon, in a registry of their own, so that several daemons fit in one process.

The metrics of calls are here, because every daemon serves calls. A tier adds its own::

    hits = prometheus_client.Counter("nearsight_cache_hits", "...", registry=metrics.registry)
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from socketserver import ThreadingMixIn
from threading import Lock, Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    make_wsgi_app,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nearsight import __version__
from nearsight.common.errors import AddressInUse, ConfigurationError, StatusCode

_Kind = type[CounterMetricFamily] | type[GaugeMetricFamily]
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class DaemonMetrics:
    """Metrics of one daemon, also of its `RpcServer`.

    Parameters
    ----------
    daemon : str
        ``cloud``, ``edge`` or ``device``.
    """

    def __init__(self, daemon: str) -> None:
        self.registry = CollectorRegistry()
        self._http: _HttpServer | None = None
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        Info("nearsight", "Name and version of the daemon.", registry=self.registry).info(
            {"daemon": daemon, "version": __version__}
        )
        method = ("service", "method")
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, labelnames=method, registry=self.registry, buckets=_SECONDS)
        self._calls = counter("nearsight_calls", "Calls answered.", (*method, "code"))
        self._queue = histogram(
            "nearsight_call_queue_seconds", "Time from arrival to the start of work or to the refusal."
        )
        self._compute = histogram(
            "nearsight_call_compute_seconds", "Time of work on a call, without the wait for the next tier."
        )
        self._received = counter("nearsight_received_bytes", "Bytes of requests.", method)
        self._sent = counter("nearsight_sent_bytes", "Bytes of responses.", method)
        self._series: dict[tuple[str, str, StatusCode], tuple[Any, ...]] = {}
        self._connections = gauge("nearsight_rpc_connections", "Clients that are connected.")
        self._held = gauge(
            "nearsight_rpc_held_bytes", "Memory of unfinished and waiting requests and of unread answers."
        )
        dropped = "Connections that this side closed."
        self._dropped = counter("nearsight_rpc_dropped_connections", dropped, ("reason",))
        self._crashes = counter("nearsight_thread_crashes", "Threads that ended with an exception.")

    def on_call(
        self,
        service: str,
        method: str,
        code: StatusCode,
        queue_ms: float,
        compute_ms: float | None,
        received_bytes: int,
        sent_bytes: int,
    ) -> None:
        """Count one answered call.

        Service and method are empty if it was rejected before the queue. ``compute_ms`` is None if no work
        on it was begun; as a time of 0, refusals would hide slow work.
        """
        series = self._series.get((service, method, code))
        if series is None:  # looked up once: finding the labels costs more than counting
            by_method = (self._queue, self._compute, self._received, self._sent)
            series = (
                self._calls.labels(service, method, code.name),
                *(metric.labels(service, method) for metric in by_method),
            )
            self._series[service, method, code] = series
        calls, queue, compute, received, sent = series
        calls.inc()
        queue.observe(queue_ms / 1000)
        if compute_ms is not None:
            compute.observe(compute_ms / 1000)
        received.inc(received_bytes)
        sent.inc(sent_bytes)

    def read_connections(self, count: Callable[[], int], held_bytes: Callable[[], int]) -> None:
        """Read the number of clients, and the memory that they occupy, at each scrape."""
        self._connections.set_function(count)
        self._held.set_function(held_bytes)

    def on_dropped(self, reason: str) -> None:
        """Count a connection that this side closed."""
        self._dropped.labels(reason).inc()

    def on_thread_crash(self) -> None:
        """Count a thread that ended with an unhandled exception."""
        self._crashes.inc()

    def start_http(self, listen: str) -> str:
        """Serve the metrics over HTTP from a thread.

        Parameters
        ----------
        listen : str
            ``host:port`` or ``[host]:port``. Port 0 chooses a free one. Empty: nothing is served.

        Returns
        -------
        str
            The bound address, such as ``127.0.0.1:41873``; empty if nothing is served.

        Raises
        ------
        AddressInUse
            If the port is taken or the host does not belong to this machine.
        ConfigurationError
            If ``listen`` has another form.
        """
        if not listen:
            return ""
        host, port = parse_listen(listen)
        try:
            self._http = make_server(host, port, make_wsgi_app(self.registry), _HttpServer, _HttpHandler)
        except OSError as error:
            reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be bound ({error.strerror})"
            raise AddressInUse(
                f"metrics address {listen} {reason}",
                advice="set metrics_listen to a free port, or leave it empty to disable metrics",
            ) from error
        self._http.start()
        bound = self._http.server_port
        return f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"

    def stop_http(self) -> None:
        """Close the HTTP endpoint, if there is one."""
        if self._http is not None:
            self._http.stop()
            self._http = None


class _HttpHandler(WSGIRequestHandler):
    def log_message(self, format: str, *_: Any) -> None:  # noqa: A002  # the name is the base's
        """Log nothing: the base class writes a line per request."""


class _HttpServer(ThreadingMixIn, WSGIServer):
    """Serves metrics over at most ``max_connections`` connections; a further one closes the oldest."""

    daemon_threads = True
    max_connections = 16
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], *args: Any) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, *args)
        self._open: dict[int, socket.socket] = {}
        self._lock = Lock()
        self._accepting = Thread(target=self.serve_forever, name="metrics", daemon=True)

    def start(self) -> None:
        self._accepting.start()

    def stop(self) -> None:
        self.shutdown()
        self._accepting.join()
        with self._lock:
            for request in self._open.values():
                _shut_down(request)
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= self.max_connections:
                oldest = next(iter(self._open))
                _shut_down(self._open.pop(oldest))
            self._open[id(request)] = request
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a broken connection needs no action."""


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # the client has closed it already
        connection.shutdown(socket.SHUT_RDWR)


class Readings(Collector):
    """Metrics that are computed from current state at each scrape.

    Parameters
    ----------
    read : callable
        Returns the current metrics.
    """

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """The current metrics."""
        return self._read()


def labelled(kind: _Kind, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """A metric with one label, and its value for each label value."""
    family = kind(name, text, labels=[label])
    for of, value in values.items():
        family.add_metric([of], value)
    return family


def parse_listen(listen: str, setting: str = "metrics_listen") -> tuple[str, int]:
    """Split the value of a setting, ``host:port`` or ``[host]:port``, into host and port.

    Raises
    ------
    ConfigurationError
        If the text has another form.
    """
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(
            f"{setting} {listen!r} is not host:port", advice="for example 127.0.0.1:9101"
        )
    return host, int(port)
