"""Common life cycle of all daemons: logs, metrics, readiness, signals and a clean end.

The command of each tier calls `run_daemon` with settings that are already loaded. The first SIGTERM, SIGINT
or SIGHUP stops the daemon cleanly, within its grace period; the second one ends the process at once.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Protocol

from nearsight.common.config.base import DaemonSettings, RpcDaemonSettings
from nearsight.common.errors import ConfigurationError
from nearsight.common.files import replacing
from nearsight.common.logging import configure_logging, get_logger
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.rpc.endpoints import same_address

STOP_MARGIN_S = 2.0
"""Time beyond the grace period after which a stop that hangs is aborted [s]."""


class Daemon(Protocol):
    """The daemon of one tier with all its parts."""

    @property
    def endpoint(self) -> str:
        """Address of the daemon, with the bound port. Valid after the start."""

    def start(self) -> None:
        """Bind and begin to serve. If it raises, nothing remains running."""

    def stop(self, grace_s: float) -> None:
        """Accept no more requests, finish those in progress in ``grace_s`` seconds, release everything."""


def run_daemon(
    name: str,
    settings: DaemonSettings,
    build: Callable[[DaemonMetrics], Daemon],
    *,
    announce: Path | None = None,
) -> None:
    """Run a daemon until a signal ends it. Returns after a clean stop.

    Parameters
    ----------
    name : str
        ``cloud``, ``edge`` or ``device``; added to every line of the log.
    settings : DaemonSettings
        The loaded settings.
    build : callable
        Creates the daemon without starting it. Called after logging and metrics are set up.
    announce : Path, optional
        File to write once the daemon serves: JSON with ``daemon``, ``endpoint``, ``metrics`` and ``pid``. It
        is written atomically and removed at the end.

    Raises
    ------
    NearsightError
        If the daemon cannot start.
    """
    from nearsight.common.recognition.object_recognizer import pin_threads  # noqa: PLC0415  imports OpenCV, FAISS

    _check_tiers(name, settings)
    configure_logging(level=settings.log_level, log_format=settings.log_format, daemon=name)
    pin_threads()  # whole requests run in parallel, not parts of one
    raise_descriptor_limit()
    log, metrics = get_logger("daemon"), DaemonMetrics(name)
    with _log_thread_crashes(metrics), _stop_signal() as wait_for_signal:
        metrics_address = metrics.start_http(settings.metrics_listen)
        announced: Path | None = None
        try:
            daemon = build(metrics)
            daemon.start()
            try:
                if announce is not None:
                    write_announcement(announce, name, daemon.endpoint, metrics_address)
                    announced = announce
                log.info("ready", endpoint=daemon.endpoint, metrics=metrics_address or "off", pid=os.getpid())
                received = wait_for_signal()
                log.info("stopping", signal=received.name, grace_s=settings.stop_grace_s)
            finally:
                with _stop_deadline(settings.stop_grace_s + STOP_MARGIN_S):
                    daemon.stop(settings.stop_grace_s)
                if announced is not None:
                    announced.unlink(missing_ok=True)
            log.info("stopped")
        finally:
            metrics.stop_http()


def _check_tiers(name: str, settings: DaemonSettings) -> None:
    """Refuse a daemon as its own next tier: it would forward each request to itself, for ever."""
    for tier in settings.next_tiers() if isinstance(settings, RpcDaemonSettings) else ():
        if same_address(tier.endpoint, settings.endpoint_here()):
            raise ConfigurationError(
                f"{tier.endpoint} is the address of this {name} itself, and not of its {tier.daemon}",
                advice=f"give the address of the {tier.daemon}",
            )


def raise_descriptor_limit() -> None:
    """Raise this process's limit of open descriptors to the maximum: each client takes one.

    The usual limit of 1,024 protects programs that call ``select``; this program does not.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS reports a limit that it does not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def write_announcement(
    path: Path, daemon: str, endpoint: str = "", metrics: str = "", **more: object
) -> None:
    """Write the addresses of a daemon, and further facts, for the process that started it.

    Raises
    ------
    ConfigurationError
        If the file cannot be written.
    """
    facts = {"daemon": daemon, "endpoint": endpoint, "metrics": metrics, "pid": os.getpid()}
    try:
        with replacing(path, 0o600) as aside:
            aside.write_text(json.dumps(facts | more) + "\n")
    except OSError as error:
        raise ConfigurationError(
            f"cannot announce in {path}: {error.strerror}",
            advice="give --announce a file in a writable folder",
        ) from error


@contextmanager
def _stop_signal() -> Iterator[Callable[[], signal.Signals]]:
    """Provide a function that waits for a stop signal; a second signal ends the process at once.

    A terminal that is closed sends SIGHUP; under ``nohup`` it stays ignored.

    Python writes the number of each signal to a pipe at once. A handler would run only after the wait if the
    signal arrives immediately before it, or in another thread.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    seen = 0

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        nonlocal seen
        seen += 1
        if seen > 1:
            os._exit(128 + number)

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    woken_before = signal.set_wakeup_fd(writing)
    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield lambda: signal.Signals(os.read(reading, 1)[0])
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken_before)
        os.close(reading)
        os.close(writing)


@contextmanager
def _stop_deadline(seconds: float) -> Iterator[None]:
    """End the process if the block takes longer, because a supervisor relies on the grace period."""

    def cut_off() -> None:
        get_logger("daemon").error("stop did not finish in time, exiting", seconds=seconds)
        sys.stderr.flush()
        os._exit(1)

    timer = threading.Timer(seconds, cut_off)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _log_thread_crashes(metrics: DaemonMetrics) -> Iterator[None]:
    """Log and count every exception that ends a thread, instead of a traceback on standard error."""
    previous = threading.excepthook

    def log_crash(crash: threading.ExceptHookArgs) -> None:
        metrics.on_thread_crash()
        get_logger("daemon").error(
            "thread crashed",
            thread=crash.thread.name if crash.thread else "?",
            exc_info=(crash.exc_type, crash.exc_value, crash.exc_traceback),
        )

    threading.excepthook = log_crash
    try:
        yield
    finally:
        threading.excepthook = previous
