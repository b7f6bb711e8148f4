"""The baseline policies in the running edge, and the regret of its decisions."""

import pytest
from prometheus_client import generate_latest

from nearsight.common.config.base import load_settings
from nearsight.common.errors import ConfigurationError
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.operation.explain import ask_explanations
from nearsight.edge.report import facts_of
from nearsight.edge.settings import CacheSettings, EdgeSettings
from support.edge import (
    EXHIBITS,
    EdgeClient,
    ScriptedCloud,
    cache_of,
    cached,
    photo,
    serving,
    warm,
)
from support.waiting import LONG_S, wait_until


def with_policy(settings: CacheSettings, policy: str, size: int = 2) -> CacheSettings:
    changes = {"policy": policy, "fixed_size": size, "optimize_every": 1}
    return settings.model_copy(update=changes)


def visit(device: EdgeClient, numbers: list[int]) -> None:
    for number in numbers:
        assert device.ask(photo(number))[0] == f"{number:02d}"


@pytest.mark.parametrize("change", [{"policy": "none"}, {"k_max": 0}])
def test_without_a_cache_all_photos_are_forwarded_and_no_model_is_fetched(
    cloud: ScriptedCloud, cache_settings: CacheSettings, change: dict[str, object]
) -> None:
    with serving(cloud, cache=cache_settings.model_copy(update=change)) as (edge, device):
        assert {device.ask(photo(0)) for _ in range(12)} == {("00", "cloud")}
        assert cached(edge) == set()
        assert cloud.fetched == []


def test_lru_caches_the_most_recently_requested_objects(
    cloud: ScriptedCloud, cache_settings: CacheSettings
) -> None:
    with serving(cloud, cache=with_policy(cache_settings, "lru")) as (edge, device):
        device.ask(photo(0))
        cache_of(edge)
        visit(device, [0, 0, 1])
        wait_until(lambda: cached(edge) == {"00", "01"}, what="the first two")
        visit(device, [0, 2])
        wait_until(lambda: cached(edge) == {"00", "02"}, what="the last two")


def test_the_policy_everything_fetches_the_whole_catalogue(
    cloud: ScriptedCloud, cache_settings: CacheSettings
) -> None:
    everything = with_policy(cache_settings, "everything")
    with serving(cloud, cache=everything) as (edge, device):
        device.ask(photo(0))
        wait_until(lambda: len(cached(edge)) == EXHIBITS, what="the whole catalogue")
        assert device.ask(photo(5)) == ("05", "edge")
        (answer,) = ask_explanations([edge.endpoint], timeout_s=LONG_S)
        assert answer.decisions[0].why.startswith("everything")


def test_regret_is_reported_in_details_explanations_and_metrics(
    cloud: ScriptedCloud, cache_settings: CacheSettings
) -> None:
    metrics = DaemonMetrics("edge")
    with serving(cloud, metrics, cache=cache_settings) as (edge, device):
        warm(edge, device, [0, 1])
        visit(device, [0, 1] * 10)
        cache = cache_of(edge)
        report = cache.regret.report()
        assert report.requests >= 20
        assert 0 <= report.best_k <= 2
        assert facts_of(cache)["regret"] == report.why
        (answer,) = ask_explanations([edge.endpoint], timeout_s=LONG_S)
        assert "per request over the last" in dict(answer.decisions[0].facts)["regret"]
    assert 'nearsight_edge_regret_seconds{catalogue="museum"}' in generate_latest(metrics.registry).decode()


@pytest.mark.parametrize("name", ["multi_user", "cache.policy"])
def test_an_unknown_method_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        load_settings(EdgeSettings, "edge", None, {name: "perhaps"})
