"""Object models are fetched lazily and once, and none delays another."""

from pathlib import Path

import pytest

from nearsight.common.errors import Unavailable
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.settings import CacheSettings, FetchSettings
from support.caching import profile_of_table_3_2
from support.edge import (
    EXHIBITS,
    EdgeClient,
    ScriptedCloud,
    Serve,
    answer_of,
    ask_until,
    cache_of,
    cached,
    make_misses_costly,
    photo,
    serving,
    warm,
)
from support.waiting import LONG_S, wait_until


def test_requests_for_one_missing_object_fetch_its_model_once(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    device.ask(photo(0))
    make_misses_costly(edge)
    futures = [device.send(photo(2)) for _ in range(12)]
    assert {answer_of(future.result(LONG_S))[0] for future in futures} == {"02"}
    ask_until(lambda: "02" in cached(edge), lambda: device.ask(photo(2)), "exhibit 2 in the cache")
    assert cloud.fetched_ids().count("02") == 1


def test_a_model_that_cannot_be_fetched_does_not_delay_the_others(cloud: ScriptedCloud, serve: Serve) -> None:
    cloud.fetch_errors = {"01": Unavailable("no")}
    cloud.malformed = {"02"}
    cloud.silent = {"03"}
    with serve(fetch=FetchSettings(timeout_s=2.0)) as (edge, device):
        device.ask(photo(0))
        make_misses_costly(edge)
        for number in (1, 2, 3):
            device.ask(photo(number))
        warm(edge, device, [0, 4, 5])
        assert cached(edge) == {"00", "04", "05"}
        assert device.ask(photo(2)) == ("02", "cloud")
        cloud.fetch_errors, cloud.malformed, cloud.silent = {}, set(), set()
        wait_until(lambda: len(cached(edge)) == EXHIBITS, what="all exhibits once they can be fetched")


def test_a_cache_that_does_not_pay_stays_empty(cloud: ScriptedCloud, tmp_path: Path) -> None:
    """Lookups of an hour and a cloud on loopback: forwarding is faster on any machine."""
    path = tmp_path / "slow.json"
    profile_of_table_3_2().model_copy(update={"lookup_ms": (3.6e6, 1.87)}).save(path)
    slow = CacheSettings(profile=path, miss_prior_ms=10.0)
    with serving(cloud, cache=slow) as (edge, device):
        for _ in range(25):
            assert device.ask(photo(0)) == ("00", "cloud")
        decision = cache_of(edge).optimizer.decision
        assert decision is not None
        assert decision.k == 0
        assert cloud.fetched == []


@pytest.mark.parametrize(("failure", "timeout_s"), [("refused", 600.0), ("timed out", 0.2)])
def test_a_failed_fetch_is_retried(
    cloud: ScriptedCloud, serve: Serve, failure: str, timeout_s: float
) -> None:
    if failure == "refused":
        cloud.fetch_errors = {"00": Unavailable("no")}
    else:
        cloud.silent = {"00"}
    with serve(fetch=FetchSettings(timeout_s=timeout_s)) as (edge, device):
        device.ask(photo(0))
        make_misses_costly(edge)
        device.ask(photo(0))
        wait_until(lambda: "00" in cloud.fetched_ids(), what="the first attempt")
        cloud.fetch_errors, cloud.silent = {}, set()
        wait_until(lambda: cached(edge) == {"00"}, what="exhibit 0 in the cache")
