"""Live streams of many browsers through one gateway: answers, their age, and memory.

Each stream sends five pictures per second. While it has no credit, the newest picture waits. A visitor stands
before an exhibit for some seconds, so that consecutive pictures are nearly the same: each is shifted by one
or two pixels and has its own noise. The age of an answer is measured from the time at which its picture was
due. A frame is lost if it is neither answered nor superseded by a newer frame of its stream.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import psutil
from websockets.asyncio.client import connect

from nearsight.common.errors import Unavailable
from nearsight.experiments.bench.benchmark import Benchmark, ReportStep, percentiles
from nearsight.experiments.bench.clients import answer_of, child
from nearsight.experiments.bench.gateway import Deployment, deployed, photos_of

PER_SECOND, MAX_AGE_MS = 5.0, 250.0
MAX_GROWTH_MIB = 8.0
_DWELL_FRAMES, _VARIANTS = 25, 6
_OPENING_S, _DRAIN_S, _SETTLE_S = 2.0, 20.0, 5.0
"""Delay of the first picture; timeout of the last answers; time before memory is measured."""


@dataclass(slots=True)
class Seen:
    """Counts and latencies of all streams of one process."""

    sent: int = 0
    superseded: int = 0
    """Frames that a newer frame superseded at the gateway."""
    skipped: int = 0
    """Pictures that a newer picture replaced before there was a credit."""
    answered: int = 0
    ages_ms: list[float] = field(default_factory=list)
    """Ages of the answers that arrived while pictures were sent; afterwards no picture is superseded."""
    known: int = 0
    grains: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


def bench_streams(
    quick: bool, streams: int, seconds: float, museums: Path, folder: Path, report_step: ReportStep
) -> Benchmark:
    """Measure streams with and without the edge's result cache.

    Parameters
    ----------
    quick : bool
        A tenth of the streams and of the time.
    streams : int
        Number of concurrent streams.
    seconds : float
        Duration.
    museums, folder : Path
        Folders of generated museums and of logs.
    report_step : callable
        Called with the current step.
    """
    if quick:
        streams, seconds = max(1, streams // 10), seconds / 10
    report_step("painting and training a museum")
    museum, photos = photos_of(museums)
    held = [_variants(photo, np.random.default_rng(number)) for number, photo in enumerate(photos)]
    rows = []
    for cached in (False, True):
        name = f"{streams} streams, result cache {'on' if cached else 'off'}"
        report_step(f"gateway: {name}, {seconds:g} s")
        where = folder / name.replace(" ", "-").replace(",", "")
        with deployed(museum, photos, where, result_cache=cached) as running:
            rows.append({"streams": streams, "result_cache": cached, **_run(running, held, streams, seconds)})
    columns = {
        "streams": "{streams}",
        "result cache": "{result_cache}",
        "frames due/s": "{due_per_s:.0f}",
        "answered/s": "{answered_per_s:.0f}",
        "superseded/s": "{superseded_per_s:.0f}",
        "lost": "{lost}",
        "errors": "{errors}",
        "recognised": "{recognised:.0%}",
        "age p50 ms": "{age_p50_ms:.0f}",
        "p95": "{age_p95_ms:.0f}",
        "gateway CPU ms/frame": "{gateway_cpu_ms:.2f}",
        "cores: gateway, edge, clients": "{gateway_cores:.2f}, {edge_cores:.2f}, {client_cores:.2f}",
        "RSS MiB": "{rss_begin_mib:.0f} → {rss_end_mib:.0f}",
        "reached": "{reached}",
    }
    return Benchmark("gateway-streams", f"Live streams of {PER_SECOND:g} pictures a second", columns, rows)


def _variants(photo: bytes, rng: np.random.Generator) -> list[bytes]:
    """Pictures of a phone that is held still: shifted by up to two pixels, with noise."""
    pixels = cv2.imdecode(np.frombuffer(photo, np.uint8), cv2.IMREAD_COLOR)
    if pixels is None:
        return [photo]
    found = []
    for _ in range(_VARIANTS):
        shift = np.roll(pixels, tuple(rng.integers(-2, 3, 2)), (0, 1)).astype(np.float32)
        noisy = np.clip(shift + rng.normal(0, 2.0, pixels.shape), 0, 255).astype(np.uint8)
        found.append(cv2.imencode(".jpg", noisy, [cv2.IMWRITE_JPEG_QUALITY, 80])[1].tobytes())
    return found


def _run(
    running: Deployment, held: Sequence[Sequence[bytes]], streams: int, seconds: float
) -> dict[str, Any]:
    url = running.url("ws", "stream")
    gateway = psutil.Process(running.gateway.pid)
    with child(_clients, url, held, streams, seconds) as clients:
        before_s = running.gateway.cpu_s(), running.edge.cpu_s()
        began_s, rss = time.monotonic(), list[tuple[float, float]]()
        while not clients.poll(0.5):
            rss.append((time.monotonic() - began_s, gateway.memory_info().rss / 2**20))
        took_s = time.monotonic() - began_s
        after_s = running.gateway.cpu_s(), running.edge.cpu_s()
        seen, client_cpu_s = answer_of(clients, 60.0)
    if not seen.ages_ms:
        raise Unavailable(
            "no picture was answered while pictures were sent", advice="is the machine too busy?"
        )
    answered = seen.answered
    lost = seen.sent - answered - seen.superseded - sum(seen.errors.values())
    p50_ms, p95_ms = percentiles(seen.ages_ms, 50, 95)
    settled = [mib for at_s, mib in rss if _SETTLE_S < at_s < seconds] or [rss[-1][1]]
    third = max(1, len(settled) // 3)
    begin_mib, end_mib = statistics.median(settled[:third]), statistics.median(settled[-third:])
    return {
        "seconds": seconds,
        "due_per_s": streams * PER_SECOND,
        "sent": seen.sent,
        "skipped": seen.skipped,
        "superseded_per_s": seen.superseded / seconds,
        "answered_per_s": len(seen.ages_ms) / seconds,
        "lost": lost,
        "errors": sum(seen.errors.values()),
        "error_codes": dict(seen.errors),
        "grains": dict(seen.grains),
        "recognised": seen.known / max(1, answered),
        "age_p50_ms": p50_ms,
        "age_p95_ms": p95_ms,
        "gateway_cpu_ms": 1e3 * (after_s[0] - before_s[0]) / max(1, seen.sent),
        "gateway_cores": (after_s[0] - before_s[0]) / took_s,
        "edge_cores": (after_s[1] - before_s[1]) / took_s,
        "client_cores": client_cpu_s / took_s,
        "rss_begin_mib": begin_mib,
        "rss_end_mib": end_mib,
        "rss_mib": rss,
        "reached": not lost
        and not seen.errors
        and p95_ms <= MAX_AGE_MS
        and end_mib - begin_mib <= MAX_GROWTH_MIB,
    }


def _clients(
    parent: Connection, url: str, held: Sequence[Sequence[bytes]], streams: int, seconds: float
) -> None:
    """Run all streams in a process of their own."""
    parent.send("ready")
    seen = Seen()
    asyncio.run(all_streams(url, held, streams, seconds, seen, opening_s=_OPENING_S))
    parent.send((seen, time.process_time()))
    parent.recv()


async def all_streams(
    url: str,
    held: Sequence[Sequence[bytes]],
    streams: int,
    seconds: float,
    seen: Seen,
    *,
    opening_s: float,
) -> None:
    """Open streams and send pictures of the exhibits that visitors look at.

    Parameters
    ----------
    url : str
        Address of the stream.
    held : sequence of sequence of bytes
        Pictures of each exhibit.
    streams : int
        Number of concurrent streams.
    seconds : float
        Duration of sending.
    seen : Seen
        Counters to update.
    opening_s : float
        Delay of the first picture.

    Raises
    ------
    ExceptionGroup
        With `Unavailable`, if the gateway closed a stream.
    """
    begins_s = time.monotonic() + opening_s
    async with asyncio.TaskGroup() as group:
        for number in range(streams):
            group.create_task(_one_stream(url, held, number, begins_s, seconds, seen))


async def _one_stream(
    url: str, held: Sequence[Sequence[bytes]], number: int, begins_s: float, seconds: float, seen: Seen
) -> None:
    rng = random.Random(number)
    due_s: dict[int, float] = {}
    ends_s = begins_s + seconds
    async with connect(url, compression=None) as connection, asyncio.TaskGroup() as group:
        allowed = int(json.loads(await connection.recv())["credits"])
        free = asyncio.Semaphore(allowed)

        async def read() -> None:
            async for text in connection:
                answer, now_s = json.loads(text), time.monotonic()
                at_s = due_s.pop(answer["frame"])
                if answer["type"] == "superseded":
                    seen.superseded += 1
                elif answer["type"] == "answer":
                    seen.answered += 1
                    if now_s < ends_s:
                        seen.ages_ms.append((now_s - at_s) * 1e3)
                    seen.known += answer["known"]
                    seen.grains[answer["grain"]] += 1
                else:
                    seen.errors[answer["error"]["code"]] += 1
                free.release()
            raise Unavailable(f"the gateway closed a stream: {connection.close_reason or 'no reason given'}")

        reading = group.create_task(read())
        at_s, period_s = begins_s + rng.random() / PER_SECOND, 1 / PER_SECOND
        exhibit = frame = 0
        while at_s < ends_s:
            await asyncio.sleep(max(0.0, at_s - time.monotonic()))
            await free.acquire()
            late = int((time.monotonic() - at_s) / period_s)
            seen.skipped += late  # only the newest of the pictures that have become due is sent
            at_s += late * period_s
            if frame % _DWELL_FRAMES == 0:
                exhibit = rng.randrange(len(held))
            due_s[frame] = at_s
            seen.sent += 1
            await connection.send(frame.to_bytes(4) + rng.choice(held[exhibit]))
            frame += 1
            at_s += period_s
        with suppress(TimeoutError):  # on timeout, answers are missing and counted as lost
            async with asyncio.timeout(_DRAIN_S):
                for _ in range(allowed):
                    await free.acquire()
        reading.cancel()
