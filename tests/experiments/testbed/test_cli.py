"""``nearsight testbed``: the commands that its messages advise."""

import shlex
from pathlib import Path

import pytest

from nearsight.__main__ import main
from nearsight.common.errors import SetupError
from nearsight.experiments.testbed.reading import read_inventory
from nearsight.experiments.testbed.state import TestbedState, load_state
from nearsight.experiments.testbed.testbed import bring_up
from support.testbeds import CROWD, write_inventory


def test_the_status_of_a_missing_testbed_advises_an_up_into_the_same_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory, state = tmp_path / "the lab.toml", tmp_path / "its state"
    assert main(["testbed", "status", str(inventory), "--state", str(state)]) == 2
    advised = " ".join(capsys.readouterr().err.split()).partition("start it with: ")[2]
    assert shlex.split(advised) == ["nearsight", "testbed", "up", str(inventory), "--state", str(state)]


def test_the_advised_down_removes_the_testbed_that_is_up(tmp_path: Path) -> None:
    inventory = read_inventory(write_inventory(tmp_path, CROWD.format(kind="process")))
    state = tmp_path / "its state"
    TestbedState(inventory).save(state)
    with pytest.raises(SetupError) as refused:
        bring_up(inventory, state)
    program, *arguments = shlex.split(refused.value.advice.partition(": ")[2])
    assert program == "nearsight"
    assert main(arguments) == 0
    assert load_state(state) is None
