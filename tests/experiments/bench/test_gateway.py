"""The benchmark of the gateway: how it counts; a stub stands for the edge."""

import asyncio
import time
from collections import Counter

import pytest

from nearsight.experiments.bench.gateway import measured
from nearsight.experiments.bench.gateway_streams import Seen, all_streams
from support.gateway import STREAM, ScriptedEdge, running_gateway
from support.recognition_server import failing


def test_ways_are_compared_with_zeromq_photo_by_photo() -> None:
    asked: Counter[str] = Counter()

    def way(name: str, delay_s: float, label: str):
        def ask(photo: bytes) -> str:
            asked[name] += 1
            until_s = time.perf_counter() + delay_s
            while time.perf_counter() < until_s:
                pass
            return label

        return ask

    ways = {"ZeroMQ": way("ZeroMQ", 0.0, "Night"), "HTTP": way("HTTP", 0.004, "")}
    base, http = measured(ways, {}, [b"1", b"2", b"3"], rounds=2)
    assert asked == {"ZeroMQ": 9, "HTTP": 9}
    assert (base["photos"], base["recognised"], http["recognised"]) == (6, 1.0, 0.0)
    assert (base["more_ms"], base["reached"]) == (0.0, True)
    assert http["least_more_ms"] <= http["more_ms"] <= http["most_more_ms"]
    assert (http["more_ms"] > 2.0, http["reached"]) == (True, False)


@pytest.mark.parametrize("fails", [False, True])
def test_each_frame_of_a_stream_is_counted_once(fails: bool) -> None:
    edge, seen = ScriptedEdge(), Seen()
    if fails:
        edge.recognition.answer = failing(ValueError())
    try:
        with running_gateway(edge.endpoint) as browser:
            url = f"ws://{browser.host}{STREAM}"
            asyncio.run(all_streams(url, [[b"one"], [b"two"]], 3, 0.5, seen, opening_s=0.1))
    finally:
        edge.stop()
    assert seen.sent > 0
    assert (seen.answered, seen.errors["INTERNAL"]) == ((0, seen.sent) if fails else (seen.sent, 0))
    assert min(seen.ages_ms, default=1.0) > 0
