"""The command line: one command, ``nearsight``, with the subcommands of every tier.

This is the only module that imports from all tiers. It converts errors to text and exit codes. The module of
a command is imported when the command is used. Therefore ``nearsight --help`` is fast, and a missing optional
library affects only the commands that need it. To add a command, add a line to `_PANELS`.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from nearsight import __version__
from nearsight.common.command_line.terminal import print_error, print_line
from nearsight.common.errors import (
    BROKEN_PIPE,
    EXIT_CODES,
    INTERRUPTED,
    InvalidArgument,
    MissingDependency,
    NearsightError,
    as_setup_error,
)
from nearsight.common.text import printable


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Location of a command, and its line in the overview.

    Parameters
    ----------
    target : str
        ``package.module:attribute``, the attribute being a `typer.Typer`.
    help : str
        One line.
    extra : str
        Optional dependencies that the command may need, to install as ``nearsight[extra]``.
    """

    target: str
    help: str
    extra: str = ""


_PANELS = {
    "Run it": {
        "demo": LazyCommand(
            "nearsight.experiments.demo.cli:app",
            "Run a museum with visitors and all three tiers on this machine.",
            "experiments",
        ),
        "cloud": LazyCommand("nearsight.cloud.cli:app", "Run the cloud daemon; manage its catalogues."),
        "edge": LazyCommand(
            "nearsight.edge.cli:app", "Run the edge daemon, the recognition cache near its users."
        ),
        "gateway": LazyCommand(
            "nearsight.edge.gateway.cli:app", "Run the gateway from browsers and HTTP to an edge.", "web"
        ),
        "models": LazyCommand(
            "nearsight.experiments.model_zoo.cli:app", "Manage the neural networks of a cloud.", "inference"
        ),
        "device": LazyCommand("nearsight.device.cli:app", "Run the SDK as a daemon for other programs."),
        "config": LazyCommand(
            "nearsight.common.config.cli:app", "Show the current settings, or write a settings file."
        ),
        "keys": LazyCommand("nearsight.common.rpc.cli:app", "Create the keys of daemons and clients."),
    },
    "Use it": {
        "recognize": LazyCommand("nearsight.device.recognize_cli:app", "Recognise objects in photos."),
        "video": LazyCommand(
            "nearsight.device.video.cli:app",
            "Run a network on a video; recompute only what changes.",
            "inference",
        ),
        "replay": LazyCommand(
            "nearsight.experiments.rig.cli:app", "Send recorded photo requests to running daemons."
        ),
    },
    "Inspect it": {
        "status": LazyCommand("nearsight.common.operation.cli:status_app", "Show the status of daemons."),
        "explain": LazyCommand(
            "nearsight.common.operation.cli:explain_app",
            "Explain the last cache decisions of edges and devices.",
        ),
        "peers": LazyCommand(
            "nearsight.device.peers_cli:app",
            "Show the peers of a device, and the data that they share.",
        ),
    },
    "Measure": {
        "evaluate": LazyCommand(
            "nearsight.experiments.datasets.cli:app", "Recall, precision and times on a folder of photos."
        ),
        "profile": LazyCommand(
            "nearsight.experiments.profiling.cli:app",
            "Measure f(k) and recall(k) of this machine.",
            "experiments",
        ),
        "museum": LazyCommand(
            "nearsight.experiments.museum.cli:app", "Generate a museum: exhibits, photos, visits."
        ),
        "link": LazyCommand(
            "nearsight.experiments.links.cli:app", "Emulate a slow network in front of a daemon."
        ),
        "testbed": LazyCommand(
            "nearsight.experiments.testbed.cli:app",
            "Run daemons on lab machines or emulated nodes.",
            "experiments",
        ),
        "experiment": LazyCommand(
            "nearsight.experiments.cli:app", "Measure tables and figures of the papers again.", "experiments"
        ),
        "plan": LazyCommand(
            "nearsight.experiments.model_serving.cli:app",
            "Plan the memory of an edge for its networks.",
            "experiments",
        ),
        "bench": LazyCommand(
            "nearsight.experiments.bench.cli:app",
            "Run benchmarks against other libraries on this machine.",
            "experiments",
        ),
    },
}
"""Heading in the overview → its commands."""

COMMANDS = MappingProxyType({name: one for commands in _PANELS.values() for name, one in commands.items()})

SETTINGS_CLASSES = MappingProxyType(
    {
        "cloud": "nearsight.cloud.settings:CloudSettings",
        "edge": "nearsight.edge.settings:EdgeSettings",
        "device": "nearsight.device.settings:DeviceSettings",
        "gateway": "nearsight.edge.gateway.settings:GatewaySettings",
    }
)
"""Section of ``nearsight.toml`` → settings class, for `nearsight config`, because common imports no tier."""

_COMPLETION = ("install_completion", "show_completion")


@dataclass
class Invocation:
    """State of one run of the command line; commands access it as ``ctx.obj``."""

    settings_classes: Mapping[str, str]
    debug: bool


