"""The options that the commands of all daemons share, and their conversion to settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from nearsight.common.errors import ConfigurationError, InvalidArgument

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file. Default: ./nearsight.toml, then the one in your configuration folder.",
    ),
]


def set_option(example: str) -> Any:
    """The option for single settings, with one of the command as the example."""
    return typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help=f"One setting, e.g. {example}; may be repeated. `nearsight config show` lists the keys.",
    )


SetOption = Annotated[list[str] | None, set_option("server.workers=4")]
AnnounceOption = Annotated[
    Path | None,
    typer.Option(
        "--announce",
        metavar="FILE",
        help="File for endpoint, metrics address and process id, as JSON; written when the daemon serves.",
    ),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.01, help="Timeout of an answer.")
]
KeyOption = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="Your secret key, from `nearsight keys`.")
]
ServerKeyOption = Annotated[
    str | None,
    typer.Option("--server-key", metavar="KEY", help="Public key of the daemons, or a file that holds it."),
]
ServerKeysOption = Annotated[
    list[str] | None,
    typer.Option(
        "--server-key",
        metavar="KEY",
        help="Public key of the daemons, or a file that holds it; once for all, or once for each ENDPOINT. "
        "Default: those of the settings.",
    ),
]
WatchOption = Annotated[
    float | None,
    typer.Option("--watch", metavar="SECONDS", min=0.1, help="Repeat at this interval, until Ctrl-C."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def endpoints_argument(example: str) -> Any:
    """The argument of a command that asks daemons, with the address of such a daemon as the example."""
    return typer.Argument(
        metavar="ENDPOINT",
        help=f"For example {example}. Default: those of the settings and of this machine.",
        show_default=False,
    )


def command_follows(ctx: typer.Context) -> bool:
    """Whether a command follows the one of ``ctx``.

    Raises
    ------
    InvalidArgument
        If options were given before that command, which does not receive them.
    """
    if ctx.invoked_subcommand is None:
        return False
    for option in ctx.command.params:
        source = ctx.get_parameter_source(option.name or "")
        if source is not None and source.name == "COMMANDLINE":
            raise InvalidArgument(
                f"{option.opts[0]} before {ctx.invoked_subcommand!r} does not apply to that command",
                advice=f"put it at the end: {ctx.command_path} {ctx.invoked_subcommand} … {option.opts[0]} …",
            )
    return True


def flag_overrides(
    assignments: Sequence[str] | None, named: Mapping[str, object] | None = None
) -> dict[str, object]:
    """The flags of a command as overrides for `load_settings`; a named flag takes precedence over ``--set``.

    Parameters
    ----------
    assignments : sequence of str, optional
        The values of ``--set``, each ``key=value``.
    named : Mapping, optional
        Dotted key → value of a named flag; ``None`` if the flag was not given.

    Raises
    ------
    ConfigurationError
        If an assignment has no ``=``.
    """
    overrides: dict[str, object] = {}
    for assignment in assignments or ():
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(
                f"--set {assignment}: not of the form key=value", advice="for example --set log_level=DEBUG"
            )
        overrides[key.strip()] = value.strip()
    return overrides | {key: value for key, value in (named or {}).items() if value is not None}
