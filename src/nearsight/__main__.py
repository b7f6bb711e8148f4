"""The command line: one command, ``nearsight``, with the subcommands of every tier.

This is where errors become text and exit codes, and the only module that knows all tiers. Commands are
imported when they are used: add one with a line in `COMMANDS`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

import typer

from nearsight import __version__
from nearsight.common.errors import NearsightError
from nearsight.common.exit_codes import BROKEN_PIPE, INTERRUPTED, exit_code_help
from nearsight.common.lazy_commands import LazyCommand, LazyGroup
from nearsight.common.machine_errors import refusal_of_machine
from nearsight.common.terminal import print_error

_DAEMONS, _USE, _DATA, _SET_UP = "Daemons", "Use", "Data and experiments", "Set up and look after"

COMMANDS = MappingProxyType(
    {
        "cloud": LazyCommand(
            "nearsight.cloud.cli:app", "Run the cloud daemon; manage its catalogues.", _DAEMONS
        ),
        "edge": LazyCommand(
            "nearsight.edge.cli:app", "Run the edge daemon, the recognition cache near its users.", _DAEMONS
        ),
        "device": LazyCommand(
            "nearsight.device.cli:app", "Run the SDK as a daemon for other programs.", _DAEMONS
        ),
        "recognize": LazyCommand("nearsight.device.cli:recognize_app", "Say what a photo shows.", _USE),
        "demo": LazyCommand(
            "nearsight.experiments.cli:demo_app",
            "A museum, its visitors, all three tiers on this machine: with and without the edge cache.",
            _USE,
            extra="experiments",
        ),
        "status": LazyCommand("nearsight.common.cli:status_app", "Ask daemons how they are.", _SET_UP),
        "explain": LazyCommand(
            "nearsight.common.cli:explain_app",
            "Ask edges and devices why they cache what they cache.",
            _SET_UP,
        ),
        "peers": LazyCommand(
            "nearsight.device.peers_cli:app",
            "Show which devices are near a device, what each holds, and the traffic.",
            _SET_UP,
        ),
        "config": LazyCommand(
            "nearsight.common.cli:config_app",
            "Show the settings in force, or write a settings file.",
            _SET_UP,
        ),
        "keys": LazyCommand("nearsight.common.rpc.cli:app", "Make the keys of daemons and clients.", _SET_UP),
        "museum": LazyCommand(
            "nearsight.experiments.museum.cli:app", "Generate a museum: exhibits, photos, visits.", _DATA
        ),
        "profile": LazyCommand(
            "nearsight.experiments.profiling.cli:app", "Measure f(k) and recall(k) of this machine.", _DATA
        ),
        "replay": LazyCommand(
            "nearsight.experiments.cli:replay_app", "Send recorded photo requests to running daemons.", _DATA
        ),
        "evaluate": LazyCommand(
            "nearsight.experiments.cli:evaluate_app",
            "Recall, precision and times on a folder of photos.",
            _DATA,
        ),
        "bench": LazyCommand(
            "nearsight.experiments.cli:bench_app",
            "Compare with other libraries, on this machine.",
            _DATA,
            extra="experiments",
        ),
        "testbed": LazyCommand(
            "nearsight.experiments.testbed.cli:app",
            "Run daemons on lab machines or emulated nodes, with shaped links.",
            _DATA,
            extra="experiments",
        ),
        "experiment": LazyCommand(
            "nearsight.experiments.framework.cli:app",
            "Measure tables and figures of the papers anew.",
            _DATA,
            extra="experiments",
        ),
    }
)

SETTINGS_CLASSES = MappingProxyType(
    {
        "cloud": "nearsight.cloud.settings:CloudSettings",
        "edge": "nearsight.edge.settings:EdgeSettings",
        "device": "nearsight.device.settings:DeviceSettings",
    }
)
"""Section of ``nearsight.toml`` → settings class, for `nearsight config`: common may not know tiers."""


@dataclass
class Invocation:
    """One run of the command line, found by commands as ``ctx.obj``."""

    settings_classes: Mapping[str, str]
    debug: bool


class _Commands(LazyGroup):
    lazy = COMMANDS

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            # `nearsight ... | head` is no error. What is still buffered must not fail again at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(BROKEN_PIPE) from error
        return result


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    epilog=exit_code_help(),
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nearsight {__version__}")
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
    from nearsight.common.logging import configure_logging  # noqa: PLC0415  the overview does without

    del version
    ctx.obj.debug = debug
    # Daemons choose their own; other commands speak through their output.
    configure_logging(level="DEBUG" if debug else "WARNING")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    arguments : list of str, optional
        Default: those of the process.
    """
    invocation = Invocation(SETTINGS_CLASSES, debug=False)
    try:
        app(arguments, prog_name="nearsight", obj=invocation)
    except SystemExit as end:
        return _exit_code(end)
    except NearsightError as error:
        return _report(error, show=invocation.debug)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        refused = refusal_of_machine(error)
        show = invocation.debug
        return _report(refused, show=show) if refused is not None else _report_bug(error, show=show)
    except Exception as error:  # noqa: BLE001  the last boundary: a person gets one line, not a traceback
        return _report_bug(error, show=invocation.debug)
    return 0


def _exit_code(end: SystemExit) -> int:
    return end.code if isinstance(end.code, int) else int(end.code is not None)


def _report(error: NearsightError, *, show: bool) -> int:
    """Say what a person can change."""
    if show:
        traceback.print_exc()
    print_error(str(error))
    return error.exit_code


def _report_bug(error: Exception, *, show: bool) -> int:
    """Keep the traceback of an unexpected exception, and say where it is."""
    name = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if show:
        traceback.print_exception(error)
        print_error(f"unexpected {name}")
        return 1
    with tempfile.NamedTemporaryFile("w", prefix="nearsight-", suffix=".log", delete=False) as log:
        traceback.print_exception(error, file=log)
    print_error(f"unexpected {name}; this is a bug: see {log.name}, or run again with --debug")
    return 1


if __name__ == "__main__":
    sys.exit(main())
