"""``nearsight config``, ``nearsight status`` and ``nearsight explain``."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, Protocol, TypeVar

import typer

from nearsight.common.config.file import FILE_NAME
from nearsight.common.config.options import ConfigOption, SetOption, flag_overrides
from nearsight.common.errors import ConfigurationError, PeerError
from nearsight.common.terminal import output_console, print_json, print_table

if TYPE_CHECKING:
    from nearsight.common.explain import DaemonExplanations
    from nearsight.common.rpc.security import ClientSecurity
    from nearsight.common.status import DaemonStatus

status_app = typer.Typer()
explain_app = typer.Typer()
config_app = typer.Typer(no_args_is_help=True, help="Show the settings in force, or write a settings file.")


class Section(StrEnum):
    """The daemons that have settings."""

    CLOUD = "cloud"
    EDGE = "edge"
    DEVICE = "device"


@config_app.command("show")
def show_config(
    ctx: typer.Context,
    section: Annotated[Section | None, typer.Argument(help="One daemon; all if not given.")] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print every setting in force, and where its value came from.

    Flags win over the environment (NEARSIGHT_CLOUD__SERVER__LISTEN), that over the file, this over defaults.
    """
    from nearsight.common.config.base import load_settings
    from nearsight.common.config.report import settings_in_force

    classes = _settings_classes(ctx.obj.settings_classes)
    chosen = [section.value] if section else list(classes)
    if assignments and section is None:
        raise ConfigurationError(
            "--set needs the daemon that it is for", advice="for example `config show edge`"
        )
    overrides = flag_overrides(assignments)
    rows = {name: settings_in_force(load_settings(classes[name], name, config, overrides)) for name in chosen}
    if as_json:
        print_json(
            {
                name: {row.key: {"value": row.value, "origin": row.origin} for row in settings}
                for name, settings in rows.items()
            }
        )
        return
    for name, settings in rows.items():
        table = [(row.key, json.dumps(row.value, ensure_ascii=False), row.origin) for row in settings]
        print_table(("key", "value", "origin"), table, title=f"[{name}]")


@config_app.command("init")
def init_config(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(help="File to write; never overwritten.")] = Path(FILE_NAME),
) -> None:
    """Write a settings file that explains every setting and changes none."""
    from nearsight.common.config.report import settings_file

    text = settings_file(_settings_classes(ctx.obj.settings_classes))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConfigurationError(f"{path} exists and is left as it is", advice="give another path") from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
    typer.echo(f"wrote {path}")


def _settings_classes(targets: Mapping[str, str]) -> dict[str, type]:
    """Import the settings class of every daemon from its ``module:attribute``."""
    classes = {}
    for section, target in targets.items():
        module, _, attribute = target.partition(":")
        classes[section] = getattr(importlib.import_module(module), attribute)
    return classes


