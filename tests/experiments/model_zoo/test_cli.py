"""`nearsight models build`. Only system tests build networks, because that needs Keras and PyTorch."""

from pathlib import Path

import pytest

from nearsight.__main__ import main
from nearsight.common.inference.repository import ModelRepository
from nearsight.experiments.model_zoo import cli
from nearsight.experiments.model_zoo.video_networks import NETWORKS


def test_the_sets_have_the_networks_of_the_papers() -> None:
    assert [len(cli.SETS[name]) for name in ("cremebrulee", "mcache", "mobilenet", "deepcache")] == [
        *(26, 7, 4, 10)
    ]
    assert set(cli.SETS["deepcache"]) == {*NETWORKS, "MuseumCNN"}


def test_unknown_architectures_are_refused_before_anything_is_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "build", "ResNet50", "LeNet", "--folder", str(tmp_path)]) == 2
    assert "there is no architecture 'LeNet'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_keras_and_torch_the_error_has_the_command_that_installs_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "find_spec", lambda _: None)
    assert main(["models", "build", "mobilenet", "--folder", str(tmp_path)]) == 5
    assert "pip install 'nearsight[zoo]'" in capsys.readouterr().err


@pytest.mark.system
@pytest.mark.needs("zoo")
@pytest.mark.parametrize("name", ["MobileNet-0.25", "GPT-2"])
def test_a_network_is_built_with_the_same_weights_each_time(tmp_path: Path, name: str) -> None:
    built = []
    for folder in ("one", "two"):
        assert main(["models", "build", name, "--shrink", "12", "--folder", str(tmp_path / folder)]) == 0
        built.append(ModelRepository(tmp_path / folder).get(name))
    assert built[0].measured is not None
    assert built[0].checksum == built[1].checksum


def test_networks_of_deepcache_take_the_pixels_on_which_their_weights_are_scaled() -> None:
    assert {cli._pixels(name) for name in NETWORKS} == {"-1..1"}
    assert cli._pixels("ResNet50") == "caffe"
