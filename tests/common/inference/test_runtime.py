"""The runtime with real, tiny networks."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nearsight.common.errors import CorruptStore, DeadlineExceeded, InternalError
from nearsight.common.inference.measurement import measure
from nearsight.common.inference.runtime import Runtime
from support.networks import adder_network, colour_network, endless_network, failing_network
from support.waiting import LONG_S


def test_a_network_computes_what_its_graph_says(runtime: Runtime, tmp_path: Path) -> None:
    network = runtime.load(adder_network(tmp_path / "adder.onnx", 2.5), "adder")
    (given,), (taken,) = network.outputs, network.inputs
    assert (str(taken), str(given)) == ("float32 (any, 4)", "float32 (any, 4)")
    tensor = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(network.run({"x": tensor})["y"], tensor + 2.5)
    network.warm_up()
    network.close()


@pytest.mark.parametrize("content", [b"", b"no network" * 100, None])
def test_a_damaged_file_is_refused_with_its_name(
    runtime: Runtime, tmp_path: Path, content: bytes | None
) -> None:
    path = adder_network(tmp_path / "adder.onnx")
    path.write_bytes(path.read_bytes()[:60] if content is None else content)
    with pytest.raises(CorruptStore, match="adder cannot be loaded"):
        runtime.load(path, "adder")


def test_a_file_that_cannot_be_read_is_not_called_incomplete(runtime: Runtime, tmp_path: Path) -> None:
    with pytest.raises(CorruptStore, match="adder cannot be loaded: its file cannot be read; check that it"):
        runtime.load(tmp_path / "adder.onnx", "adder")


def test_a_file_for_which_there_is_no_memory_is_not_called_damaged(tmp_path: Path) -> None:
    code = """
import pathlib, resource, sys
from nearsight.common.errors import Unavailable
from nearsight.common.inference.runtime import Runtime
runtime, path = Runtime(), pathlib.Path(sys.argv[1])
runtime.load(path, "large").close()
pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 20_000_000,) * 2)
try:
    runtime.load(path, "large")
except Unavailable as error:
    print(error.message)
"""
    path = colour_network(tmp_path / "large.onnx", weights_mb=60)
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "there is not enough memory to load large\n"


def test_an_execution_that_hangs_is_stopped_and_the_network_remains_usable(
    runtime: Runtime, tmp_path: Path
) -> None:
    network = runtime.load(endless_network(tmp_path / "endless.onnx"), "endless")
    with pytest.raises(DeadlineExceeded, match=r"execution of endless exceeded the time limit of 0\.05 s"):
        network.run({"x": np.full(3, 1e12, np.float32)}, within_s=0.05)
    np.testing.assert_array_equal(
        network.run({"x": np.full(3, 2, np.float32)}, within_s=LONG_S)["y"], [4, 4, 4]
    )


def test_a_failed_execution_gives_an_error_of_one_line(runtime: Runtime, tmp_path: Path) -> None:
    network = runtime.load(failing_network(tmp_path / "failing.onnx"), "failing")
    with pytest.raises(InternalError, match="execution of failing failed") as caught:
        network.run({"x": np.array([7], np.int64)})
    assert "\n" not in caught.value.message


def test_every_unload_frees_the_memory(tmp_path: Path) -> None:
    """In a separate process, because no other code may allocate memory."""
    path = colour_network(tmp_path / "large.onnx", weights_mb=20)
    _, cycles = measure(path, "large", cycles=3, executions=2)
    for cycle in cycles:
        assert cycle.loaded_bytes - cycle.unloaded_bytes > 19e6
        assert cycle.unloaded_bytes < 25e6
    assert cycles[2].unloaded_bytes - cycles[0].unloaded_bytes < 4e6


def test_the_library_writes_nothing_to_the_home_folder(tmp_path: Path) -> None:
    """Since 1.32, its import creates a database and sends telemetry, unless that is disabled before."""
    code = "from nearsight.common.inference.runtime import Runtime; Runtime().close()"
    subprocess.run([sys.executable, "-c", code], env={**_environment(), "HOME": str(tmp_path)}, check=True)
    assert list(tmp_path.rglob("*")) == []


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
