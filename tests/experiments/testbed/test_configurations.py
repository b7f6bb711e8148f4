"""The configurations that are built in: the twin's, said as settings of daemons."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsight.common.errors import ConfigurationError
from nearsight.device.recognizer_settings import RecognizerSettings
from nearsight.edge.settings import EdgeSettings
from nearsight.experiments.testbed.configurations import BUILT_IN, chosen
from nearsight.experiments.testbed.inventory import Inventory, Value
from nearsight.experiments.testbed.inventory_file import read_inventory
from nearsight.experiments.twin.session import CONFIGURATIONS

MINIMAL = """
[nodes.here]
kind = "process"
[cloud]
node = "here"
[edges.main]
node = "here"
[devices.visitors]
node = "here"
[replay]
photos = "museum"
"""


def nested(settings: dict[str, Value]) -> dict[str, object]:
    """Dotted names as tables."""
    found: dict[str, object] = {}
    for name, value in settings.items():
        *tables, last = name.split(".")
        place = found
        for table in tables:
            place = place.setdefault(table, {})  # type: ignore[assignment]
        place[last] = value
    return found


def read(tmp_path: Path, text: str) -> Inventory:
    path = tmp_path / "lab.toml"
    path.write_text(text)
    return read_inventory(path)


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_is_what_the_twin_simulates(name: str) -> None:
    spec, twin = BUILT_IN[name], CONFIGURATIONS[name]
    device = nested(dict(spec.device))["recognizer"]
    assert isinstance(device, dict)
    number = device["prefetch"].pop("features", 0)
    assert (number,) == (twin.features or (0,))
    assert spec.edges == (twin.edge is not None)
    if twin.edge is not None:
        assert EdgeSettings.model_validate(nested(dict(spec.edge))) == twin.edge
    assert RecognizerSettings.model_validate(device).prefetch == twin.device.prefetch


def test_an_inventory_that_names_none_gets_all(tmp_path: Path) -> None:
    assert list(chosen(read(tmp_path, MINIMAL))) == list(BUILT_IN)
    assert list(chosen(read(tmp_path, MINIMAL.replace('[edges.main]\nnode = "here"', "")))) == ["only-cloud"]


def test_own_ones_stand_beside_them_where_both_are_named(tmp_path: Path) -> None:
    own = '[configurations.mine]\nedge = { "cache.policy" = "lru" }\n'
    assert list(chosen(read(tmp_path, MINIMAL + own))) == ["mine"]
    named = MINIMAL + 'configurations = ["prefetching", "mine"]\n' + own
    assert list(chosen(read(tmp_path, named))) == ["prefetching", "mine"]
    with pytest.raises(ConfigurationError, match=r"there is no 'prefetch'; choose from only-cloud, "):
        chosen(read(tmp_path, MINIMAL + 'configurations = ["prefetch"]'))
