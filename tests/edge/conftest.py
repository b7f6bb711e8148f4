"""A museum of six exhibits, a cloud whose faults a test sets, and an edge in front of it."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from nearsight.common.recognition.models import ObjectModel
from nearsight.edge import services
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.settings import CacheSettings
from nearsight.edge.standby import standby, standbys
from support.caching import profile_of_table_3_2
from support.edge import EXHIBITS, EdgeClient, ScriptedCloud, Serve, exhibit, running_edge, serving
from support.waiting import LONG_S


@pytest.fixture(scope="session")
def models() -> list[ObjectModel]:
    return [exhibit(number) for number in range(EXHIBITS)]


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile, so that the edges do not measure a quick one."""
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    cheap = {"lookup_ms": (1.0, 0.05), "largest_k": 100}
    profile_of_table_3_2().model_copy(update=cheap).save(path)
    return path


@pytest.fixture
def cloud(models: list[ObjectModel]) -> Iterator[ScriptedCloud]:
    cloud = ScriptedCloud(models)
    yield cloud
    cloud.stop()


@pytest.fixture
def cache_settings(profile: Path) -> CacheSettings:
    return CacheSettings(build_share=1.0, miss_prior_ms=1000.0, miss_window=10_000, profile=profile)


@pytest.fixture
def edge(cloud: ScriptedCloud, cache_settings: CacheSettings) -> Iterator[EdgeDaemon]:
    with running_edge(cloud.endpoint, cache=cache_settings) as daemon:
        yield daemon


@pytest.fixture
def serve(cloud: ScriptedCloud, cache_settings: CacheSettings) -> Serve:
    """A function that starts edges with other settings."""
    return partial(serving, cloud, cache=cache_settings)


@pytest.fixture
def device(edge: EdgeDaemon) -> Iterator[EdgeClient]:
    with EdgeClient(edge.endpoint) as client:
        yield client


@pytest.fixture
def eager_standbys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standbys work at short intervals, and the cloud has time to answer on a busy machine."""
    monkeypatch.setattr(services, "_MOST_S", LONG_S)
    monkeypatch.setattr(standbys, "_EVERY_S", 0.05)
    monkeypatch.setattr(standby, "_PLAN_EVERY_S", 0.0)
