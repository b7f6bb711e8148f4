"""Structured logs: daemons and commands write them to standard error, as text for people or as JSON.

A program that embeds the SDK does not call `configure_logging`. Its log lines go to the loggers below
``nearsight`` of Python's ``logging``, and are printed only if the program configures that. If the program
configures structlog, the lines go to structlog.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any, Literal, cast

import structlog

from nearsight.common.text import printable

LogFormat = Literal["console", "json"]

_MULTILINE_KEYS = {"exception", "stack"}


def configure_logging(*, level: str = "INFO", log_format: LogFormat = "console", **context: object) -> None:
    """Set up structlog for this process; a later call replaces an earlier one.

    Parameters
    ----------
    level : str
        Name of the lowest level that is printed.
    log_format : {"console", "json"}
        Text for people, or one JSON object per line.
    **context
        Values on every line of every thread, such as ``daemon="edge"``.
    """
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=28)
    )

    def add_context(
        logger: object, method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        # Context variables would not work: a new thread starts without those of its creator.
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
        # Read for each line, because programs and tests replace ``sys.stderr``.
        logger_factory=lambda *_: _Lines(sys.stderr),
        cache_logger_on_first_use=False,
    )


class _Lines(structlog.PrintLogger):
    """Writes lines. Failed writes are ignored: a full disk or a closed pipe must not end a thread."""

    def msg(self, message: str) -> None:
        with suppress(OSError):
            super().msg(message)

    debug = info = warning = error = critical = exception = msg


def _printable_values(
    logger: object, method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Escape control characters in values; labels and names from peers could alter the terminal."""
    del logger, method
    return {
        key: printable(value, lines=key in _MULTILINE_KEYS) if isinstance(value, str) else value
        for key, value in event.items()
    }


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger whose lines carry ``component=name``; in ``logging`` its name is ``nearsight.NAME``."""
    decides = cast("type[structlog.typing.BindableLogger]", _bound_logger)
    return cast(
        "structlog.typing.FilteringBoundLogger",
        structlog.wrap_logger(None, wrapper_class=decides, component=name),
    )


def _bound_logger(logger: object, processors: Any, context: dict[str, Any]) -> object:
    """The logger for one line: structlog if it is configured by now, else ``logging``."""
    if structlog.is_configured():
        return structlog.get_config()["wrapper_class"](logger, processors=processors, context=context)
    values = dict(context)
    standard = logging.getLogger(f"nearsight.{values.pop('component')}")
    return structlog.stdlib.BoundLogger(standard, [structlog.stdlib.filter_by_level, _as_text], values)


def _as_text(
    logger: object, method: str, event: structlog.typing.EventDict
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """A line for ``logging``: the values are part of the text, the exception is passed separately."""
    del logger, method
    text, exc_info = event.pop("event"), event.pop("exc_info", None)
    shown = f" ({', '.join(f'{name}={value!r}' for name, value in event.items())})" if event else ""
    return (printable(f"{text}{shown}"),), {"exc_info": exc_info, "stacklevel": _CALLER}


_CALLER = 4
"""Number of stack frames between ``logging`` and the caller; they belong to structlog."""

# Without a handler, ``logging`` itself prints warnings of libraries.
logging.getLogger("nearsight").addHandler(logging.NullHandler())
