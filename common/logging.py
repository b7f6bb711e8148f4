"""Structured logs: console for people, JSON lines for machines, always on standard error."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog

from nearsight.common.text import printable

LogFormat = Literal["console", "json"]

_OF_LINES = {"exception", "stack"}


def configure_logging(*, level: str = "INFO", log_format: LogFormat = "console", **context: object) -> None:
    """Set up structlog for this process; a later call replaces an earlier one.

    Parameters
    ----------
    level : str
        Name of the lowest level that is printed.
    log_format : {"console", "json"}
        Text for a person or one JSON object per line.
    **context
        Values on every line, of every thread, such as ``daemon="edge"``.
    """
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=28)
    )

    def add_context(
        logger: object, method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        # Not through contextvars: a new thread starts without those of the thread that made it.
        del logger, method
        return {**context, **event}

    structlog.configure(
        processors=[
            add_context,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _printable_values,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        # Found at each line, as programs and tests replace it.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )


def _printable_values(
    logger: object, method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Text of others, such as a label or a name, must not steer the terminal that shows the log."""
    del logger, method
    return {
        key: printable(value, lines=key in _OF_LINES) if isinstance(value, str) else value
        for key, value in event.items()
    }


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger whose lines carry ``component=name``."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(component=name)
    return logger


# An application that embeds the SDK must not find our lines on its standard output, where structlog prints by
# default. One that configures structlog itself, before or after this import, keeps what it chose.
if not structlog.is_configured():
    configure_logging(level="WARNING")
