"""``nearsight status`` and ``nearsight explain``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, NoReturn, Protocol, TypeVar

import typer

from nearsight.common.command_line.options import (
    ConfigOption,
    JsonOption,
    KeyOption,
    ServerKeysOption,
    TimeoutOption,
    WatchOption,
    endpoints_argument,
)
from nearsight.common.command_line.terminal import (
    output_console,
    print_error,
    print_json,
    print_line,
    print_table,
)
from nearsight.common.errors import PeerError
from nearsight.common.rpc.endpoints import DEFAULT_ENDPOINTS

if TYPE_CHECKING:
    from nearsight.common.operation.addresses import Address
    from nearsight.common.operation.explain import DaemonExplanations
    from nearsight.common.operation.status import DaemonStatus

status_app = typer.Typer()
explain_app = typer.Typer()


@status_app.command()
def status(  # noqa: PLR0917  typer calls it by name
    ctx: typer.Context,
    endpoints: Annotated[list[str] | None, endpoints_argument(DEFAULT_ENDPOINTS["cloud"])] = None,
    timeout_s: TimeoutOption = 3.0,
    key: KeyOption = None,
    server_keys: ServerKeysOption = None,
    config: ConfigOption = None,
    watch_s: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the state of daemons: the named ones, or all of the settings and of this machine.

    Exit code 0 if all are ready, 4 if not. A daemon that is neither named nor set need not run.
    """
    from nearsight.common.operation.addresses import addresses
    from nearsight.common.operation.web_status import ask_each_status

    classes = ctx.obj.settings_classes
    asked = addresses(classes, classes, endpoints, config, key, server_keys)
    show_answers(
        asked,
        partial(ask_each_status, timeout_s=timeout_s),
        _print_status,
        lambda status: status.ready,
        as_json=as_json,
        watch_s=watch_s,
    )


@explain_app.command()
def explain(  # noqa: PLR0917  typer calls it by name
    ctx: typer.Context,
    endpoints: Annotated[list[str] | None, endpoints_argument(DEFAULT_ENDPOINTS["edge"])] = None,
    timeout_s: TimeoutOption = 3.0,
    key: KeyOption = None,
    server_keys: ServerKeysOption = None,
    config: ConfigOption = None,
    most: Annotated[
        int, typer.Option("--objects", metavar="N", min=0, help="Number of cached objects to list.")
    ] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show why edges and devices cache their objects: the named daemons, or those of the settings.

    Exit code 0 if all answered, 4 if not. A daemon that is neither named nor set need not run.
    """
    from nearsight.common.operation.addresses import addresses
    from nearsight.common.operation.explain import ask_explanations

    asked = addresses(ctx.obj.settings_classes, ("edge", "device"), endpoints, config, key, server_keys)
    show_answers(
        asked,
        partial(ask_explanations, timeout_s=timeout_s),
        lambda answer: _print_explanations(answer, most),
        lambda answer: not answer.error,
        as_json=as_json,
    )


def _print_explanations(answer: DaemonExplanations, most: int) -> None:
    from nearsight.common.operation.explain import table_of

    if answer.error:
        print_line(f"{answer.endpoint}: no answer: {answer.error}", hang=2)
    elif not answer.decisions and not answer.networks:
        print_line(f"{answer.endpoint}: no decision yet: no request was answered", hang=2)
    for decision in answer.decisions:
        title = (
            f"{answer.endpoint}, catalogue {decision.catalogue or '(default)'}: "
            f"k = {decision.chosen.k} of at most {decision.k_max}, decided {decision.age_s:.0f} s ago"
        )
        print_line(title, hang=2)
        columns, rows = table_of(decision)
        print_table(columns, rows, right=columns[1:])
        print_line(f"  why: {decision.why}", hang=4)
        if decision.object_ids:
            named = ", ".join(decision.object_ids[:most])
            more = len(decision.object_ids) - most
            print_line(f"  objects: {named}{f', and {more} more' if more > 0 else ''}", hang=4)
        for name, value in decision.facts:
            print_line(f"  {name}: {value}", hang=4)
    for name, why in answer.networks:
        print_line(f"{answer.endpoint}, network {name}: {why}", hang=2)


def _print_status(status: DaemonStatus) -> None:
    from nearsight.common.operation.status import format_duration

    if status.error:
        print_line(f": {status.error}", lead=f"{status.endpoint}: no answer", colour="red", hang=2)
        return
    state, colour = ("ready", "green") if status.ready else ("not ready", "red")
    up = f", up {format_duration(status.uptime_s)}, version {status.version}" if status.version else ""
    print_line(up, lead=f"{status.daemon} {status.endpoint}: {state}", colour=colour, hang=2)
    for name, value in status.details:
        print_line(f"  {name}: {value}", hang=4)


class _Answer(Protocol):
    @property
    def absent(self) -> bool: ...

    def to_json(self) -> dict[str, object]: ...


A = TypeVar("A", bound=_Answer)


def show_answers(
    asked: Sequence[Address],
    ask: Callable[..., Sequence[A]],
    show: Callable[[A], None],
    is_fine: Callable[[A], bool],
    *,
    as_json: bool,
    watch_s: float | None = None,
) -> NoReturn:
    """Call daemons, show their answers, and exit: with code 0 if all are fine, 4 if not.

    A daemon that is not expected to run is ignored unless it answers. At least one daemon must answer.

    Parameters
    ----------
    asked : sequence of Address
        The daemons.
    ask : callable
        Takes the endpoints, and as ``security`` the keys of each; returns answers in the same order.
    show : callable
        Prints an answer for people.
    is_fine : callable
        Whether an answer counts as a success.
    as_json : bool
        Print JSON instead.
    watch_s : float, optional
        Interval at which the daemons are called again, without an exit.
    """
    while True:
        answers = ask([one.endpoint for one in asked], security=[one.security for one in asked])
        counted, absent = [], []
        for address, answer in zip(asked, answers, strict=True):
            if address.expected or not answer.absent:
                counted.append(answer)
            else:
                absent.append(f"{address.daemon} ({address.endpoint})")
        if as_json:
            print_json([answer.to_json() for answer in counted])
        else:
            if watch_s is not None:
                output_console().clear()
            for answer in counted:
                show(answer)
            if absent:
                print_line(f"no answer from daemons that are not configured: {', '.join(absent)}", hang=2)
            if not counted:
                print_error("no daemon answers; start one, or name the ENDPOINT of a running daemon")
        if watch_s is None:
            raise typer.Exit(0 if counted and all(map(is_fine, counted)) else PeerError.exit_code)
        time.sleep(watch_s)
