"""Processes that run cells do not go on without the one that started them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nearsight.experiments.rig.processes import leashed
from support.waiting import wait_until

_PROGRAM = """
import sys
from pathlib import Path
from nearsight.experiments.framework.running import run_in_processes
from nearsight.experiments.framework.experiment import RunOptions
from support.squares import Endless
if __name__ == "__main__":
    endless = Endless(Path(sys.argv[1]))
    list(run_in_processes(endless, RunOptions(), endless.cells(RunOptions()), 2))
"""


def alive(pid: int) -> bool:
    """Whether it runs; one that ended and nobody asked for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel is asked for it")
def test_cells_end_with_the_process_that_runs_them(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    tests = str(Path(__file__).parents[2])
    with subprocess.Popen(
        leashed(str(program), str(tmp_path)), env={**os.environ, "PYTHONPATH": tests}
    ) as process:
        wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, timeout_s=60, what="two cells that run")
        process.kill()
    workers = [int(path.stem) for path in tmp_path.glob("*.pid")]
    wait_until(lambda: not any(map(alive, workers)), timeout_s=20, what="their end")
