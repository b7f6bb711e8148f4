"""``nearsight status`` and ``nearsight explain``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, NoReturn, Protocol, TypeVar

import typer

from nearsight.common.command_line.options import (
    EndpointsArgument,
    JsonOption,
    KeyOption,
    ServerKeyOption,
    TimeoutOption,
    WatchOption,
)
from nearsight.common.command_line.terminal import output_console, print_json, print_line, print_table
from nearsight.common.errors import PeerError

if TYPE_CHECKING:
    from nearsight.common.operation.explain import DaemonExplanations
    from nearsight.common.operation.status import DaemonStatus

status_app = typer.Typer()
explain_app = typer.Typer()


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
    from nearsight.common.operation.status import ask_status
    from nearsight.common.rpc.security import client_security

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
    from nearsight.common.operation.explain import ask_explanations
    from nearsight.common.rpc.security import client_security

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
    from nearsight.common.operation.explain import TABLE_COLUMNS, table_of

    if answer.error:
        print_line(f"{answer.endpoint}: no answer: {answer.error}")
    elif not answer.decisions and not answer.networks:
        print_line(f"{answer.endpoint}: nothing decided yet: no request was answered")
    for decision in answer.decisions:
        title = (
            f"{answer.endpoint}, catalogue {decision.catalogue or '(default)'}: "
            f"k = {decision.chosen.k} of at most {decision.k_max}, decided {decision.age_s:.0f} s ago"
        )
        print_table(TABLE_COLUMNS, table_of(decision), title=title, right=TABLE_COLUMNS[1:])
        print_line(f"  why: {decision.why}")
        if decision.object_ids:
            named = ", ".join(decision.object_ids[:most])
            more = len(decision.object_ids) - most
            print_line(f"  objects: {named}{f', and {more} more' if more > 0 else ''}")
        for name, value in decision.facts:
            print_line(f"  {name}: {value}")
    for name, why in answer.networks:
        print_line(f"{answer.endpoint}, network {name}: {why}")


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


def _print_statuses(statuses: Sequence[DaemonStatus]) -> None:
    from nearsight.common.operation.status import format_duration

    rows: list[tuple[str | tuple[str, ...], ...]] = []
    for status in statuses:
        if status.error:
            rows.append((status.endpoint, "", "", "no answer", "", status.error))
            continue
        state = "ready" if status.ready else "not ready"
        details = tuple(f"{name}: {value}" for name, value in status.details)
        up = format_duration(status.uptime_s)
        rows.append((status.endpoint, status.daemon, status.version, state, up, details))
    print_table(("endpoint", "daemon", "version", "state", "up", "details"), rows)
