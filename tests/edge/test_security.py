"""An edge with keys: authentication at its cloud, and errors for its devices."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nearsight.common.config.base import SecuritySettings
from nearsight.common.errors import ConfigurationError, Unavailable
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.rpc.security import KeyFiles, ServerSecurity, generate_keys
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.settings import CacheSettings
from support.caching import profile_of_table_3_2
from support.edge import ScriptedCloud, edge_settings, exhibit, photo, serving
from support.waiting import LONG_S


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, KeyFiles]:
    return {name: generate_keys(tmp_path / name, name) for name in ("cloud", "edge", "stranger")}


@pytest.fixture
def cloud(tmp_path: Path, keys: dict[str, KeyFiles]) -> Iterator[ScriptedCloud]:
    clients = tmp_path / "clients"
    clients.mkdir()
    (clients / "edge.key").write_text(keys["edge"].public_file.read_text())
    security = ServerSecurity(keys["cloud"].secret_file, clients)
    cloud = ScriptedCloud([exhibit(0)], security=security)
    yield cloud
    cloud.stop()


@pytest.fixture
def cache(tmp_path: Path) -> CacheSettings:
    profile_of_table_3_2().save(tmp_path / "profile.json")
    return CacheSettings(profile=tmp_path / "profile.json")


def test_an_edge_with_an_allowed_key_reaches_its_cloud(
    cloud: ScriptedCloud, keys: dict[str, KeyFiles], cache: CacheSettings
) -> None:
    own = SecuritySettings(secret_key_file=keys["edge"].secret_file)
    public = keys["cloud"].public_key
    with serving(cloud, cache=cache, security=own, cloud_public_key=public) as (_, device):
        assert device.ask(photo(0)) == ("00", "cloud")


def test_a_cloud_that_refuses_the_key_of_the_edge_is_unavailable_for_devices(
    cloud: ScriptedCloud, keys: dict[str, KeyFiles], cache: CacheSettings
) -> None:
    own = SecuritySettings(secret_key_file=keys["stranger"].secret_file)
    public = keys["cloud"].public_key
    with serving(cloud, cache=cache, security=own, cloud_public_key=public) as (edge, device):
        with pytest.raises(Unavailable, match="cloud"):
            device.send(photo(0)).result(LONG_S)
        assert not edge.ready()


def test_a_public_key_of_the_cloud_requires_an_own_key(keys: dict[str, KeyFiles]) -> None:
    with pytest.raises(ConfigurationError, match="no key of its own"):
        EdgeDaemon(
            edge_settings("tcp://127.0.0.1:1", cloud_public_key=keys["cloud"].public_key),
            DaemonMetrics("edge"),
        )


def test_an_edge_beyond_loopback_without_keys_is_refused(cloud: ScriptedCloud, cache: CacheSettings) -> None:
    settings = edge_settings(cloud.endpoint, cache=cache)
    open_wide = settings.server.model_copy(update={"listen": "tcp://0.0.0.0:0"})
    daemon = EdgeDaemon(settings.model_copy(update={"server": open_wide}), DaemonMetrics("edge"))
    with pytest.raises(ConfigurationError, match="key"):
        daemon.start()
