"""A command group that imports a subcommand only when it is used.

``nearsight --help`` lists every command in well under half a second, and a missing optional library breaks
only the commands that need it: the group knows names and one line of help, the modules stay unimported.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command as build_command

from nearsight.common.errors import MissingDependency

_COMPLETION = ("install_completion", "show_completion")


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command is, and what the overview says about it.

    Parameters
    ----------
    target : str
        ``package.module:attribute``, the attribute being a `typer.Typer`; ``package.module:attribute:name``
        is the command ``name`` of that application.
    help : str
        One line.
    panel : str
        Heading in the overview.
    extra : str
        Optional dependencies that the command may need, to install as ``nearsight[extra]``.
    """

    target: str
    help: str
    panel: str = "Commands"
    extra: str = ""


class LazyGroup(TyperGroup):
    """A group whose subclass lists its commands in ``lazy``."""

    lazy: Mapping[str, LazyCommand]

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # Placeholders serve the overview, completion and suggestions; `resolve_command` swaps in the real.
        self.commands = {
            name: TyperCommand(name, help=command.help, rich_help_panel=command.panel)
            for name, command in self.lazy.items()
        }

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order in which they are declared."""
        del ctx
        return list(self.lazy)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments name, and import it."""
        name, placeholder, rest = super().resolve_command(ctx, args)
        if name is None or placeholder is None:
            return name, placeholder, rest
        return name, load_command(name, self.lazy[name]), rest


def load_command(name: str, command: LazyCommand) -> Any:
    """Import a command.

    Raises
    ------
    MissingDependency
        If a library that its module needs is not installed.
    """
    module_name, attribute, *inner = command.target.split(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A missing library of others; a missing module of ours is a bug and stays one.
        if error.name is None or error.name.split(".")[0] == "nearsight":
            raise
        package = f"nearsight[{command.extra}]" if command.extra else "nearsight"
        raise MissingDependency(
            f"`nearsight {name}` needs the library {error.name!r}, which is not installed",
            advice=f"pip install '{package}'",
        ) from error
    application = getattr(module, attribute)
    loaded: Any = build_command(application) if isinstance(application, typer.Typer) else application
    for part in inner:
        loaded = loaded.commands[part]
    loaded.name = name
    # An application of its own would offer to install completion; here only the whole command does.
    loaded.params = [option for option in loaded.params if option.name not in _COMPLETION]
    return loaded