EndpointsArgument = Annotated[
    list[str], typer.Argument(metavar="ENDPOINT", help="For example tcp://127.0.0.1:7000.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.01, help="How long to wait for an answer.")
]
KeyOption = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="Your secret key, from `nearsight keys`.")
]
ServerKeyOption = Annotated[
    str | None,
    typer.Option("--server-key", metavar="KEY", help="Public key of the daemons, or a file that holds it."),
]
WatchOption = Annotated[
    float | None,
    typer.Option("--watch", metavar="SECONDS", min=0.1, help="Ask again so often, until Ctrl-C."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@status_app.command()
def status(
    endpoints: EndpointsArgument,
    timeout_s: TimeoutOption = 3.0,
    key: KeyOption = None,
    server_key: ServerKeyOption = None,
    watch_s: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask daemons how they are. Exit code 0 if all are ready, 4 if not."""
    from nearsight.common.status import ask_status

    security = client_security(key, server_key)
    show_answers(
        lambda: ask_status(endpoints, timeout_s=timeout_s, security=security),
        _print_statuses,
        lambda status: status.ready,
        as_json=as_json,
        watch_s=watch_s,
    )


@explain_app.command()
def explain(
    endpoints: EndpointsArgument,
    timeout_s: TimeoutOption = 3.0,
    key: KeyOption = None,
    server_key: ServerKeyOption = None,
    most: Annotated[int, typer.Option("--objects", metavar="N", min=0, help="Cached objects to name.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Ask edges and devices why they cache what they cache. Exit code 0 if all answered, 4 if not."""
    from nearsight.common.explain import ask_explanations

    def show(answers: Sequence[DaemonExplanations]) -> None:
        for answer in answers:
            _print_explanations(answer, most)

    security = client_security(key, server_key)
    show_answers(
        lambda: ask_explanations(endpoints, timeout_s=timeout_s, security=security),
        show,
        lambda answer: not answer.error,
        as_json=as_json,
    )


def _print_explanations(answer: DaemonExplanations, most: int) -> None:
    from nearsight.common.explain import TABLE_COLUMNS, table_of

    if answer.error:
        typer.echo(f"{answer.endpoint}: no answer: {answer.error}")
    elif not answer.decisions:
        typer.echo(f"{answer.endpoint}: nothing decided yet: no request was answered")
    for decision in answer.decisions:
        title = (
            f"{answer.endpoint}, catalogue {decision.catalogue or '(default)'}: "
            f"k = {decision.chosen.k} of at most {decision.k_max}, decided {decision.age_s:.0f} s ago"
        )
        print_table(TABLE_COLUMNS, table_of(decision), title=title, right=TABLE_COLUMNS[1:])
        typer.echo(f"  why: {decision.why}")
        if decision.object_ids:
            named = ", ".join(decision.object_ids[:most])
            more = len(decision.object_ids) - most
            typer.echo(f"  objects: {named}{f', and {more} more' if more > 0 else ''}")
        for name, value in decision.facts:
            typer.echo(f"  {name}: {value}")


class _Answer(Protocol):
    def to_json(self) -> dict[str, object]: ...


A = TypeVar("A", bound=_Answer)


def show_answers(
    ask: Callable[[], Sequence[A]],
    show: Callable[[Sequence[A]], None],
    is_fine: Callable[[A], bool],
    *,
    as_json: bool,
    watch_s: float | None = None,
) -> NoReturn:
    """Ask daemons, show what they say, and exit: with code 0 if all are fine, 4 if not.

    Parameters
    ----------
    ask : callable
        Asks all daemons.
    show : callable
        Prints the answers for a person.
    is_fine : callable
        Whether an answer is a good one.
    as_json : bool
        Print JSON instead.
    watch_s : float, optional
        Never exit, but ask again so often.
    """
    import time

    while True:
        answers = ask()
        if as_json:
            print_json([answer.to_json() for answer in answers])
        else:
            if watch_s is not None:
                output_console().clear()
            show(answers)
        if watch_s is None:
            raise typer.Exit(0 if all(map(is_fine, answers)) else PeerError.exit_code)
        time.sleep(watch_s)


def client_security(key: Path | None, server_key: str | None) -> ClientSecurity | None:
    """The keys that the options of a command name; None without them.

    Raises
    ------
    ConfigurationError
        If one of the two is missing.
    """
    from nearsight.common.rpc.security import ClientSecurity

    if key is None and server_key is None:
        return None
    if key is None or server_key is None:
        raise ConfigurationError(
            "--key and --server-key go together",
            advice="give both, or neither for daemons without encryption",
        )
    return ClientSecurity(key, server_key)


def _print_statuses(statuses: Sequence[DaemonStatus]) -> None:
    from nearsight.common.status import format_duration

    rows = []
    for status in statuses:
        if status.error:
            rows.append((status.endpoint, "", "", "no answer", "", status.error))
            continue
        state = "ready" if status.ready else "not ready"
        details = "\n".join(f"{name}: {value}" for name, value in status.details)
        up = format_duration(status.uptime_s)
        rows.append((status.endpoint, status.daemon, status.version, state, up, details))
    print_table(("endpoint", "daemon", "version", "state", "up", "details"), rows)
