"""Networks are measured in a separate process, which may crash or hang."""

import json
import math
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from nearsight.common.errors import CorruptStore, Unavailable
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.measurement import Cycle, Measurement, measure, run_measuring_process
from support.networks import colour_network, endless_network, split_network
from support.waiting import LONG_S, wait_until


def test_the_memory_of_a_network_is_that_freed_by_its_unload() -> None:
    cycles = [
        Cycle(100.0, 20.0, (5.0, 7.0), 60_000_000, 62_000_000, 12_000_000),
        Cycle(80.0, 10.0, (6.0, 8.0), 62_000_000, 62_000_000, 12_000_000),
        Cycle(90.0, 12.0, (6.0, 9.0), 63_000_000, 62_000_000, 12_000_000),
    ]
    assert Measurement.of(cycles, "1.0") == Measurement(50_000_000, 102.0, 12.0, 6.5, "1.0")


@pytest.mark.parametrize(("first_ms", "warms_up", "load_ms"), [(16.0, True, 116.0), (12.0, False, 102.0)])
def test_only_a_slow_first_execution_belongs_to_the_load(
    first_ms: float, warms_up: bool, load_ms: float
) -> None:
    measured = Measurement.of([Cycle(100.0, first_ms, (10.0, 10.0), 3, 3, 1)], "1.0")
    assert (measured.warms_up, measured.load_ms) == (warms_up, load_ms)


def test_a_network_is_measured_in_a_separate_process(tmp_path: Path) -> None:
    path = colour_network(tmp_path / "large.onnx", weights_mb=10)
    measured, (cycle,) = measure(path, "large", executions=4)
    assert 10e6 < measured.memory_bytes < 16e6
    assert (measured.first_ms, len(cycle.later_ms)) == (cycle.first_ms, 3)
    assert cycle.load_ms <= measured.load_ms <= cycle.load_ms + cycle.first_ms


def test_a_measurement_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    path = endless_network(tmp_path / "endless.onnx", rounds=10**12)
    code = (
        "import pathlib, sys; from nearsight.common.inference.measurement import measure; "
        "measure(pathlib.Path(sys.argv[1]), 'endless', within_s=600)"
    )
    reading, writing = os.pipe()  # both processes keep the writing end open, as their standard input
    with os.fdopen(reading, "rb") as held:
        with os.fdopen(writing, "wb") as given:
            daemon = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=given)
        children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children")
        wait_until(lambda: bool(children.read_text()), what="the measuring process")
        daemon.kill()
        daemon.wait(LONG_S)
        assert select.select([held], [], [], LONG_S)[0], "the measuring process still runs"


def test_a_network_that_crashes_the_runtime_is_given_up() -> None:
    with pytest.raises(Unavailable, match=r"evil crashed the process that measured it: SIGABRT"):
        run_measuring_process([sys.executable, "-c", "import os; os.abort()"], "evil", LONG_S)
    with pytest.raises(Unavailable, match=r"crashed the process that measured it: signal 40;"):
        run_measuring_process([sys.executable, "-c", "import os; os.kill(os.getpid(), 40)"], "evil", LONG_S)
    with pytest.raises(Unavailable, match=r"exit status 1: .*MemoryError"):
        run_measuring_process([sys.executable, "-c", "raise MemoryError"], "evil", LONG_S)


def test_a_network_with_weights_in_another_file_is_refused_with_the_command_that_merges_them(
    tmp_path: Path,
) -> None:
    with pytest.raises(CorruptStore, match="the weights of split are in another file") as caught:
        measure(split_network(tmp_path / "split.onnx"), "split", prepared=tmp_path / "prepared")
    command = caught.value.advice.partition("python -c ")[2].strip("'")
    assert not (tmp_path / "prepared").exists()
    exec(command.replace("FILE", str(tmp_path / "split.onnx")))
    assert measure(tmp_path / "split.onnx", "split")


def test_a_measurement_without_a_process_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be measured"):
        run_measuring_process([str(tmp_path / "none")], "any", 1)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("load_ms", "soon", "measured.load_ms: .*number"),
        ("load_ms", -1.0, "measured: .*a cost is negative"),
        ("first_ms", math.inf, "measured: .*not finite"),
        ("memory_bytes", None, "measured.memory_bytes: .*integer"),
    ],
)
def test_a_damaged_measurement_is_refused(name: str, value: object, why: str) -> None:
    measured = Measurement(1, 2.0, 3.0, 4.0, "1.0")
    manifest = Manifest("adder", 1, 10, "0" * 64, measured=measured)
    assert Manifest.from_json(manifest.to_json()) == manifest
    values = json.loads(manifest.to_json())
    values["measured"][name] = value
    with pytest.raises(CorruptStore, match=why):
        Manifest.from_json(json.dumps(values))
