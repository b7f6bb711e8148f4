"""``nearsight config``: the settings in force, and a settings file to start from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from nearsight.common.command_line.options import ConfigOption, JsonOption, SetOption, flag_overrides
from nearsight.common.command_line.terminal import print_json, print_line, print_table
from nearsight.common.config.file import FILE_NAME, Section
from nearsight.common.errors import ConfigurationError
from nearsight.common.files import write_atomically

app = typer.Typer(no_args_is_help=True, help="Show the settings in force, or write a settings file.")


@app.command("show")
def show_config(
    ctx: typer.Context,
    section: Annotated[Section | None, typer.Argument(help="One daemon; all if not given.")] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print every setting in force, and its origin.

    Order of precedence: flags, environment (NEARSIGHT_CLOUD__SERVER__LISTEN), file, defaults.
    """
    from nearsight.common.config.base import import_settings_classes, load_settings
    from nearsight.common.config.report import settings_in_force

    targets = ctx.obj.settings_classes
    classes = import_settings_classes({section: targets[section]} if section else targets)
    if assignments and section is None:
        raise ConfigurationError("--set needs the name of a daemon", advice="for example `config show edge`")
    overrides = flag_overrides(assignments)
    rows = {
        name: settings_in_force(load_settings(settings, name, config, overrides))
        for name, settings in classes.items()
    }
    if as_json:
        print_json(
            {
                name: {key: {"value": value, "origin": origin} for key, value, origin in settings}
                for name, settings in rows.items()
            }
        )
        return
    for name, settings in rows.items():
        table = [(key, json.dumps(value, ensure_ascii=False), origin) for key, value, origin in settings]
        print_table(("key", "value", "origin"), table, title=f"[{name}]")


@app.command("init")
def init_config(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(help="File to write; never overwritten.")] = Path(FILE_NAME),
    short: Annotated[
        bool, typer.Option("--short", help="Only the settings that users change first.")
    ] = False,
) -> None:
    """Write a settings file that explains every setting and changes none, or a short one."""
    from nearsight.common.config.base import import_settings_classes
    from nearsight.common.config.report import settings_file, short_settings_file

    write = short_settings_file if short else settings_file
    if path.exists():
        raise ConfigurationError(f"{path} exists and is left as it is", advice="give another path")
    write_atomically(path, write(import_settings_classes(ctx.obj.settings_classes)).encode())
    print_line(f"wrote {path}")
