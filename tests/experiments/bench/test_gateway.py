"""The benchmark of the gateway: latencies and counts, with a scripted edge."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from websockets.asyncio.server import ServerConnection, serve

from nearsight.common.clock import ManualClock
from nearsight.common.errors import Unavailable
from nearsight.experiments.bench import gateway, gateway_streams
from nearsight.experiments.bench.gateway_streams import Seen, all_streams
from support.gateway import STREAM, ScriptedEdge, running_gateway
from support.recognition_server import failing


def test_latencies_are_compared_with_zeromq_for_each_photo(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr(gateway, "time", SimpleNamespace(perf_counter=clock.monotonic))
    asked: Counter[str] = Counter()

    def way(name: str, times_s: Sequence[float], label: str):
        def ask(photo: bytes) -> str:
            asked[name] += 1
            clock.advance(times_s[int(photo)])
            return label

        return ask

    ways = {
        "ZeroMQ": way("ZeroMQ", (0.01, 0.02, 0.03), "Night"),
        "HTTP": way("HTTP", (0.014, 0.023, 0.032), ""),
    }
    base, http = gateway.measured(ways, {}, [b"0", b"1", b"2"], rounds=2)
    assert asked == {"ZeroMQ": 9, "HTTP": 9}
    assert (base["photos"], base["recognised"], http["recognised"]) == (6, 1.0, 0.0)
    assert (base["more_ms"], base["reached"]) == (0.0, True)
    assert [http[name] for name in ("least_more_ms", "more_ms", "most_more_ms")] == pytest.approx([3.0] * 3)
    assert not http["reached"]


@pytest.mark.parametrize("fails", [False, True])
def test_each_frame_of_a_stream_has_one_counted_outcome(fails: bool) -> None:
    edge, seen = ScriptedEdge(), Seen()
    if fails:
        edge.recognition.answer = failing(ValueError())
    try:
        with running_gateway(edge.endpoint) as browser:
            url = f"ws://{browser.host}{STREAM}"
            asyncio.run(all_streams(url, [[b"one"], [b"two"]], 3, 0.5, seen, opening_s=0.1))
    finally:
        edge.stop()
    outcomes = (0, seen.errors["INTERNAL"]) if fails else (seen.answered, 0)
    assert (seen.answered, seen.errors["INTERNAL"]) == outcomes
    assert sum(outcomes) > 0
    assert sum(outcomes) + seen.superseded == seen.sent  # a busy machine supersedes frames


def test_a_stream_that_the_gateway_closes_ends_the_measurement() -> None:
    async def close(connection: ServerConnection) -> None:
        await connection.send(json.dumps({"credits": 1}))
        await connection.recv()
        await connection.close(1001, "the gateway stops")

    async def measure() -> None:
        async with serve(close, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            streams = all_streams(f"ws://127.0.0.1:{port}", [[b"one"]], 1, 600.0, Seen(), opening_s=0.0)
            await asyncio.wait_for(streams, 20.0)

    with pytest.RaisesGroup(
        pytest.RaisesExc(Unavailable, match="closed a stream: the gateway stops"), flatten_subgroups=True
    ):
        asyncio.run(measure())


def test_streams_without_an_answer_in_time_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = SimpleNamespace(pid=os.getpid(), cpu_s=lambda: 0.0)
    running = SimpleNamespace(gateway=daemon, edge=daemon, url=lambda *_: "")
    polls = iter((False, True))
    clients = SimpleNamespace(poll=lambda _timeout_s: next(polls))
    monkeypatch.setattr(gateway_streams, "child", lambda *_: nullcontext(clients))
    monkeypatch.setattr(gateway_streams, "answer_of", lambda *_: (Seen(sent=3, answered=3), 1.0))
    with pytest.raises(Unavailable, match="no picture was answered while"):
        gateway_streams._run(running, [[b"one"]], 1, 1.0)


@pytest.mark.parametrize(
    ("answered_by", "said"), [("cloud", "0 of 2 photos itself; 1 are"), (None, "2 are unknown")]
)
def test_an_edge_that_does_not_answer_itself_is_not_measured(
    answered_by: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {b"known": answered_by, b"unknown": None}
    monkeypatch.setattr(gateway, "_FILL_S", 0.0)
    monkeypatch.setattr(gateway, "Stub", lambda *_: None)
    monkeypatch.setattr(
        gateway, "_ask", lambda _stub, photo: SimpleNamespace(found=found[photo], answered_by=found[photo])
    )
    with pytest.raises(Unavailable, match=said):
        gateway._fill("tcp://127.0.0.1:1", [b"known", b"unknown"])
