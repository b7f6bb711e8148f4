"""The benchmark of RPC."""

import json

import pytest

from nearsight.experiments.bench.rpc import run


@pytest.mark.system
def test_the_benchmark_measures_both_transports_with_and_without_curve() -> None:
    steps: list[str] = []
    result = run(steps.append, sizes_bytes=(64, 4096), rounds=2, calls=5).figures
    assert {(r["transport"], r["curve"], r["size_bytes"]) for r in result["rows"]} == {
        (transport, curve, size)
        for transport in ("nearsight", "pyzmq")
        for curve in (False, True)
        for size in (64, 4096)
    }
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in result["rows"])
    assert all(ratio["p50_ratio"] > 0 for ratio in result["ratios"])
    assert steps
    assert json.loads(json.dumps(result)) == result
