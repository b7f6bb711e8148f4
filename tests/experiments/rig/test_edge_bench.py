"""Warming up edges with caches of different sizes."""

from types import SimpleNamespace
from typing import Any

from nearsight.experiments.rig.edge_bench import ADAPTIVE, CacheBench


def test_an_edge_with_a_larger_cache_than_the_catalogue_waits_for_the_catalogue() -> None:
    awaited: list[dict[str, int | None]] = []
    running: Any = SimpleNamespace(warm_up=lambda _requests, held, **_: awaited.append(held))
    devices: Any = dict.fromkeys(("5", "50", ADAPTIVE))
    CacheBench(running, devices, 20).warm_up([])
    assert awaited == [{"5": 5, "50": 20, ADAPTIVE: None}]
