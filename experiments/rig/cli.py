"""The command ``nearsight replay``."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearsight.common.command_line.options import (
    ConfigOption,
    JsonOption,
    SetOption,
    flag_overrides,
)
from nearsight.common.command_line.terminal import print_json, print_line, print_table, progress_bar
from nearsight.common.files import check_writable
from nearsight.device.cli import CatalogueOption, CloudOption, EdgeOption, PrefetchOption

if TYPE_CHECKING:
    from nearsight.experiments.rig.rows import RequestRow

app = typer.Typer()


@app.command()
def replay(  # noqa: PLR0917  typer calls it by name
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE.csv", help="visitor,exhibit,start_s,end_s or objectID,imagePath,time_ms."
        ),
    ],
    photos: Annotated[
        Path,
        typer.Option(
            "--photos", metavar="DIR", help="Museum or other data set; imagePath is relative to this folder."
        ),
    ],
    edge: EdgeOption = None,
    cloud: CloudOption = None,
    catalogue: CatalogueOption = None,
    visitor: Annotated[
        str | None,
        typer.Option("--visitor", help="Visitor whose visits are replayed; also the device's identity."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.csv", dir_okay=False, help="One row per request.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.001, help="Stop after this many seconds.")
    ] = None,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", min=0.05, max=86_400, help="Deadline of a request in seconds."),
    ] = 5.0,
    unknown_share: Annotated[
        float, typer.Option("--unknown-share", help="Share of photos of objects not in the catalogue.")
    ] = 0.0,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, help="Seed for choosing the photos of visits.", show_default="1"),
    ] = None,
    label: Annotated[str, typer.Option("--label", help="Name of the configuration in the rows.")] = "replay",
    start_after_s: Annotated[
        float,
        typer.Option(
            "--start-after",
            min=0,
            help="Delay before the first photo in seconds; it keeps several devices from sending together.",
        ),
    ] = 0.0,
    prefetch: PrefetchOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    assignments: SetOption = None,
    announce: Annotated[
        Path | None,
        typer.Option(
            "--announce",
            metavar="FILE",
            help="File for the process id, as JSON; written when the device is ready to send photos.",
        ),
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", hidden=True, help="A JSON line per completed request.")
    ] = False,
    wait_for_input: Annotated[
        bool, typer.Option("--wait-for-input", hidden=True, help="Begin at a line on standard input.")
    ] = False,
    account: Annotated[
        Path | None,
        typer.Option("--account", hidden=True, help="File for counts of fetched models, as JSON."),
    ] = None,
) -> None:
    """Replay one visitor's photos through the SDK, one per second, and record the outcome of every request.

    One process simulates one device. To simulate several devices, start several processes, each with its own
    --visitor. After Ctrl-C or SIGTERM, the rows of all completed requests are kept.
    """
    from nearsight.common.config.base import load_settings
    from nearsight.common.errors import Cancelled, InvalidArgument
    from nearsight.common.logging import configure_logging
    from nearsight.device.settings import DeviceSettings
    from nearsight.experiments.framework.signals import termination_as_interrupt
    from nearsight.experiments.rig.replay import (
        ReplayOptions,
        make_plan,
        require_outcomes,
        run_device,
        write_event,
    )
    from nearsight.experiments.rig.rows import write_rows

    named = {
        "edge.endpoint": edge,
        "cloud.endpoint": cloud,
        "catalogue": catalogue,
        "recognizer.prefetch.enabled": prefetch,
    }
    settings = load_settings(DeviceSettings, "device", config, flag_overrides(assignments, named)).settings
    configure_logging(level=settings.log_level, log_format=settings.log_format, daemon="replay")
    options = ReplayOptions(
        trace=trace,
        photos=photos,
        visitor=visitor,
        seconds=seconds,
        timeout_s=timeout_s,
        unknown_share=unknown_share,
        seed=seed,
        label=label,
        start_after_s=start_after_s,
        account=account,
        announce=announce,
        wait_for_input=wait_for_input,
    )
    plan = make_plan(options)
    if out is not None:
        if out.exists() and out.samefile(trace):
            raise InvalidArgument(f"--out {out} is the trace", advice="name another file for the rows")
        check_writable(out)  # an unwritable path fails before the replay, not after it
    done: list[RequestRow] = []

    def on_row(row: RequestRow) -> None:
        done.append(row)
        if advance is None:
            write_event({"answered_by": row.answered_by, "latency_ms": row.latency_ms})
        else:
            advance(1)

    bar = nullcontext() if events else progress_bar(f"replaying {visitor or trace.name}", len(plan))
    try:
        with termination_as_interrupt(), bar as advance:
            rows, cpu_s = run_device(options, settings, plan, on_row)
    except KeyboardInterrupt:
        # The interruption itself cancelled requests that were open.
        kept = [row for row in done if row.outcome != Cancelled.__name__]
        if out is not None and kept:
            write_rows(out, sorted(kept, key=lambda row: row.number))
            print_line(f"stopped: {out} has {len(kept)} of {len(plan)} rows", err=True)
        raise
    if events:
        write_event({"cpu_s": cpu_s})
    else:
        _print_replay(rows, timeout_s, as_json)
    if out is not None:
        write_rows(out, rows)
    if not events:  # the parent process checks the rows of all devices
        require_outcomes(rows)


def _print_replay(rows: tuple[RequestRow, ...], timeout_s: float, as_json: bool) -> None:
    from nearsight.experiments.rig.rows import latency_in_words, summarise

    metrics = asdict(summarise(rows, timeout_s))
    if as_json:
        print_json(metrics)
        return
    latencies = metrics["latency_ms"].items()
    metrics["latency_ms"] = {name: latency_in_words(value, timeout_s, 1) for name, value in latencies}
    shown = []
    for name, value in metrics.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        shown.append((name, ", ".join(f"{key} {_number(part)}".strip() for key, part in parts)))
    print_table(["", "value"], shown)


def _number(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
