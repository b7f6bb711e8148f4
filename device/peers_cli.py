"""``nearsight peers``: the devices near a device, the content of each, and the traffic."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated

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
from nearsight.common.command_line.terminal import fits_terminal, print_line, print_table
from nearsight.common.operation.cli import show_answers
from nearsight.common.rpc.endpoints import DEFAULT_ENDPOINTS

if TYPE_CHECKING:
    from nearsight.device.peers.report import DevicePeers, PeersReport

app = typer.Typer(add_completion=False)


@app.command()
def peers(  # noqa: PLR0917  typer calls it by name
    ctx: typer.Context,
    endpoints: Annotated[list[str] | None, endpoints_argument(DEFAULT_ENDPOINTS["device"])] = None,
    timeout_s: TimeoutOption = 3.0,
    key: KeyOption = None,
    server_keys: ServerKeysOption = None,
    config: ConfigOption = None,
    watch_s: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the devices near a device daemon, the content of each, and the traffic.

    Exit code 0 if all answered, 4 if not.
    """
    from nearsight.common.operation.addresses import addresses
    from nearsight.device.peers.report import ask_peers

    asked = addresses(ctx.obj.settings_classes, ("device",), endpoints, config, key, server_keys)
    show_answers(
        asked,
        partial(ask_peers, timeout_s=timeout_s),
        _print,
        lambda answer: not answer.error,
        as_json=as_json,
        watch_s=watch_s,
    )


TABLE_COLUMNS = (
    *("device", "node", "address", "state", "last seen", "present"),
    *("keys", "store", "models", "sent", "received", "ping ms"),
)
"""Headings of `table_of`."""


def _print(answer: DevicePeers) -> None:
    from nearsight.device.peers.presence.identity import shown
    from nearsight.device.peers.report import HOLDS

    report = answer.report
    if report is None:
        print_line(f"{answer.endpoint}: {'no answer: ' if answer.absent else ''}{answer.error}", hang=2)
    else:
        name = f"{report.device_id}, node {shown(report.node_id)}, at {report.endpoint}"
        count, rows = len(report.peers), table_of(report)
        title = f"{name}: {count} peer{'s' if count > 1 else ''}" if count else f"{name}: no peers"
        if count and fits_terminal(TABLE_COLUMNS, rows):
            print_table(TABLE_COLUMNS, rows, title=title, right=TABLE_COLUMNS[4:])
        else:
            for line in (title, *(line for row in rows for line in _lines(row))):
                print_line(line)
        none = [fact for fact, value in report.facts if fact != HOLDS and not re.search("[1-9]", value)]
        for fact, value in report.facts:
            if fact not in none:
                print_line(f"  {fact}: {value}", hang=4)
        if none:
            print_line(f"  none so far: {', '.join(none)}", hang=4)


def table_of(report: PeersReport) -> list[tuple[str, ...]]:
    """One row per peer, by name: see `TABLE_COLUMNS`."""
    from nearsight.common.operation.status import format_bytes, format_duration
    from nearsight.device.peers.presence.identity import shown

    return [
        (
            peer.device_id or "?",
            shown(peer.node_id),
            peer.endpoint,
            peer.state,
            f"{peer.heard_s_ago:.1f} s ago",
            format_duration(peer.present_s),
            str(peer.keys),
            format_bytes(peer.store_bytes),
            str(peer.models),
            format_bytes(peer.sent_bytes),
            format_bytes(peer.received_bytes),
            f"{peer.round_trip_ms:.1f}",
        )
        for peer in sorted(report.peers, key=lambda peer: (peer.device_id, peer.node_id))
    ]


def _lines(row: tuple[str, ...]) -> tuple[str, ...]:
    """A row of `table_of` as lines, for a terminal that is too narrow for the table."""
    name, node, address, state, seen, present, keys, store, models, sent, received, ping_ms = row
    return (
        f"  {name}, node {node}, at {address}",
        f"    {state}, last seen {seen}, present for {present}, ping {ping_ms} ms",
        f"    holds {keys} keys, {store}, and {models} models; {sent} sent, {received} received",
    )