class LazyGroup(TyperGroup):
    """The group of `COMMANDS`; each is imported at its first use."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # Placeholders for overview, completion and suggestions; `resolve_command` imports the command.
        self.commands = {
            name: TyperCommand(name, help=command.help, rich_help_panel=panel)
            for panel, commands in _PANELS.items()
            for name, command in commands.items()
        }
        _prepare(self)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find and import the command that the arguments name."""
        name, placeholder, rest = super().resolve_command(ctx, args)
        if name is None or placeholder is None:
            return name, placeholder, rest
        return name, load_command(name, COMMANDS[name]), rest

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """Parse the options before the command; some, such as ``--help``, print and end the program."""
        with _output_may_close():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _output_may_close():
            return super().invoke(ctx)


@contextmanager
def _output_may_close() -> Iterator[None]:
    """Write all output at the end; that its reader closed it, as in ``nearsight … | head``, is no error."""
    try:
        try:
            yield
        except typer.Exit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:
        # Rich, which prints help and tables, ends the program with code 1 in this case.
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
            raise
        # The flush of buffered output at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BROKEN_PIPE) from error


@cache
def load_command(name: str, command: LazyCommand) -> Any:
    """Import a command, once per process.

    Raises
    ------
    MissingDependency
        If a library that its module needs is not installed.
    """
    module_name, _, attribute = command.target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # Only a missing third-party library is reported as such; a missing module of nearsight is a bug.
        if error.name is None or error.name.split(".")[0] == "nearsight":
            raise
        package = f"nearsight[{command.extra}]" if command.extra else "nearsight"
        raise MissingDependency(
            f"`nearsight {name}` needs the library {error.name!r}, which is not installed",
            advice=f"pip install '{package}'",
        ) from error
    loaded: Any = get_command(getattr(module, attribute))
    loaded.name = name
    # Every typer application has options to install completion; only the main command should show them.
    loaded.params = [option for option in loaded.params if option.name not in _COMPLETION]
    _prepare(loaded)
    return loaded


def _prepare(command: Any) -> None:
    """Let the help text of a command flow at any width, hide the metavariable of flags, check its paths."""
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for option in command.params:
        if getattr(option, "is_flag", False):
            option.metavar = ""
        kind = option.type_descriptor.annotation
        if Path in {kind, *get_args(kind)}:
            option.process_value = partial(_not_empty, option, option.process_value)
    for inner in getattr(command, "commands", {}).values():
        _prepare(inner)


def _not_empty(option: Any, process: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    """Refuse ``""`` as a path, such as an unset variable: it would mean the current folder."""
    if value == "" or (isinstance(value, list | tuple) and "" in value):
        is_option = option.param_type_name == "option"
        name = option.opts[0] if is_option else option.metavar or option.name.upper()
        raise InvalidArgument(f"the path {name} is empty", advice="name a file or a folder")
    return process(ctx, value)


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    epilog=f"Exit codes: {'; '.join(f'{code} {meaning}' for code, meaning in EXIT_CODES.items())}.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_line(f"nearsight {__version__}")
        raise typer.Exit


@app.callback()
def _nearsight(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="NEARSIGHT_DEBUG", help="Show tracebacks of errors.")
    ] = False,
) -> None:
    """Recognise what a camera sees, near the person who holds it."""
    from nearsight.common.logging import configure_logging  # noqa: PLC0415  not needed for the overview

    del version
    ctx.obj.debug = debug
    # Daemons configure their own level; other commands report through their output.
    configure_logging(level="DEBUG" if debug else "WARNING")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    arguments : list of str, optional
        Default: the arguments of the process.
    """
    _prepare_streams()
    invocation = Invocation(SETTINGS_CLASSES, debug=False)
    try:
        app(arguments, prog_name="nearsight", obj=invocation)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  the last handler: the user receives one line, not a traceback
        given = sys.argv[1:] if arguments is None else arguments
        if isinstance(error, UnicodeEncodeError) and any(error.object in argument for argument in given):
            error = InvalidArgument(
                f"{error.object!r} is not valid UTF-8", advice="give this argument in UTF-8"
            )
        return _report(error, show=invocation.debug)
    return 0


def _prepare_streams() -> None:
    """Make standard streams accept any text; redirect closed streams (``>&-``) to the null device."""
    # In this order: each gets the lowest free descriptor, which is its own.
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("r+", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As standard error does with characters that it cannot encode.
        sys.stdout.reconfigure(errors="backslashreplace")


def _report(error: Exception, *, show: bool) -> int:
    """Print one line about an error; save the traceback of a bug to a file and print its path."""
    if show:
        sys.stderr.write(printable("".join(traceback.format_exception(error)), lines=True))
    known = as_setup_error(error) if isinstance(error, OSError) else error
    if isinstance(known, NearsightError):
        print_error(str(known))
        return known.exit_code
    name = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if show:
        print_error(f"unexpected {name}")
        return 1
    with tempfile.NamedTemporaryFile(
        "w", prefix="nearsight-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as log:
        traceback.print_exception(error, file=log)
    print_error(f"unexpected {name}; this is a bug: see {log.name}, or run again with --debug")
    return 1


if __name__ == "__main__":
    sys.exit(main())
